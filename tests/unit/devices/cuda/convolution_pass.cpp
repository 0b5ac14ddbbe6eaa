/// \file
/// Which calls a convolution makes, with a cuDNN that records them and computes nothing.
#include "lockstep/devices/cuda/kernels/convolution_pass.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <memory>

#include "lockstep/devices/cuda/device.hpp"
#include "support/fake_cudnn.hpp"
#include "support/host_gpu.hpp"
#include "support/kernel_cache.hpp"
#include "support/log_lines.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::FakeCudnn, testing::HostGpu, testing::LogLines;

namespace {

using Step = ConvolutionStep<Float32>;

/// A GPU, a cuDNN, and a folder of its own for what is kept on disk.
struct Bench {
  Bench() { CudnnAccess::said = false; }
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

  testing::OwnKernelCache cache;
  LogLines log;
  HostGpu gpu;
  FakeCudnn cudnn;
  Conv2DOp op = Conv2D<4, 3>::op(shape(6, 6, 2));
  std::unique_ptr<CudaContext> context;
  std::unique_ptr<Scope> scope;
};

constexpr std::size_t runs = 6;  // of each way, when it is measured

}  // namespace

TEST_CASE("the fastest of cuDNN's plans runs, in scratch of the size that was asked for") {
  Bench b;
  CudaContext& context = b.open();
  {
    b.gpu.times = {3, 1, 2, 4};
    const Step step = b.step();
    CHECK(b.cudnn.count("finalize plan") == 3);
    CHECK(b.cudnn.count("cudnnBackendExecute") == 3 * runs);
    REQUIRE(step.by_cudnn());
    CHECK(step.scratch_bytes() == 1000);
    b.cudnn.forget();
    // 72 weights and 4 of the bias, each rounded to 256 bytes.
    CHECK(packed_bytes<Float32>(b.op) == 512 + 256);
    const TuningMemory x(context, 2 * 72 * 4), y(context, 2 * 64 * 4), w(context, 76 * 4),
        packed(context, 512 + 256), scratch(context, step.scratch_bytes());
    const std::size_t launches = b.gpu.launches;
    step.forward(context, x.as<float>(), w.as<float>(), w.as<float>() + 72, y.as<float>(),
                 scratch.as<std::byte>(), {packed.as<std::byte>()});
    CHECK(b.gpu.launches == launches + 1);  // the weights are brought into cuDNN's order
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
    // Backward finds them there, and asks for scratch only to bring a gradient out of that order.
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

TEST_CASE("a deterministic GPU takes cuDNN's first plan, and measures nothing") {
  Bench b;
  b.open({0, {.deterministic = true}});
  for (const ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::backward_data,
                                     ConvolutionPass::backward_weights})
    CHECK(b.step(pass, false).by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 0);
}

TEST_CASE("what won is known in this process and in the next one") {
  Bench b;
  b.open();
  b.gpu.times = {3, 2, 1, 4};
  CHECK(b.step().by_cudnn());
  b.cudnn.forget();
  CHECK(b.step().by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 0);
  b.open();  // as another process: only the disk knows
  CHECK(b.step().by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 0);
  // Another number of examples is another work, and here our own kernel is the fastest.
  b.gpu.times = {3, 2, 2, 1};
  CHECK_FALSE(Step(b.op, *b.context, 3, ConvolutionPass::forward, true).by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 3 * runs);
}

TEST_CASE("a pass that finds weights packed is measured so, as work of its own") {
  Bench b;
  b.open();
  const auto launches_of = [&](bool packed) {
    b.cudnn.forget();
    b.gpu.times = {3, 1, 2, 4};
    const std::size_t launches = b.gpu.launches;
    CHECK(
        Step(b.op, *b.context, 2, ConvolutionPass::backward_data, false, false, packed).by_cudnn());
    CHECK(b.cudnn.count("cudnnBackendExecute") == 3 * runs);
    return b.gpu.launches - launches;
  };
  const std::size_t own = launches_of(true);
  CHECK(launches_of(false) == own + 3 * runs);
}

TEST_CASE("without cuDNN a convolution runs on our own kernel, which is said once") {
  Bench b;
  for (const std::size_t n : {1u, 2u}) b.cudnn.fail("cudnnCreate", CUDNN_STATUS_NOT_INITIALIZED, n);
  for (int i = 0; i < 2; ++i) {
    b.open();
    CHECK_FALSE(b.step().by_cudnn());
  }
  REQUIRE(b.log.lines.size() == 1);
  CHECK(b.log.lines[0] ==
        "cuda: opening cuDNN failed: CUDNN_STATUS_FAKE (no reason); convolutions run on kernels of "
        "lockstep's own, which are slower");
  CHECK(b.cudnn.alive() == 0);
}

TEST_CASE("a bias that no engine adds is added by a kernel of our own") {
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

TEST_CASE("a ReLU behind a convolution is cuDNN's, or that of the kernel which adds the bias") {
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
    CHECK(b.cudnn.places.count(ConvolutionGraph::bias) == 1);  // of zeros, if there is none
  }
  b.op = Conv2D<4, 3, same>::op(shape(4, 4, 2));
  for (const std::size_t mode : {1u, 2u})
    b.cudnn.fail("finalize heuristics", CUDNN_STATUS_NOT_SUPPORTED, mode);
  const Step parted = b.step(ConvolutionPass::forward, true, true);
  REQUIRE(parted.by_cudnn());
  CHECK(launches_of(parted, w.as<float>() + 72) == 2);
  CHECK(b.log.lines.empty());
}

TEST_CASE("what cuDNN refuses runs on our own kernel, with a line that says why") {
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
        "dilation 1x1, padding 0x0, float32): it has no engine for it; a kernel of lockstep's own "
        "does it, maybe slower");
  CHECK_THAT(b.log.lines[1],
             Catch::Matchers::ContainsSubstring("describing a tensor to cuDNN failed"));
}

TEST_CASE("a plan that fails when it is measured is passed over") {
  Bench b;
  b.open();
  b.gpu.times = {1, 1, 5};  // of the ways that run
  b.cudnn.fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  CHECK(b.step().by_cudnn());
  CHECK(b.cudnn.count("cudnnBackendExecute") == 1 + 2 * runs);
}

TEST_CASE("a convolution that fails while it runs is one sentence, and steps become graphs") {
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
  train();  // recorded
  CHECK(b.cudnn.count("cudnnBackendExecute") == 4);
  const std::size_t graphs = b.gpu.graph_launches;
  train();
  CHECK(b.cudnn.count("cudnnBackendExecute") == 4);
  CHECK(b.gpu.graph_launches == graphs + 1);
}
