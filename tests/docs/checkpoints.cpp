/// \file
/// The code that docs/checkpoints.md shows.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>

#include "lockstep/checkpoints.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

TEST_CASE("the page about checkpoints: a fit continues from its checkpoint") {
  const std::string folder = "/tmp/lockstep-docs-checkpoints-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const std::string directory = folder + "/run1";
  const auto digits = ls::datasets::digits();
  const auto train = digits.train() | ls::take(300) | ls::rescale(1.0 / 255) | ls::cache |
                     ls::shuffle(300) | ls::batch(50);
  struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<10>> {};
  const auto make = [] {
    return ls::Model{Net{},
                     ls::Seed{7},
                     ls::OneDevice<ls::Reference<float>>{},
                     ls::SparseCategoricalCrossentropy{.from_logits = true},
                     ls::Adam{},
                     ls::Accuracy{}};
  };
  auto quiet = make();
  quiet.fit(train, {.epochs = 3, .progress = ls::ProgressStyle::none});

  auto killed = make();
  killed.fit(train, {.epochs = 2,
                     .checkpoint = {.directory = directory, .every = 5},
                     .progress = ls::ProgressStyle::none});
  const std::filesystem::path newest = directory + "/step-000000012";
  CHECK(std::filesystem::exists(newest / "manifest.json"));
  std::filesystem::remove_all(newest);  // as if the process had been killed after step 10

  auto model = make();
  // clang-format off
  // --8<-- [start:fit]
  model.fit(train, {.epochs = 3,
                    .checkpoint = {.directory = directory, .every = 5},
                    .progress = ls::ProgressStyle::none});
  // --8<-- [end:fit]
  // clang-format on
  CHECK(model.steps() == 18);
  CHECK(model.weights_sha256() == quiet.weights_sha256());

  auto best = make();
  // --8<-- [start:best]
  best.fit(train, ls::validation_split(0.2),
           {.epochs = 3,
            .checkpoint = {.directory = folder + "/best", .keep = 1, .best = "val_loss"},
            .progress = ls::ProgressStyle::none});
  // --8<-- [end:best]
  CHECK(std::filesystem::exists(folder + "/best/latest"));

  auto own = make();
  // --8<-- [start:own]
  own.save_checkpoint(folder + "/own");
  own.load_checkpoint(folder + "/own");
  // --8<-- [end:own]
  std::filesystem::remove_all(folder);
}
