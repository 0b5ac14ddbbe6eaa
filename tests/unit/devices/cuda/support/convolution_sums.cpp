/// \file
/// Convolutions that sum up their result for the normalization behind them: which calls they make,
/// with a cuDNN that records them; what cuDNN sums up, where there is a GPU; and what comes of it
/// in models, with a cuDNN that computes on the host.
#include "lockstep/devices/cuda/support/convolution_sums.hpp"

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/model/recompute.hpp"
#include "support/fake_cudnn.hpp"
#include "support/host_cudnn.hpp"
#include "support/kernel_cache.hpp"
#include "support/log_lines.hpp"
#include "support/race_times.hpp"
#include "support/test_gpu.hpp"
#include "unit/devices/cuda/compare.hpp"
#include "unit/model/toy_device.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::FakeCudnn, testing::HostCudnn, testing::HostGpu, testing::relative_error;

namespace {

using Half = CudaFloat16;

/// All three kernels of a normalization, biases, strides, a kernel of one number, a first layer
/// whose channels 8 does not divide, and a convolution whose twin has no normalization behind it.
struct Net : Sequential<Input<9, 9, 3>, Conv2D<8, 3, same>, BatchNormalization<>, ReLU,
                        Conv2D<16, 3, same>, BatchNormalization<>, ReLU,
                        Residual<Sequential<Conv2D<16, 3, same, no_bias>, BatchNormalization<>>>,
                        ReLU, Conv2D<16, 3, same, no_bias>, GELU, Conv2D<24, 1, strides(2)>,
                        BatchNormalization<momentum(0.5)>, GlobalAveragePooling2D, Dense<5>> {};
/// Of them with sums.
constexpr std::size_t sums_of_net = 3;

template <class TheNet, class D>
auto state_of(toy::Machine<TheNet, D>& machine) {
  std::vector<typename D::real> state(TheNet::graph.state);
  machine.engine.state().download(state.data());
  machine.context.synchronize();
  return state;
}

/// A model of which all is random, trained on `rows` random examples, `batch` at a time.
template <class TheNet, class Strategy>
struct Trained {
  explicit Trained(const Strategy& strategy, std::size_t rows, std::size_t batch, int epochs = 1)
      : model(TheNet{}, Seed{5}, strategy, MeanSquaredError{}, SGD{.learning_rate = 0.05f}) {
    for (const auto& p : decltype(model)::parameters()) {
      auto w = testing::as<float>(testing::normal_values(p.size(), p.offset + 1));
      for (float& v : w) v = p.trainable ? 0.3f * v : 1;
      model.set_weights(p.name, w);
    }
    const auto note = [this](std::size_t, const Logs& logs) {
      losses.push_back(logs.step("loss"));
    };
    model.fit(data(rows) | lockstep::batch(batch),
              {.epochs = epochs,
               .callbacks = {LambdaCallback{.on_train_batch_end = note}},
               .progress = ProgressStyle::none});
  }
  static auto data(std::size_t rows) {
    constexpr Shape in = TheNet::input_shape, out = TheNet::output_shape;
    return tensors(testing::as<float>(testing::normal_values(rows * in.size(), 3)), in,
                   testing::as<float>(testing::normal_values(rows * out.size(), 4)), out);
  }
  std::vector<float> all(bool trainable) {
    std::vector<float> values;
    for (const auto& p : decltype(model)::parameters())
      if (p.trainable == trainable)
        for (const float v : model.weights(p.name)) values.push_back(v);
    return values;
  }

