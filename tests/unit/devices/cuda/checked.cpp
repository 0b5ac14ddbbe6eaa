/// \file
/// Checked mode through `fit`: an error names the kernel, its layer and its step.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/log_lines.hpp"
#include "support/refusal.hpp"
#include "support/run_kernel.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;
using testing::refusal;

namespace {

struct Net : Sequential<Input<8>, Dense<8>, BatchNormalization<>, ReLU, Dense<8>,
                        BatchNormalization<>, Dense<3>> {};

auto data(std::size_t count) {
  const auto x = testing::as<float>(testing::normal_values(count * 8, 3));
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return tensors(x, shape(8), y);
}

/// Sets the environment for or against checked mode.
struct Checked {
  explicit Checked(const char* value) { setenv("LOCKSTEP_CUDA_CHECK", value, 1); }
  ~Checked() { unsetenv("LOCKSTEP_CUDA_CHECK"); }
};

std::vector<float> train(testing::HostGpu* gpu, const char* faulty = "", int from_step = 0) {
  Model model{Net{},
              Seed{3},
              OneDevice<Cuda>{.on = {0, {.deterministic = true}}},
              SparseCategoricalCrossentropy{.from_logits = true},
              SGD{.learning_rate = 0.1},
              Accuracy{}};
  int step = 0;
  const LambdaCallback breaks{.on_train_batch_begin = [&](std::size_t, const Logs&) {
    if (gpu != nullptr && step++ == from_step) gpu->faulty = faulty;
  }};
  model.fit(data(24) | batch(4),
            {.epochs = 2, .callbacks = {breaks}, .progress = ProgressStyle::none});
  std::vector<float> all;
  for (const auto& p : decltype(model)::parameters()) {
    const auto w = model.weights(p.name);
    all.insert(all.end(), w.begin(), w.end());
  }
  return all;
}

}  // namespace

TEST_CASE("checked mode names the kernel that fails, its layer and its step") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("no kernel is to fail on a real GPU");
  const Checked checked("1");
  SECTION("backward of the second normalization") {
    CHECK(refusal<DeviceError>([&] { train(gpu.host(), "gradient", 4); }) ==
          "cuda: kernel 'gradient' of layer 'batch_normalization_1' (backward, step 4) failed: "
          "CUDA_ERROR, an error");
  }
  SECTION("a fused step") {
    CHECK(refusal<DeviceError>([&] { train(gpu.host(), "moments", 7); }) ==
          "cuda: kernel 'moments' of layer 'batch_normalization+re_lu' (forward, step 7) failed: "
          "CUDA_ERROR, an error");
  }
  SECTION("the optimizer") {
    CHECK(refusal<DeviceError>([&] { train(gpu.host(), "update", 2); }) ==
          "cuda: kernel 'update' of the optimizer (update, step 2) failed: CUDA_ERROR, an error");
  }
}

TEST_CASE("checked mode names the batch that an evaluation fetches") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("no kernel is to fail on a real GPU");
  const Checked checked("1");
  Model model{Net{}, OneDevice<Cuda>{}, SparseCategoricalCrossentropy{.from_logits = true}, SGD{},
              Accuracy{}};
  gpu.host()->faulty = "gather_rows";
  CHECK(refusal<DeviceError>([&] { model.evaluate(data(8) | batch(4)); }) ==
        "cuda: kernel 'gather_rows' of the batch (evaluation) failed: CUDA_ERROR, an error");
  CHECK(refusal<DeviceError>([&] {
          model.fit(data(8) | batch(4), {.progress = ProgressStyle::none});
        }) == "cuda: clear failed: CUDA_ERROR, an error");  // no longer attributed to an evaluation
}

TEST_CASE(
    "without checked mode the error explains how to find the kernel and does not blame the graph") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("no kernel is to fail on a real GPU");
  const testing::LogLines log;
  lockstep::detail::cuda::Commands::logged = false;
  const std::string message = refusal<DeviceError>([&] { train(gpu.host(), "gradient", 4); });
  CHECK(
      message ==
      "cuda: waiting for the GPU failed: CUDA_ERROR, an error; a kernel launched before "
      "this call failed: run again with LOCKSTEP_CUDA_CHECK=1 in the environment to find out which "
      "one");
  for (const std::string& line : log.lines) CHECK(line.find("graph") == std::string::npos);
}

TEST_CASE("checked mode changes no bit and launches no graph") {
  testing::TestGpu gpu;
  const auto plain = train(nullptr);
  const std::size_t graphs = gpu.host() == nullptr ? 0 : gpu.host()->graph_launches;
  const Checked checked("1");
  CHECK(train(nullptr) == plain);
  if (gpu.host() != nullptr) CHECK(gpu.host()->graph_launches == graphs);
}

TEST_CASE("LOCKSTEP_CUDA_CHECK is 1, 0 or empty") {
  testing::TestGpu gpu;
  for (const char* const off : {"", "0"}) {
    const Checked checked(off);
    CHECK(Cuda{0}.open(1, 0).options().graphs);
  }
  {
    const Checked checked("1");
    CHECK_FALSE(Cuda{0}.open(1, 0).options().graphs);
  }
  const Checked checked("yes");
  CHECK(refusal<UsageError>([] { Cuda{0}.open(1, 0); }) ==
        "cuda: LOCKSTEP_CUDA_CHECK is 'yes'; set it to 1 to wait for each command and name the one "
        "that fails, or to 0 for full speed");
}
