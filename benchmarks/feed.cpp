/// \file
/// Measures the cost of loading data per step: the tutorials' CNN inside `fit`, on three feeds in
/// turn.
///
/// - `one batch`: the floats of one batch, repeated: nothing to select or scale.
/// - `feed`: 60,000 byte images, shuffled, scaled and gathered by the thread that trains.
/// - `prefetch`: the same, two batches ahead in a separate thread.
///
/// `data us` is the part of a step without computation: fetching the batch, callbacks and logs, in
/// the caller's thread. `share` is its share of the step; `over one batch` is how much longer the
/// step is than on one batch, which includes the effect of the other thread's core use. `alone` is
/// the feed's time without a model, as are `images`, the 128 images of a step of ResNet-56 on
/// CIFAR-10, and `augmented`, the same with its tutorial's augmentation and cutout.
///
/// Usage: feed [--threads N] [--batch N] [--rounds N] [--steps N] [--warmup N]
#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "measure.hpp"
#include "seed_step.hpp"

namespace ls = lockstep;

namespace {

using measure::Samples;

struct Options : measure::Turns {
  int threads = 1;
};

constexpr std::size_t rest = measure::phase_names.size() - 1;

struct Row {
  const char* name;
  Samples step{}, data{};

  void add(const std::vector<measure::Step>& steps) {
    for (const auto& one : steps) {
      step.add(one.us);
      data.add(one.phase[rest]);
    }
  }
  void print(const Row& least) const {
    fmt::print("{:12} {:9.1f} {:9.1f} {:9.2f} {:7.1f} % {:10.1f} % {:10.1f} %\n", name,
               step.median(), step.min(), data.median(), 100 * data.median() / step.median(),
               100 * (step.median() / least.step.median() - 1),
               100 * (step.min() / least.step.min() - 1));
  }
};

/// Time per batch of a pass of `feed`, in the consumer's thread.
template <class D>
Samples batches_of(const D& feed) {
  Samples samples;
  ls::Loader<float> loader(feed);
  ls::LoadedBatch batch;
  loader.begin({1, 0});
  loader.next(batch);
  for (bool more = true; more;) {
    const auto begin = measure::Clock::now();
    more = loader.next(batch);
    if (more) samples.add(measure::micros(measure::Clock::now() - begin));
  }
  return samples;
}

/// Bound: one core may spend 5 % of a 400 ms step on a batch of 128 images of (32, 32, 3).
void print_augmentation() {
  constexpr std::size_t count = 12'800;
  std::vector<std::uint8_t> bytes(count * 3072);
  std::uint64_t state = 1;
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>((state = ls::mix(state, 0)) >> 56);
  const auto plain =
      ls::tensors(std::move(bytes), ls::shape(32, 32, 3), std::vector<std::int32_t>(count, 3)) |
      ls::shuffle(count);
  const auto augmented = plain | ls::resize_with_crop_or_pad(40, 40) | ls::random_crop(32, 32) |
                         ls::random_flip_left_right | ls::per_image_standardization | ls::cutout(8);
  const Samples images = batches_of(plain | ls::batch(128)),
                changed = batches_of(augmented | ls::batch(128));
  fmt::print("images       {:9.1f} {:9.1f} us a batch of 128\n", images.median(), images.min());
  fmt::print("augmented    {:9.1f} {:9.1f} us a batch of 128, at most 20000: {}\n",
             changed.median(), changed.min(), measure::verdict(changed.median() <= 20'000));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  o.rounds = 20;
  CLI::App app("Cost of loading data per step", "feed");
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 1024));
  o.add_to(app);
  CLI11_PARSE(app, argc, argv);
  fmt::print("{}; threads {}, batch {}, {} rounds of {} steps\n", measure::machine(), o.threads,
             o.batch, o.rounds, o.steps);

  const measure::Timed<measure::OneDevice> strategy{{.on = {.threads = o.threads}}};
  auto model = measure::model_on(strategy);
  const auto same = ls::tensors(std::vector<float>(o.batch * 28 * 28, 0.5f), ls::shape(28, 28, 1),
                                std::vector<std::int32_t>(o.batch, 3)) |
                    ls::repeat | ls::batch(o.batch);
  auto feed = measure::images() | ls::batch(o.batch);
  const auto ahead = feed | ls::prefetch(2);

  Row one{"one batch"}, plain{"feed"}, prefetched{"prefetch"};
  Samples alone;
  ls::Loader<float> loader(feed);
  loader.begin({1, 0});
  ls::LoadedBatch batch;
  const measure::Neighbours neighbours;
  for (std::size_t round = 0; round < o.rounds; ++round) {
    one.add(fit_batches(model, *strategy.recorder, same, o));
    plain.add(fit_batches(model, *strategy.recorder, feed, o));
    prefetched.add(fit_batches(model, *strategy.recorder, ahead, o));
    for (std::size_t step = 0; step < o.steps; ++step) {
      const auto begin = measure::Clock::now();
      loader.next(batch);
      alone.add(measure::micros(measure::Clock::now() - begin));
    }
  }
  fmt::print("other processes used {:.0f} % of the cores\n", neighbours.percent());
  fmt::print("{:12} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12}\n", "", "step us", "min", "data us",
             "share", "over one", "of minima");
  for (const Row* row : {&one, &plain, &prefetched}) row->print(one);
  fmt::print("alone        {:9.1f} {:9.1f} us a batch\n", alone.median(), alone.min());
  const double share = prefetched.data.median() / prefetched.step.median();
  fmt::print("share of the step with prefetch {:.1f} %, at most 5 %: {}\n", 100 * share,
             measure::verdict(share <= 0.05));
  print_augmentation();
}
