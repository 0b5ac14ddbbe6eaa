/// \file
/// The calls that a convolution makes, with a cuDNN that records them and computes nothing.
#include "lockstep/devices/cuda/support/convolution_pass.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/devices/cuda/device.hpp"
#include "support/autotuner_times.hpp"
#include "support/fake_cudnn.hpp"
#include "support/host_gpu.hpp"
#include "support/kernel_cache.hpp"
#include "support/log_lines.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::FakeCudnn, testing::HostGpu, testing::LogLines;

namespace {

using Step = ConvolutionStep<Float32>;

/// A GPU, a cuDNN, and an empty folder for the disk cache.
struct Bench {
  Bench() { CudnnAccess::logged = false; }
  ~Bench() { close(); }
  CudaContext& open(const Cuda& device = {}) {
    close();
    context = std::make_unique<CudaContext>(device.open(1, 0));
    scope.reset(new Scope(context->scope()));
    return *context;
  }
  void close() {
    scope.reset();
    context.reset();
  }
  Step step(ConvolutionPass pass = ConvolutionPass::forward, bool bias = true, bool relu = false) {
    return Step(op, *context, 2, pass, bias, relu);
  }
  /// The cuDNN engine that runs the step's forward pass.
  int engine_of(const Step& step) {
    const TuningMemory x(*context, 2 * 72 * 4), y(*context, 2 * 64 * 4), w(*context, 76 * 4),
        packed(*context, 768), scratch(*context, step.scratch_bytes());
    step.forward(*context, x.as<float>(), w.as<float>(), w.as<float>() + 72, y.as<float>(),
                 scratch.as<std::byte>(), {packed.as<std::byte>()});
    context->synchronize();
    return cudnn.engine;
  }
  /// Sets the times in milliseconds of the candidates in the next measurement.
  void set_times(const std::vector<float>& times) {
    gpu.times.clear();
    testing::add_tuning_times(gpu.times, times);
  }

  testing::OwnKernelCache cache;
  LogLines log;
  HostGpu gpu;
  FakeCudnn cudnn;
  Conv2DOp op = Conv2D<4, 3>::op(shape(6, 6, 2));
  std::unique_ptr<CudaContext> context;
  std::unique_ptr<Scope> scope;
};

constexpr std::size_t runs = 22;  // of each candidate of up to 0.1 ms: tried, timed once, captured

}  // namespace

TEST_CASE("the fastest of cuDNN's plans runs in scratch of the requested size") {
  Bench b;
  CudaContext& context = b.open();
  {
    b.set_times({0.03f, 0.01f, 0.02f, 0.04f});
    const Step step = b.step();
    CHECK(b.gpu.times.empty());
    CHECK(b.cudnn.count("finalize plan") == 3);
    CHECK(b.cudnn.count("cudnnBackendExecute") == 3 * runs);
    REQUIRE(step.by_cudnn());
    CHECK(step.scratch_bytes() == 1000);
    b.cudnn.forget();
    // 72 weights and 4 biases, each rounded up to 256 bytes.
    CHECK(packed_bytes<Float32>(b.op) == 512 + 256);
    const TuningMemory x(context, 2 * 72 * 4), y(context, 2 * 64 * 4), w(context, 76 * 4),
        packed(context, 512 + 256), scratch(context, step.scratch_bytes());
    const std::size_t launches = b.gpu.launches;
    step.forward(context, x.as<float>(), w.as<float>(), w.as<float>() + 72, y.as<float>(),
                 scratch.as<std::byte>(), {packed.as<std::byte>()});
    CHECK(b.gpu.launches == launches + 1);  // the weights are packed into cuDNN's order
    CHECK(b.cudnn.calls() ==
          std::vector<std::string>{"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                   "cudnnBackendSetAttribute", "cudnnBackendSetAttribute",
                                   "cudnnBackendFinalize", "cudnnSetStream", "cudnnBackendExecute",
                                   "cudnnBackendDestroyDescriptor"});
    CHECK(b.cudnn.stream == context.stream());
    CHECK(b.cudnn.places ==
          std::map<std::int64_t, void*>{{ConvolutionGraph::x, x.as<void>()},
                                        {ConvolutionGraph::w, packed.as<void>()},
                                        {ConvolutionGraph::y, y.as<void>()},
                                        {ConvolutionGraph::bias, packed.as<std::byte>() + 512}});
    CHECK(b.cudnn.workspace_place == scratch.as<void>());
    CHECK(b.cudnn.engine == 1);
    // Backward finds them packed, and needs scratch only to unpack a gradient.
    const Step data = b.step(ConvolutionPass::backward_data, false);
    const Step weights = b.step(ConvolutionPass::backward_weights, false);
    CHECK(data.scratch_bytes() == 1000);
    CHECK(weights.scratch_bytes() == 768 + 1000);
    for (const bool ready : {true, false}) {
      const std::size_t before = b.gpu.launches;
      data.backward_data(context, y.as<float>(), w.as<float>(), nullptr, x.as<float>(),
                         scratch.as<std::byte>(), {packed.as<std::byte>(), ready});
      CHECK(b.gpu.launches == before + (ready ? 0 : 1));
      CHECK(b.cudnn.places.at(ConvolutionGraph::w) == packed.as<void>());
    }
  }
  b.close();
  CHECK(b.cudnn.alive() == 0);
  CHECK(b.cudnn.count("cudnnDestroy") == 1);
  CHECK(b.log.lines.empty());
}