  std::vector<double> losses;
  Model<TheNet, Strategy, MeanSquaredError, SGD> model;
};

/// What cuDNN's first plan makes of random numbers, twice; `rounding`: of one of the result.
template <class D, class Precision>
void sums_up_what_it_stores(double rounding) {
  using A = typename Precision::activation;
  testing::TestGpu machine;
  std::optional<HostCudnn> on_host;
  if (machine.host() != nullptr) on_host.emplace();
  CudaContext context = D{0, {.deterministic = true}}.open(1, 0);
  const auto scope = context.scope();
  constexpr std::size_t count = 5;
  std::size_t found = 0;
  for (const Conv2DOp& op :
       {Conv2D<16, 3, same>::op(shape(12, 12, 16)), Conv2D<32, 1, strides(2)>::op(shape(9, 9, 16)),
        Conv2D<24, 5>::op(shape(9, 9, 8))}) {
    const auto filters = static_cast<std::size_t>(op.filters);
    const ConvolutionStep<Precision> plain(op, context, count, ConvolutionPass::forward, true);
    const ConvolutionSums<Precision> with_sums(op, context, count, plain);
    if (!with_sums) continue;
    ++found;
    std::vector<A> numbers;
    for (const double v : testing::normal_values(count * op.in.size(), 1))
      numbers.push_back(static_cast<A>(static_cast<float>(v)));
    testing::DeviceArray<D, A> x(context, numbers), y(context, count * op.out().size()),
        expected(context, count * op.out().size());
    testing::DeviceArray<D, float> w(
        context, testing::as<float>(testing::normal_values(op.kernel_size() + filters, 2))),
        sums(context, 3 * filters);
    testing::DeviceArray<D, std::byte> packed(context, packed_bytes<Precision>(op)),
        scratch(context, 1 + std::max(plain.scratch_bytes(), with_sums.scratch_bytes()));
    plain.forward(context, x.data(), w.data(), nullptr, expected.data(), scratch.data(),
                  {packed.data()});
    const auto run = [&] {
      with_sums.forward(context, x.data(), w.data(), w.data() + op.kernel_size(), y.data(),
                        sums.data(), scratch.data(), packed.data());
      return sums.download();
    };
    // What lay there before is not added.
    const std::vector<float> ours = run();
    CHECK(run() == ours);
    const std::vector<A> stored = y.download();
    CHECK(relative_error(testing::as<double>(stored), testing::as<double>(expected.download())) <
          4 * rounding);
    const std::vector<float> weights = w.download();
    for (std::size_t k = 0; k < filters; ++k) {
      double sum = 0, sizes = 0, squares = 0;
      for (std::size_t i = k; i < stored.size(); i += filters) {
        const double v = static_cast<float>(stored[i]);
        sum += v;
        sizes += std::abs(v);
        squares += v * v;
      }
      CAPTURE(k);
      // cuDNN may sum up what it has before it is rounded.
      CHECK(std::abs(ours[k] - sum) <= rounding * sizes);
      CHECK(std::abs(ours[filters + k] - squares) <= 2 * rounding * squares);
      CHECK(ours[2 * filters + k] == weights[op.kernel_size() + k]);
    }
  }
  if (found == 0) SKIP("cuDNN has no engine for it");
}

}  // namespace

