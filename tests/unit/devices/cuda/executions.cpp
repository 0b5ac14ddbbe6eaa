/// \file
/// Several steps of fit per execution, and data resident on the GPU: the bytes that the host sends,
/// and unchanged results.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/run_kernel.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;

namespace {

struct Net : Sequential<Input<6, 6, 2>, Conv2D<4, 3, kernel_regularizer(L2{0.01f})>,
                        BatchNormalization<>, ReLU, Dropout<rate(0.25f)>, Flatten, Dense<3>> {};

auto data(std::size_t count) {
  std::vector<std::uint8_t> x(count * 72);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return tensors(x, shape(6, 6, 2), y);
}

struct Seen {
  std::vector<float> weights;
  std::vector<double> losses;            // of each epoch, and of its validation
  std::vector<std::size_t> first, last;  // steps seen by the callbacks
  std::size_t data = 0;
  std::vector<std::size_t> graphs, copied;  // after each epoch
  bool operator==(const Seen& other) const {
    return weights == other.weights && losses == other.losses;
  }
};

template <class S, class O = Adam>
Seen train(const S& strategy, const testing::HostGpu* gpu, std::uint64_t steps,
           const O& optimizer = {.learning_rate = ExponentialDecay{0.01, 1, 0.9}}) {
  Model model{Net{},     Seed{3},   strategy, SparseCategoricalCrossentropy{.from_logits = true},
              optimizer, Accuracy{}};
  Seen seen;
  const LambdaCallback note{
      .on_epoch_end =
          [&](int, const Logs& logs) {
            seen.losses.push_back(logs["loss"]);
            seen.losses.push_back(logs["accuracy"]);
            seen.losses.push_back(logs["val_loss"]);
            if (gpu == nullptr) return;
            seen.graphs.push_back(gpu->graph_launches);
            seen.copied.push_back(gpu->copied_in);
          },
      .on_train_batch_begin = [&](std::size_t b, const Logs&) { seen.first.push_back(b); },
      .on_train_batch_end = [&](std::size_t b, const Logs&) { seen.last.push_back(b); }};
  const auto train = data(30) | random_flip_left_right | rescale(1 / 255.0) | shuffle(30);
  model.fit(train | batch(4), data(7) | rescale(1 / 255.0) | batch(4),
            {.epochs = 5,
             .steps_per_execution = steps,
             .callbacks = {note},
             .progress = ProgressStyle::none});
  seen.data = model.memory().data;
  for (const auto& p : decltype(model)::parameters()) {
    const auto w = model.weights(p.name);
    seen.weights.insert(seen.weights.end(), w.begin(), w.end());
  }
  return seen;
}

OneDevice<Cuda> gpu_with(const CudaOptions& options) { return {.on = {0, options}}; }

}  // namespace

TEST_CASE("resident data and several steps per execution do not change a bit of training") {
  testing::TestGpu gpu;
  const Seen plain = train(gpu_with({.deterministic = true, .keeps_data = false}), gpu.host(), 1);
  const Seen resident = train(gpu_with({.deterministic = true}), gpu.host(), 1);
  const Seen together = train(gpu_with({.deterministic = true}), gpu.host(), 3);
  const Seen both = train(gpu_with({.deterministic = true, .keeps_data = false}), gpu.host(), 3);
  CHECK(plain == resident);
  CHECK(plain == together);
  CHECK(plain == both);
  CHECK(plain.data == 0);
  CHECK(resident.data > 37 * (72 + 4));  // training and validation data, and their batches

  // Eight steps per epoch: executions of 3, 3 and 2.
  REQUIRE(together.first.size() == 15);
  CHECK(std::vector(together.first.begin(), together.first.begin() + 3) ==
        std::vector<std::size_t>{0, 3, 6});
  CHECK(std::vector(together.last.begin(), together.last.begin() + 3) ==
        std::vector<std::size_t>{2, 5, 7});
  if (gpu.host() == nullptr) SKIP("launches and copies are counted on the host only");
  // And two batches of validation, and fit's check of the weights for NaN.
  CHECK(resident.graphs[4] - resident.graphs[3] == 8 + 2 + 1);
  CHECK(together.graphs[4] - together.graphs[3] == 3 + 2 + 1);
  // The host sends row indices only: 4 bytes each, 30 and 7 of them.
  CHECK(resident.copied[4] - resident.copied[3] == 37 * 4);
  CHECK(plain.copied[4] - plain.copied[3] == 37 * (72 + 1) * 4);
}

