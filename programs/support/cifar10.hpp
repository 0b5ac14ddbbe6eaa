/// \file
/// The shared part of the CIFAR-10 programs: depth and precision of a unit, the data with the
/// tutorial's augmentation, and the tutorial's schedule.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/data/sources/cifar10.hpp>
#include <lockstep/data/sources/drawn_shapes.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/training/report/profile.hpp>

#include "support/build.hpp"
#include "support/units.hpp"

// The build compiles cifar10.cpp once for each strategy, depth and precision.
#ifndef LOCKSTEP_DEPTH
#define LOCKSTEP_DEPTH 56
#endif

namespace support {

// The options of the unit that includes this file; not inline, since each unit has different ones.
constexpr const char* unit_options =
    "--depth " LOCKSTEP_TEXT(LOCKSTEP_DEPTH) " --precision " LOCKSTEP_TEXT(LOCKSTEP_PRECISION)
        LOCKSTEP_POLICY_OPTION;
constexpr int depth = LOCKSTEP_DEPTH;
constexpr int blocks = (depth - 2) / 6;  // per stage; each has two convolutions
static_assert(6 * blocks + 2 == depth);

/// The tutorial's schedule; epochs count from 0.
inline double rate_factor(int epoch) { return epoch < 30 ? 1 : epoch < 45 ? 0.1 : 0.01; }

/// Trains on byte images, each standardized to mean 0 and standard deviation 1.
template <class Model, class Images>
void fit_standardized(Model& model, Job& job, const lockstep::datasets::Splits& source,
                      const Images& images) {
  namespace ls = lockstep;
  const Options& o = job.options();
  const auto train = images | ls::per_image_standardization | ls::shuffle(o.shuffle ? 50'000 : 1) |
                     (o.steps_per_epoch ? ls::repeat : ls::repeat(1)) | ls::batch(o.batch) |
                     ls::prefetch(1);
  const auto read_test = [&] {
    return source.test() | ls::per_image_standardization | ls::batch(o.batch) | ls::prefetch(1);
  };
  std::optional<decltype(read_test())> test;
  if (o.validate) test.emplace(read_test());
  job.train(model, train, test ? &*test : nullptr, [](const ls::History&) {});
}

/// Builds the tutorial's pipeline on the options' data, and trains with its schedule.
template <class Model>
void train_on_cifar10(Model& model, Job& job) {
  namespace ls = lockstep;
  job.describe(model);
  const Options& o = job.options();
  const auto source = o.data ? ls::datasets::cifar10(*o.data) : ls::datasets::shapes();
  if (!o.data) job.note_drawn(model.is_chief(), source.name(), "a folder with real images");
  const std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  const auto images = source.train() | ls::skip(o.skip) | ls::take(o.take.value_or(all));
  if (images.size() == std::uint64_t{0})
    throw ls::Error("--skip {} leaves no training image; skip fewer", o.skip);
  job.add(ls::LearningRateScheduler{
      [base = o.learning_rate](int epoch, double) { return base * rate_factor(epoch); }});
  if (o.augment)
    fit_standardized(model, job, source,
                     images | ls::random_crop(32, 32, {.padding = 4}) | ls::random_flip_left_right);
  else
    fit_standardized(model, job, source, images);
}

}  // namespace support
