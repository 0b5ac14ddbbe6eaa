/// \file
/// Steps as CUDA graphs, through `fit`.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/log_lines.hpp"
#include "support/run_kernel.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;

namespace {

struct Net : Sequential<Input<8, 8, 1>, Conv2D<4, 3>, BatchNormalization<>, ReLU, MaxPooling2D<>,
                        Flatten, Dense<8>, ReLU, Dense<3>> {};

auto data(std::size_t count) {
  const auto x = testing::as<float>(testing::normal_values(count * 64, 3));
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return tensors(x, shape(8, 8, 1), y);
}

struct Run {
  std::vector<float> weights;
  std::vector<double> losses;
};

/// A few steps of Adam with a changing learning rate; the last batch of an epoch is short.
template <class Device>
Run train(const Device& device, const auto& each_epoch) {
  Model model{Net{},
              Seed{3},
              OneDevice<Device>{device},
              SparseCategoricalCrossentropy{.from_logits = true},
              Adam{.learning_rate = ExponentialDecay{0.01, 1, 0.9}},
              Accuracy{}};
  Run run;
  const LambdaCallback note{
      .on_epoch_end = [&](int epoch, const Logs&) { each_epoch(epoch); },
      .on_train_batch_end = [&](std::size_t,
                                const Logs& logs) { run.losses.push_back(logs.step("loss")); }};
  model.fit(data(14) | batch(4),
            {.epochs = 6, .callbacks = {note}, .progress = ProgressStyle::none});
  for (const auto& p : decltype(model)::parameters()) {
    const auto w = model.weights(p.name);
    run.weights.insert(run.weights.end(), w.begin(), w.end());
  }
  return run;
}

}  // namespace

TEST_CASE(
    "from the second epoch on each step of fit is one graph with the same results, bit by bit") {
  testing::TestGpu gpu;
  std::vector<std::size_t> launches, graphs;
  const auto note = [&](int) {
    if (gpu.host() == nullptr) return;
    launches.push_back(gpu.host()->launches);
    graphs.push_back(gpu.host()->graph_launches);
  };
  const Run with_graphs = train(Cuda{0, {.deterministic = true}}, note);
  const Run without = train(Cuda{0, {.graphs = false, .deterministic = true}}, [](int) {});
  CHECK(with_graphs.losses == without.losses);
  CHECK(with_graphs.weights == without.weights);
  if (gpu.host() == nullptr) return;  // launches are counted by the host GPU only
  REQUIRE(launches.size() == 6);
  // Three steps of four examples and one of two per epoch.
  for (std::size_t epoch = 3; epoch < 6; ++epoch) {
    INFO("epoch " << epoch);
    CHECK(launches[epoch] == launches[epoch - 1]);
    CHECK(graphs[epoch] == graphs[epoch - 1] + 4 + 1);  // and fit's check of the weights for NaN
  }
}

TEST_CASE("steps that cannot be captured train call by call to the same bits") {
  testing::TestGpu gpu;
  const Cuda device{0, {.deterministic = true}};
  const Run with_graphs = train(device, [](int) {});
  using namespace detail::cuda;
  const testing::LogLines log;
  Commands::logged = false;
  Driver table = driver();
  table.cuGraphInstantiate = [](CUgraphExec*, CUgraph, unsigned long long) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  const EntryPoints<Driver>::Override instead(table);
  const Run without = train(device, [](int) {});
  CHECK(with_graphs.losses == without.losses);
  CHECK(with_graphs.weights == without.weights);
  CHECK(std::count_if(log.lines.begin(), log.lines.end(), [](const std::string& line) {
          return line.find("cannot be launched as one graph") != std::string::npos;
        }) == 1);
}