TEST_CASE("replicas on one GPU each keep the data, and train alike in executions") {
  testing::TestGpu gpu;
  const auto with = [](const CudaOptions& options) {
    return Mirrored<Cuda>{{{0, options}, {0, options}}};
  };
  const Seen plain = train(with({.deterministic = true, .keeps_data = false}), nullptr, 1);
  for (const std::uint64_t steps : {1, 4}) {
    const Seen resident = train(with({.deterministic = true}), gpu.host(), steps);
    CHECK(plain == resident);
    CHECK(plain.data == 0);
    CHECK(resident.data > 0);
    // Row indices, to each replica; the mean of the running statistics stays on the GPU.
    if (gpu.host() != nullptr) CHECK(resident.copied[4] - resident.copied[3] == 2 * 37 * 4);
  }
}

TEST_CASE("executions change no bit with more options, or with idle replicas", "[.slow]") {
  testing::TestGpu gpu;
  const CudaOptions from_host{.deterministic = true, .keeps_data = false},
      on_gpu{.deterministic = true};
  SECTION("accumulated and clipped gradients, averages of weights") {
    const Adam adam{
        .learning_rate = 0.01,
        .with = {.global_clipnorm = 0.5, .use_ema = true, .gradient_accumulation_steps = 3}};
    CHECK(train(gpu_with(from_host), nullptr, 1, adam) ==
          train(gpu_with(on_gpu), nullptr, 3, adam));
  }
  SECTION("three replicas, one of them idle in the last batch") {
    const auto with = [](const CudaOptions& o) { return Mirrored<Cuda>{{{0, o}, {0, o}, {0, o}}}; };
    CHECK(train(with(from_host), nullptr, 1) == train(with(on_gpu), nullptr, 3));
  }
  SECTION("virtual shards") {
    const auto with = [](const CudaOptions& o) {
      return Mirrored<Cuda>{.devices = {{0, o}, {0, o}}, .virtual_shards = 4};
    };
    CHECK(train(with(from_host), nullptr, 1) == train(with(on_gpu), nullptr, 3));
  }
  SECTION("float16, whose first steps are skipped") {
    const auto with = [](const CudaOptions& o) { return OneDevice<CudaFloat16>{.on = {0, o}}; };
    CHECK(train(with(from_host), nullptr, 1) == train(with(on_gpu), nullptr, 3));
  }
}

namespace {

struct Wide : Sequential<Input<16, 16, 4>, Conv2D<8, 1>, GlobalAveragePooling2D, Dense<3>> {};
auto large(std::size_t count) {
  return tensors(std::vector<float>(count * 16 * 16 * 4), shape(16, 16, 4),
                 std::vector<std::int32_t>(count));
}
/// Bytes of data on a GPU with this much memory; nothing if it does not suffice.
template <class S>
std::optional<std::size_t> data_within(testing::HostGpu& gpu, std::size_t limit,
                                       const S& strategy) {
  gpu.memory.limit = limit;
  try {
    Model model{Wide{}, strategy, SparseCategoricalCrossentropy{.from_logits = true}, SGD{}};
    model.fit(large(100) | batch(100), large(100) | batch(50), {.progress = ProgressStyle::none});
    return model.memory().data;
  } catch (const OutOfMemory&) {
    return {};
  }
}

}  // namespace

TEST_CASE("data that do not fit on the GPU come from the host") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("of a GPU of known size");
  const auto two = [](const CudaOptions& options) {
    return Mirrored<Cuda>{{{0, options}, {0, options}}};
  };
  std::set<std::size_t> seen;
  for (const std::size_t limit : {1u, 2u, 3u, 5u}) {
    INFO(limit << " MiB");
    const auto one_from_host =
                   data_within(*gpu.host(), limit << 20, gpu_with({.keeps_data = false})),
               one = data_within(*gpu.host(), limit << 20, gpu_with({})),
               two_from_host = data_within(*gpu.host(), limit << 20, two({.keeps_data = false})),
               both = data_within(*gpu.host(), limit << 20, two({}));
    CHECK(one.has_value() == one_from_host.has_value());
    CHECK(both.has_value() == two_from_host.has_value());
    if (one) seen.insert(*one);
  }
  CHECK(seen.size() == 3);  // none, the training data, and the validation data too
}