TEST_CASE("deterministic mode uses cuDNN's first plan and measures nothing") {
  Bench b;
  b.open({0, {.deterministic = true}});
  for (const ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::backward_data,
                                     ConvolutionPass::backward_weights})
    CHECK(b.step(pass, false).by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 0);
  CHECK(b.cudnn.count("finalize plan") == 3);
}

TEST_CASE("only the fastest plan is restored, once per process") {
  Bench b;
  b.open();
  b.set_times({0.03f, 0.02f, 0.01f, 0.04f});
  std::optional<Step> first = b.step();
  const auto check_again = [&](std::size_t plans) {
    b.cudnn.forget();
    const Step again = b.step();
    CHECK(b.cudnn.count("finalize heuristics") == 0);
    CHECK(b.cudnn.count("finalize plan") == plans);
    CHECK(b.cudnn.count("cudnnBackendExecute") == 0);
    REQUIRE(again.by_cudnn());
    CHECK(again.scratch_bytes() == 1000);
    CHECK(b.engine_of(again) == 2);
    CHECK(b.cudnn.places.count(ConvolutionGraph::bias) == 1);
  };
  check_again(0);  // a layer of the same shape has it
  first.reset();
  b.open();  // as in another process: only the disk cache remains
  check_again(1);
  // Another number of examples is different work, and here our own kernel is fastest.
  b.set_times({0.03f, 0.02f, 0.02f, 0.01f});
  CHECK_FALSE(Step(b.op, *b.context, 3, ConvolutionPass::forward, true).by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 1 + 3 * runs);
  b.open();
  b.cudnn.forget();
  CHECK_FALSE(Step(b.op, *b.context, 3, ConvolutionPass::forward, true).by_cudnn());
  CHECK(b.cudnn.calls() == std::vector<std::string>{"cudnnCreate", "cudnnGetVersion"});
}

TEST_CASE("a cached plan that cannot be restored is measured again and replaced") {
  Bench b;
  b.open();
  b.cudnn.engines = 5;
  b.set_times({0.03f, 0.02f, 0.02f, 0.02f, 0.01f, 0.04f});
  b.step();
  const auto measures = [&](int winner) {
    b.open();
    b.cudnn.forget();
    CHECK(b.engine_of(b.step()) == winner);
    return b.cudnn.count("finalize heuristics") > 0;
  };
  CHECK_FALSE(measures(4));
  b.cudnn.engines = 3;  // as after an update of the driver
  b.set_times({0.03f, 0.01f, 0.02f, 0.04f});
  CHECK(measures(1));
  CHECK_FALSE(measures(1));
  const auto spoil = [&](const std::string& bytes) {
    std::size_t kept = 0;
    for (const auto& path : b.cache.files()) {
      std::ifstream file(path, std::ios::binary);
      const std::string all{std::istreambuf_iterator<char>(file), {}};
      if (all.substr(std::min<std::size_t>(64, all.size())) != "1{1}") continue;
      CHECK(std::filesystem::path(path).extension() == ".winner");
      std::ofstream(path, std::ios::binary) << bytes;
      ++kept;
    }
    CHECK(kept == 1);
  };
  for (const std::string content : {"", "7", "1{", "1{}", "1{9}", "2{1}", "our own prod"})
    for (const bool damaged : {false, true}) {
      INFO(content << ", damaged " << damaged);
      spoil(damaged ? content : KernelCache::digest(content) + content);
      b.set_times({0.03f, 0.01f, 0.02f, 0.04f});
      CHECK(measures(1));
      CHECK_FALSE(measures(1));
    }
  CHECK(b.log.lines.empty());
}