TEST_CASE("a convolution sums up its result where cuDNN is faster than a reading of it") {
  testing::OwnKernelCache folder;
  HostGpu gpu;
  FakeCudnn cudnn;
  CudaContext context = Half{}.open(1, 0);
  const auto scope = context.scope();
  const Conv2DOp op = Conv2D<8, 3>::op(shape(6, 6, 8));
  const std::size_t weights = op.kernel_size() + 8;
  std::size_t count = 2;
  const auto make = [&](std::vector<float> times) {
    gpu.times.clear();
    testing::add_race(gpu.times, {0.01f, 0.02f, 0.03f, 0.03f});  // of the plain pass
    const ConvolutionStep<MixedFloat16> plain(op, context, ++count, ConvolutionPass::forward, true);
    CHECK(gpu.times.empty());
    testing::add_race(gpu.times, std::move(times));
    const std::size_t before = cudnn.count("cudnnBackendExecute"), launches = gpu.launches;
    ConvolutionSums<MixedFloat16> sums(op, context, count, plain);
    CHECK(gpu.times.empty());
    // 22 runs of each way; the plain pass packs weights, too, and is followed by the statistics.
    CHECK(cudnn.count("cudnnBackendExecute") == before + 4 * 22);
    CHECK(gpu.launches == launches + 3 * 22 + 2 * 22);
    return sums;
  };
  CHECK_FALSE(make({0.03f, 0.02f, 0.03f, 0.01f}));
  {
    const auto sums = make({0.03f, 0.01f, 0.03f, 0.02f});
    REQUIRE(sums);
    CHECK(sums.scratch_bytes() == 1000);
    const std::size_t packed_size = packed_bytes<MixedFloat16>(op);
    const TuningMemory x(context, count * 288 * 2), y(context, count * 128 * 2),
        w(context, weights * 4), packed(context, packed_size), scratch(context, 1000),
        numbers(context, 3 * 8 * 4);
    std::vector<float> bias(8, 0.7f), left_out(8);
    context.upload(w.as<std::byte>() + 4 * op.kernel_size(),
                   reinterpret_cast<const std::byte*>(bias.data()), 32);
    const std::size_t launches = gpu.launches;
    cudnn.forget();
    sums.forward(context, x.as<float16>(), w.as<float>(), w.as<float>() + op.kernel_size(),
                 y.as<float16>(), numbers.as<float>(), scratch.as<std::byte>(),
                 packed.as<std::byte>());
    context.download(reinterpret_cast<std::byte*>(left_out.data()), numbers.as<std::byte>() + 64,
                     32);
    context.synchronize();
    CHECK(gpu.launches == launches + 1);
    CHECK(cudnn.count("cudnnBackendExecute") == 1);
    CHECK(cudnn.places ==
          std::map<std::int64_t, void*>{{ConvolutionGraph::x, x.as<void>()},
                                        {ConvolutionGraph::w, packed.as<void>()},
                                        {ConvolutionGraph::y, y.as<void>()},
                                        {ConvolutionGraph::sums, numbers.as<void>()},
                                        {ConvolutionGraph::squares, numbers.as<float>() + 8}});
    CHECK(cudnn.workspace_place == scratch.as<void>());
    CHECK(left_out == bias);
    CHECK(cudnn.engine == 1);
  }
  // What won is known to the next process, which makes that plan only, or none.
  CudaContext next = Half{}.open(1, 0);
  const auto next_scope = next.scope();
  const auto again = [&](std::size_t examples, std::size_t plans) {
    const ConvolutionStep<MixedFloat16> plain(op, next, examples, ConvolutionPass::forward, true);
    cudnn.forget();
    const ConvolutionSums<MixedFloat16> sums(op, next, examples, plain);
    CHECK(cudnn.count("finalize heuristics") == 0);
    CHECK(cudnn.count("finalize plan") == plans);
    CHECK(cudnn.count("cudnnBackendExecute") == 0);
    return static_cast<bool>(sums);
  };
  CHECK_FALSE(again(3, 0));
  CHECK(again(4, 1));
  // No engine, no cuDNN, no examples: nothing, and no word of it.
  testing::LogLines log;
  const ConvolutionStep<MixedFloat16> plain(op, context, 2, ConvolutionPass::forward, true);
  CHECK_FALSE(ConvolutionSums<MixedFloat16>(op, context, 0, plain));
  cudnn.fail("cudnnBackendFinalize", CUDNN_STATUS_BAD_PARAM);
  CHECK_FALSE(ConvolutionSums<MixedFloat16>(op, context, 2, plain));
  cudnn.engines = 0;
  CHECK_FALSE(ConvolutionSums<MixedFloat16>(op, context, 2, plain));
  cudnn.engines = 3;
  CHECK_FALSE(again(2, 0));  // that there is none is known, too
  CHECK(log.lines.empty());
  // Deterministic: cuDNN's first, and nothing measured.
  CudaContext strict = Half{0, {.deterministic = true}}.open(1, 0);
  const auto strict_scope = strict.scope();
  cudnn.forget();
  CHECK(ConvolutionSums<MixedFloat16>(
      op, strict, 2, ConvolutionStep<MixedFloat16>(op, strict, 2, ConvolutionPass::forward, true)));
  CHECK(cudnn.count("cudnnBackendExecute") == 0);
}

TEST_CASE("that cuDNN cannot make its plans now is not known to the next process") {
  testing::OwnKernelCache folder;
  HostGpu gpu;
  FakeCudnn cudnn;
  const Conv2DOp op = Conv2D<8, 3>::op(shape(6, 6, 8));
  // All measured times are equal, so the first way wins.
  const auto process = [&](std::size_t refused) {
    CudaContext context = Half{}.open(1, 0);
    const auto scope = context.scope();
    const ConvolutionStep<MixedFloat16> plain(op, context, 2, ConvolutionPass::forward, true);
    cudnn.forget();
    for (std::size_t i = 1; i <= refused; ++i)
      cudnn.fail("finalize plan", CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, i);
    return static_cast<bool>(ConvolutionSums<MixedFloat16>(op, context, 2, plain));
  };
  // The fake's heuristics offer the same engines in both of their modes.
  CHECK_FALSE(process(2 * 3));
  CHECK(cudnn.count("finalize plan") == 2 * 3);
  CHECK(process(1));
  CHECK(cudnn.count("finalize plan") == 3);
}

TEST_CASE("a convolution sums up what it stores, in float16") {
  sums_up_what_it_stores<Half, MixedFloat16>(0x1p-11);
}
TEST_CASE("a convolution sums up what it stores, in bfloat16") {
  sums_up_what_it_stores<CudaBFloat16, MixedBFloat16>(0x1p-8);
}

