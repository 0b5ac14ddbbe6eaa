/// \file
/// A profile on the CPU, where layers are fused and backward runs the update.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/cpu.hpp"
#include "support/profiled_model.hpp"

using namespace lockstep;
using testing::find_row;

TEST_CASE("a profile on the Cpu leaves the model bit-identical") {
  const OneDevice<Cpu> strategy{.on = {.threads = 1}};
  CHECK(testing::profile_leaves_all_as_it_was(strategy,
                                              SGD{.learning_rate = 0.1f, .momentum = 0.9f}));
  CHECK(testing::profile_leaves_all_as_it_was(strategy, Adam{.learning_rate = 0.01}));
}

TEST_CASE("a profile on the Cpu names fused layers, and separates the update from backward") {
  struct Net : Sequential<Input<28, 28, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<>, Flatten, Dense<64>,
                          ReLU, Dense<3>> {};
  Model model{Net{}, OneDevice<Cpu>{.on = {.threads = 1}},
              SparseCategoricalCrossentropy{.from_logits = true}, SGD{}, Accuracy{}};
  const Profile profile = model.profile(std::vector<float>(8 * 784, 0.5f),
                                        testing::profiled_labels(8), {}, {.steps = 4});
  for (const std::string layer : {"conv2d+re_lu+max_pooling2d", "dense+re_lu_1", "dense_1"})
    for (const std::string pass : {"forward", "backward"}) {
      INFO(layer << " " << pass);
      const ProfileRow* const row = find_row(profile, layer, pass);
      REQUIRE(row != nullptr);
      CHECK(row->calls[0].calls == 1);
      CHECK(row->bytes > 0);
      CHECK(row->flops > 0);
    }
  const ProfileRow* const update = find_row(profile, "optimizer", "update");
  REQUIRE(update != nullptr);
  CHECK(update->microseconds > 0);
}