TEST_CASE("our own product is a candidate for small passes only") {
  const Conv2DOp deep = Conv2D<512, 3, same, no_bias>::op(shape(7, 7, 512)),
                 wide = Conv2D<512, 1, no_bias>::op(shape(1, 1, 16)),
                 small = Conv2D<4, 3, same, no_bias>::op(shape(6, 6, 2)),
                 resnet = Conv2D<16, 3, same, no_bias>::op(shape(32, 32, 16));
  constexpr auto forward = ConvolutionPass::forward;
  for (const ConvolutionPass pass :
       {forward, ConvolutionPass::backward_data, ConvolutionPass::backward_weights}) {
    CHECK_FALSE(product_may_win<Float32>(deep, 1, pass));
    CHECK_FALSE(product_may_win<Float32>(wide, 1, pass));
    CHECK_FALSE(product_may_win<Float32>(resnet, 128, pass));
    CHECK(product_may_win<MixedFloat16>(small, 64, pass));
  }
  // 4.7 million operations per image: at most 2e8, or 2e7 with tensor cores.
  CHECK(product_may_win<Float32>(resnet, 42, forward));
  CHECK_FALSE(product_may_win<Float32>(resnet, 43, forward));
  CHECK(product_may_win<Tf32>(resnet, 4, forward));
  CHECK_FALSE(product_may_win<Tf32>(resnet, 5, forward));
  CHECK_FALSE(product_may_win<MixedBFloat16>(resnet, 5, forward));

  Bench b;
  b.open();
  const auto measures_own = [&](const Conv2DOp& op) {
    b.cudnn.forget();
    const std::size_t launches = b.gpu.launches;
    // Backward with packed weights needs no other kernel of ours.
    CHECK(Step(op, *b.context, 1, ConvolutionPass::backward_data, false, false, true).by_cudnn());
    CHECK(b.cudnn.count("cudnnBackendExecute") > 3);
    return b.gpu.launches > launches;
  };
  CHECK_FALSE(measures_own(deep));
  CHECK(measures_own(small));
}

TEST_CASE("a pass is measured on random numbers") {
  Bench b;
  b.open();
  std::size_t looked = 0;
  const auto check_places = [&]<class A>() {
    b.cudnn.at_execute = [&, is_first = true]() mutable {
      if (!std::exchange(is_first, false)) return;
      const testing::HostGpuMemory::Open open(b.gpu.memory);
      const auto check = [&](void* place, std::size_t n) {
        const A* const p = static_cast<const A*>(place);
        std::size_t positive = 0, negative = 0, other = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const float v = static_cast<float>(p[i]);
          other += !(v >= -1 && v <= 1);
          positive += v > 0.01f;
          negative += v < -0.01f;
        }
        CHECK((10 * positive > 4 * n && 10 * negative > 4 * n && other == 0));
        ++looked;
      };
      check(b.cudnn.places.at(ConvolutionGraph::x),
            2 * 144 * 260);  // more than one period
      check(b.cudnn.places.at(ConvolutionGraph::y), 2 * 144 * 4);
      check(b.cudnn.places.at(ConvolutionGraph::w), 260 * 4);
    };
  };
  b.op = Conv2D<4, 1>::op(shape(12, 12, 260));
  check_places.operator()<float>();
  b.step();
  check_places.operator()<bfloat16>();
  ConvolutionStep<MixedBFloat16>(b.op, *b.context, 2, ConvolutionPass::forward, true);
  // Weights as if packed by another pass.
  check_places.operator()<float16>();
  ConvolutionStep<MixedFloat16>(b.op, *b.context, 2, ConvolutionPass::backward_data, false, false,
                                true);
  CHECK(looked == 9);
}

