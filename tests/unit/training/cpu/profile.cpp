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
  CHECK(profile.peak_flops > 1e9);
  for (const ProfileRow& row : profile.rows) {
    INFO(row.layer << " " << row.pass);
    CHECK((profile.share_of_peak(row) > 0) == (row.flops > 0));
    // The backward of a pooled convolution skips the gradients that pooling leaves at 0.
    // The peak is measured, too, maybe while another program runs.
    if (row.layer.starts_with("dense")) CHECK(profile.share_of_peak(row) <= 1.5);
  }
}

TEST_CASE("the peak of a Cpu is that of its threads, and unknown for bfloat16") {
  using detail::peak_flops_of;
  Cpu::Context one = Cpu{.threads = 1}.open(1, 0), two = Cpu{.threads = 2}.open(1, 0);
  double all = 0;
  for (auto* const context : {&one, &two}) {
    const auto scope = context->scope();
    const double peak = peak_flops_of<Cpu>(*context);
    CHECK(peak > 1e9);
    CHECK(peak > 0.3 * all);  // on one core two threads are as fast as one
    all += peak;
  }
  const auto scope = one.scope();
  CHECK(peak_flops_of<CpuBFloat16>(one) == 0);
}