TEST_CASE("who sums up what a normalization reads is known to the plan") {
  struct Known : Sequential<Input<6, 6, 8>, Conv2D<8, 3>, BatchNormalization<>, ReLU, Conv2D<8, 1>,
                            BatchNormalization<>> {};
  // Read twice, the model's output, other columns, other layers.
  struct Unknown
      : Sequential<Input<6, 6, 8>, Conv2D<8, 1>, Residual<BatchNormalization<>>, Conv2D<8, 1, relu>,
                   BatchNormalization<>, Conv2D<8, 1>, Flatten, BatchNormalization<>, Dense<8>,
                   BatchNormalization<>, Reshape<shape(2, 2, 2)>, Conv2D<8, 1>> {};
  const auto count = []<class N, class D>() {
    constexpr auto& plan = lockstep::detail::PlanOf<N, D>::plan;
    std::size_t gives = 0, takes = 0;
    for (int i = 0; i < plan.steps; ++i) {
      const auto& s = plan.step[static_cast<std::size_t>(i)];
      gives += s.sums_y;
      if (s.sums_by < 0) continue;
      ++takes;
      CHECK(plan.step[static_cast<std::size_t>(s.sums_by)].sums_y);
    }
    CHECK(gives == takes);
    return gives;
  };
  CHECK(count.operator()<Known, CudaFloat16>() == 2);
  CHECK(count.operator()<Known, CudaBFloat16>() == 2);
  CHECK(count.operator()<Known, Cuda>() == 0);
  CHECK(count.operator()<Known, CudaTf32>() == 0);
  CHECK(count.operator()<Known, Reference<float>>() == 0);
  CHECK(count.operator()<Unknown, CudaFloat16>() == 0);
}

TEST_CASE("normalizations behind convolutions that sum up agree with the reference") {
  HostGpu gpu;
  HostCudnn cudnn;
  toy::Machine<Net, Reference<double>> expected(6);
  const auto y = expected.forward(), state = state_of(expected), gradients = expected.gradients();
  const auto run = [&](std::int64_t most) {
    cudnn.most_with_sums = most;
    toy::Machine<Net, Half> machine(6);
    machine.engine.prepare(6);
    cudnn.with_sums = 0;
    const std::size_t launches = gpu.launches;
    const auto ours = machine.forward();
    const std::size_t made = gpu.launches - launches;
    CHECK(cudnn.with_sums == (most < 6 ? 0 : sums_of_net));
    CHECK(relative_error(ours, y) < 4e-3);
    CHECK(relative_error(state_of(machine), state) < 4e-3);
    CHECK(relative_error(machine.gradients(), gradients) < 4e-2);
    return std::pair{state_of(machine), made};
  };
  const auto [with, launches_with] = run(6);
  const auto [without, launches_without] = run(5);
  CHECK(launches_without == launches_with + sums_of_net);
  CHECK(relative_error(with, without) < 2e-3);
}

TEST_CASE("a pass that does not train sums up nothing, and adds the biases") {
  HostGpu gpu;
  HostCudnn cudnn;
  Trained<Net, OneDevice<Half>> run(OneDevice<Half>{}, 6, 6);
  CHECK(cudnn.with_sums >= sums_of_net);
  cudnn.with_sums = 0;
  const auto inputs = testing::as<float>(testing::normal_values(6 * Net::input_shape.size(), 3));
  const auto predicted = run.model.predict(std::span(inputs), 6);
  CHECK(cudnn.with_sums == 0);
  Model<Net, OneDevice<Reference<double>>, MeanSquaredError, SGD> reference(
      Net{}, OneDevice<Reference<double>>{}, MeanSquaredError{}, SGD{});
  for (const auto& p : decltype(reference)::parameters())
    reference.set_weights(p.name, testing::as<double>(run.model.weights(p.name)));
  const auto wide = testing::as<double>(inputs);
  const auto expected = reference.predict(std::span(wide), 6);
  const auto values = [](const auto& all) {
    return std::vector(all.elements().begin(), all.elements().end());
  };
  CHECK(relative_error(values(predicted), values(expected)) < 4e-3);
}

TEST_CASE("blocks that are computed again on a GPU sum up the same again") {
  HostGpu gpu;
  HostCudnn cudnn;
  struct Block : Sequential<Conv2D<8, 3, same>, BatchNormalization<>, ReLU, Conv2D<8, 3, same>,
                            BatchNormalization<>, ReLU> {};
  struct Kept : Sequential<Input<5, 5, 8>, Block, Block, Flatten, Dense<3>> {};
  struct Again : Sequential<Input<5, 5, 8>, Recompute<Block>, Recompute<Block>, Flatten, Dense<3>> {
  };
  toy::Machine<Kept, Half> kept(4);
  toy::Machine<Again, Half> again(4);
  CHECK(kept.forward() == again.forward());
  CHECK(kept.gradients() == again.gradients());
  CHECK(state_of(kept) == state_of(again));
  CHECK(cudnn.with_sums > 8);
}