TEST_CASE("without memory for a measurement cuDNN's first plan is used and nothing is cached") {
  Bench b;
  b.open();
  b.gpu.memory.limit = 1 << 14;
  const Step first = b.step();
  CHECK(b.cudnn.count("cudnnBackendExecute") == 0);
  b.gpu.memory.limit = testing::HostGpuMemory::capacity;
  CHECK(b.engine_of(first) == 0);
  b.set_times({0.03f, 0.02f, 0.01f, 0.04f});
  CHECK(b.engine_of(b.step()) == 2);
}

TEST_CASE("a pass with packed weights is measured separately, with them packed") {
  Bench b;
  b.open();
  const auto launches_of = [&](bool packed) {
    b.cudnn.forget();
    b.set_times({0.03f, 0.01f, 0.02f, 0.04f});
    const std::size_t launches = b.gpu.launches;
    CHECK(
        Step(b.op, *b.context, 2, ConvolutionPass::backward_data, false, false, packed).by_cudnn());
    CHECK(b.cudnn.count("cudnnBackendExecute") == 3 * runs);
    return b.gpu.launches - launches;
  };
  const std::size_t own = launches_of(true);
  CHECK(launches_of(false) == own + 3 * runs);
}

TEST_CASE("without cuDNN a convolution runs on our own kernel, which is logged once") {
  Bench b;
  for (const std::size_t n : {1u, 2u}) b.cudnn.fail("cudnnCreate", CUDNN_STATUS_NOT_INITIALIZED, n);
  for (int i = 0; i < 2; ++i) {
    b.open();
    CHECK_FALSE(b.step().by_cudnn());
  }
  REQUIRE(b.log.lines.size() == 1);
  CHECK(b.log.lines[0] ==
        "cuda: opening cuDNN failed: CUDNN_STATUS_FAKE (no reason); convolutions run on lockstep's "
        "own kernels, which are slower");
  CHECK(b.cudnn.alive() == 0);
}

TEST_CASE("a bias that no engine fuses is added by our own kernel") {
  Bench b;
  CudaContext& context = b.open();
  for (const std::size_t mode : {1u, 2u})
    b.cudnn.fail("finalize heuristics", CUDNN_STATUS_NOT_SUPPORTED, mode);
  const Step step = b.step();
  REQUIRE(step.by_cudnn());
  CHECK(b.cudnn.count("finalize heuristics") == 3);
  CHECK(b.log.lines.empty());
  const TuningMemory x(context, 2 * 72 * 4), y(context, 2 * 64 * 4), w(context, 76 * 4),
      packed(context, 768), scratch(context, step.scratch_bytes());
  const std::size_t launches = b.gpu.launches;
  step.forward(context, x.as<float>(), w.as<float>(), w.as<float>() + 72, y.as<float>(),
               scratch.as<std::byte>(), {packed.as<std::byte>()});
  CHECK(b.gpu.launches == launches + 2);
  CHECK(b.cudnn.places.count(ConvolutionGraph::bias) == 0);
}

TEST_CASE("a ReLU after a convolution is fused by cuDNN, or by the kernel that adds the bias") {
  Bench b;
  CudaContext& context = b.open();
  const TuningMemory x(context, 2 * 72 * 4), y(context, 2 * 64 * 4), w(context, 76 * 4),
      packed(context, 768), scratch(context, 1000);
  const auto launches_of = [&](const Step& step, const float* bias) {
    const std::size_t launches = b.gpu.launches;
    b.cudnn.forget();
    step.forward(context, x.as<float>(), w.as<float>(), bias, y.as<float>(),
                 scratch.as<std::byte>(), {packed.as<std::byte>()});
    CHECK(b.cudnn.count("cudnnBackendExecute") == 1);
    return b.gpu.launches - launches;
  };
  for (const bool bias : {true, false}) {
    const Step fused = b.step(ConvolutionPass::forward, bias, true);
    REQUIRE(fused.by_cudnn());
    CHECK(launches_of(fused, bias ? w.as<float>() + 72 : nullptr) == 1);
    CHECK(b.cudnn.places.count(ConvolutionGraph::bias) == 1);  // of zeros without a bias
  }
  b.op = Conv2D<4, 3, same>::op(shape(4, 4, 2));
  for (const std::size_t mode : {1u, 2u})
    b.cudnn.fail("finalize heuristics", CUDNN_STATUS_NOT_SUPPORTED, mode);
  const Step parted = b.step(ConvolutionPass::forward, true, true);
  REQUIRE(parted.by_cudnn());
  CHECK(launches_of(parted, w.as<float>() + 72) == 2);
  CHECK(b.log.lines.empty());
}

TEST_CASE("a pass that cuDNN refuses runs on our own kernel, and the log gives the reason") {
  Bench b;
  b.open();
  b.cudnn.engines = 0;
  CHECK_FALSE(b.step().by_cudnn());
  b.cudnn.engines = 3;
  b.cudnn.fail("finalize plan", CUDNN_STATUS_INTERNAL_ERROR);  // one engine only
  CHECK(b.step(ConvolutionPass::backward_data, false).by_cudnn());
  b.cudnn.fail("cudnnBackendFinalize", CUDNN_STATUS_BAD_PARAM);
  CHECK_FALSE(b.step(ConvolutionPass::backward_weights, false).by_cudnn());
  REQUIRE(b.log.lines.size() == 2);
  CHECK(b.log.lines[0] ==
        "cuda: cuDNN refuses a convolution (2 x (6, 6, 2) -> (4, 4, 4), kernel 3x3, strides 1x1, "
        "dilation 1x1, padding 0x0, bias, float32): no engine supports it; lockstep's "
        "own kernel runs it and may be slower");
  CHECK_THAT(b.log.lines[1],
             Catch::Matchers::ContainsSubstring("describing a tensor to cuDNN failed"));
}

TEST_CASE("a plan that fails during measurement is skipped") {
  Bench b;
  b.open();
  b.set_times({0.01f, 0.01f, 0.05f});  // of the candidates that run
  b.cudnn.fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  const Step step = b.step();
  CHECK(step.by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 1 + 2 * runs);
  CHECK(b.engine_of(step) == 1);
}

TEST_CASE("if all plans fail, our own kernel runs a pass of any size, with a warning") {
  Bench b;
  b.open();
  b.op = Conv2D<256, 1, no_bias>::op(shape(1, 1, 4));
  for (const std::size_t n : {1u, 2u, 3u})
    b.cudnn.fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED, n);
  CHECK_FALSE(b.step(ConvolutionPass::forward, false).by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 3);
  REQUIRE(b.log.lines.size() == 1);
  CHECK_THAT(b.log.lines[0],
             Catch::Matchers::ContainsSubstring("running a convolution failed: CUDNN_STATUS_FAKE"));
}

TEST_CASE("a convolution that fails at run time is one sentence, and steps become graphs") {
  Bench b;
  CudaContext& context = b.open();
  const Step y_step = b.step(), dw_step = b.step(ConvolutionPass::backward_weights, false);
  REQUIRE((y_step.by_cudnn() && dw_step.by_cudnn()));
  const TuningMemory x(context, 2 * 72 * 4), y(context, 2 * 64 * 4), w(context, 76 * 4),
      packed(context, 768),
      scratch(context, std::max(y_step.scratch_bytes(), dw_step.scratch_bytes()));
  const auto train = [&] {
    y_step.forward(context, x.as<float>(), w.as<float>(), w.as<float>() + 72, y.as<float>(),
                   scratch.as<std::byte>(), {packed.as<std::byte>()});
    dw_step.backward_weights(context, x.as<float>(), y.as<float>(), w.as<float>(),
                             scratch.as<std::byte>());
    context.synchronize();
  };
  context.synchronize();
  b.cudnn.forget();
  b.cudnn.fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  CHECK_THROWS_WITH(train(), "cuda: running a convolution failed: CUDNN_STATUS_FAKE (no reason)");
  context.commands().abandon();
  b.cudnn.forget();
  train();  // call by call
  train();  // captured
  CHECK(b.cudnn.count("cudnnBackendExecute") == 4);
  const std::size_t graphs = b.gpu.graph_launches;
  train();
  CHECK(b.cudnn.count("cudnnBackendExecute") == 4);
  CHECK(b.gpu.graph_launches == graphs + 1);
}