TEST_CASE("replicas of which only one has sums share their statistics") {
  using Norm = BatchNormalization<synchronized, momentum(0.5)>;
  struct Shared : Sequential<Input<5, 5, 8>, Conv2D<8, 3>, Norm, ReLU, Conv2D<8, 1>, Norm,
                             GlobalAveragePooling2D, Dense<3>> {};
  HostGpu gpu;
  HostCudnn cudnn;
  cudnn.most_with_sums = 0;
  Trained<Shared, OneDevice<Half>> one(OneDevice<Half>{}, 15, 5);
  CHECK(cudnn.with_sums == 0);
  for (const std::int64_t most : {2, 3}) {
    INFO("sums for up to " << most << " examples");
    cudnn.most_with_sums = most;
    cudnn.with_sums = 0;
    Trained<Shared, Mirrored<Half>> two(Mirrored<Half>{{"/gpu:0", "/gpu:0"}}, 15, 5);
    CHECK(cudnn.with_sums > 0);
    CHECK(relative_error(two.losses, one.losses) < 4e-3);
    CHECK(relative_error(two.all(false), one.all(false)) < 4e-3);
    CHECK(relative_error(two.all(true), one.all(true)) < 4e-3);
  }
}

TEST_CASE("steps with sums are replayed as graphs with the same bits") {
  HostGpu gpu;
  HostCudnn cudnn;
  const auto train = [&](bool graphs) {
    const OneDevice<Half> device{Half{0, {.graphs = graphs, .deterministic = true}}};
    Trained<Net, OneDevice<Half>> run(device, 8, 4, 5);
    return std::pair{run.losses, run.all(true)};
  };
  const auto single = train(false);
  const std::size_t all = cudnn.with_sums;
  CHECK(all == 10 * sums_of_net);
  CHECK(train(true) == single);
  CHECK(cudnn.with_sums < all + all / 2);
  CHECK(gpu.graph_launches > 0);
}

TEST_CASE("a variance from sums in float loses the digits of the squared mean, and no others") {
  // Of channels with these means and deviation 1.
  constexpr BatchNormalizationOp op{.in = shape(64, 64, 8), .momentum = 0};
  using K = Kernel<BatchNormalizationOp, Half>;
  HostGpu gpu;
  CudaContext context = Half{}.open(1, 0);
  const auto scope = context.scope();
  testing::GroupOfOne group;
  for (const double mean : {0.0, 1.0, 10.0, 60.0}) {
    INFO("mean " << mean);
    constexpr std::size_t count = 4, rows = count * 64 * 64;
    std::vector<float16> x(rows * 8);
    const auto normal = testing::normal_values(x.size(), 7);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = float16(normal[i] + mean);
    std::vector<float> sums(24);
    for (std::size_t k = 0; k < 8; ++k)
      for (std::size_t block = 0; block < rows; block += 256) {
        float sum = 0, squares = 0;
        for (std::size_t i = block; i < block + 256; ++i) {
          const float v = x[i * 8 + k];
          sum += v;
          squares += v * v;
        }
        sums[k] += sum;
        sums[8 + k] += squares;
      }
    testing::DeviceArray<Half, float16> on_gpu(context, x), y(context, x.size());
    testing::DeviceArray<Half, float> w(
        context, std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}),
        state(context, std::vector<float>(16)), x_sums(context, sums);
    testing::DeviceArray<Half, std::byte> once(context, K::saved_once(op));
    auto prepared = K::prepare(op, context, count);
    testing::DeviceArray<Half, std::byte> scratch(context, prepared.scratch_bytes());
    const StepContext step{true, 1, 0, 0, 0, count, count, CollectiveRef(group)};
    Io<Half> io{step,     context,  count,        7,       on_gpu.data(), nullptr,
                y.data(), w.data(), state.data(), nullptr, once.data(),   scratch.data(),
                nullptr,  nullptr,  nullptr,      nullptr};
    io.x_sums = x_sums.data();
    K::forward(op, io, prepared);
    const auto moved = state.download();
    for (std::size_t k = 0; k < 8; ++k) {
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < rows; ++i) sum += x[i * 8 + k];
      for (std::size_t i = 0; i < rows; ++i) squares += std::pow(x[i * 8 + k] - sum / rows, 2);
      CHECK(std::abs(moved[k] - sum / rows) < 1e-6 * (1 + mean));
      CHECK(std::abs(moved[8 + k] / (squares / rows) - 1) < 1.5e-6 * (1 + mean * mean));
    }
  }
}
