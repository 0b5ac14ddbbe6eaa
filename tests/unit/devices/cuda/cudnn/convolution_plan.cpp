/// \file
/// The real cuDNN without a GPU: it accepts the graphs of all passes and has plans for an H200.
#include "lockstep/devices/cuda/cudnn/convolution_plan.hpp"

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/devices/cuda/support/convolution_pass.hpp"
#include "support/convolutions.hpp"
#include "support/h200.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::describe, testing::h200_description;

namespace {

struct Case {
  Conv2DOp op;
  int count;
};

/// The convolutions of the tutorials' network and of ResNet-56, an unaligned one, and
/// one of ResNeXt-50.
std::vector<Case> cases() {
  std::vector<Case> all{{Conv2D<32, 3>::op(shape(28, 28, 1)), 64},
                        {Conv2D<7, 3>::op(shape(5, 5, 3)), 3},  // not aligned
                        {Conv2D<128, 3, same, groups(32)>::op(shape(28, 28, 128)), 16}};
  for (const Conv2DOp& op : {Conv2D<16, 3, same, no_bias>::op(shape(32, 32, 3)),
                             Conv2D<16, 3, same, no_bias>::op(shape(32, 32, 16)),
                             Conv2D<32, 3, same, strides(2), no_bias>::op(shape(32, 32, 16)),
                             Conv2D<32, 1, same, strides(2), no_bias>::op(shape(32, 32, 16)),
                             Conv2D<32, 3, same, no_bias>::op(shape(16, 16, 32)),
                             Conv2D<64, 3, same, strides(2), no_bias>::op(shape(16, 16, 32)),
                             Conv2D<64, 1, same, strides(2), no_bias>::op(shape(16, 16, 32)),
                             Conv2D<64, 3, same, no_bias>::op(shape(8, 8, 64))})
    all.push_back({op, 128});
  return all;
}

std::vector<CudnnPlan> plans_of(const CudnnTarget& target, const Case& c, int pass,
                                const CudnnRules& rules, ConvolutionTail tail) {
  return make_plans(
      target,
      ConvolutionGraph(target, c.op, c.count, static_cast<ConvolutionPass>(pass), rules, tail),
      rules, 8);
}

}  // namespace

TEST_CASE("cuDNN has plans for the convolutions of the tutorials and of ResNet-56 on an H200") {
  if (const std::string why = testing::why_no_cudnn(); !why.empty()) SKIP(why);
  const CudnnTarget target{h200_description()};
  for (const CudnnRules& rules : {cudnn_rules<Float32>, cudnn_rules<Tf32>,
                                  cudnn_rules<MixedBFloat16>, cudnn_rules<MixedFloat16>})
    for (const Case& c : cases())
      for (int pass = 0; pass < 3; ++pass)
        for (const bool rectified : {false, true}) {
          if (rectified && pass > 0) continue;
          INFO(describe(c.op) << ", pass " << pass << ", type " << rules.type << ", rounds "
                              << rules.rounds_inputs << ", ReLU " << rectified);
          const ConvolutionTail tail = rectified                ? ConvolutionTail::bias_and_relu
                                       : pass == 0 && c.op.bias ? ConvolutionTail::bias
                                                                : ConvolutionTail::none;
          const auto plans = plans_of(target, c, pass, rules, tail);
          CHECK(!plans.empty());
          for (const CudnnPlan& plan : plans) CHECK(plan.workspace >= 0);
          CudnnRules strict = rules;
          strict.deterministic = true;
          CHECK(!plans_of(target, c, pass, strict, tail).empty());
        }
}

TEST_CASE("cuDNN restores a plan from its JSON for the same version, driver and GPU only") {
  if (const std::string why = testing::why_no_cudnn(); !why.empty()) SKIP(why);
  const std::string described = h200_description();
  const CudnnTarget target{described};
  std::string json;
  for (const CudnnRules& rules : {cudnn_rules<Float32>, cudnn_rules<MixedFloat16>})
    for (const Case& c : cases())
      for (int pass = 0; pass < 3; ++pass) {
        INFO(describe(c.op) << ", pass " << pass << ", type " << rules.type);
        const ConvolutionTail tail =
            pass == 0 && c.op.bias ? ConvolutionTail::bias_and_relu : ConvolutionTail::none;
        for (const CudnnPlan& plan : plans_of(target, c, pass, rules, tail)) {
          json = plan.json();
          REQUIRE(!json.empty());
          const auto again = read_plan(target, json);
          REQUIRE(again);
          CHECK(again->json() == json);
          CHECK(again->workspace == plan.workspace);
        }
      }
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  for (const auto& [from, to] :
       {std::pair{"\"driverVer\": 13000", "\"driverVer\": 12080"},
        std::pair{"\"multiProcessorCount\": 132", "\"multiProcessorCount\": 114"}}) {
    if (described.find(from) == std::string::npos) continue;  // not in this description
    CHECK_FALSE(read_plan(CudnnTarget{changed(described, from, to)}, json));
  }
  CHECK_FALSE(read_plan(target, changed(json, "\"cudnnVersion\":", "\"cudnnVersion\":1")));
  CHECK_FALSE(read_plan(target, changed(json, "\"engineId\":", "\"engineId\":9")));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, json.size() / 2, json.size() - 1})
    CHECK_FALSE(read_plan(target, json.substr(0, size)));
}

TEST_CASE("single precision allows no engine that uses tensor cores") {
  const std::vector<cudnnBackendNumericalNote_t> none,
      tensor_core{CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
      unordered{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
      reduced{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
  CHECK(cudnn_rules<Float32>.allow(none));
  CHECK_FALSE(cudnn_rules<Float32>.allow(tensor_core));
  CHECK(cudnn_rules<Tf32>.allow(tensor_core));
  CHECK(cudnn_rules<MixedBFloat16>.allow(tensor_core));
  CHECK_FALSE(cudnn_rules<MixedBFloat16>.allow(reduced));
  CHECK(cudnn_rules<MixedFloat16>.allow(tensor_core));
  CHECK_FALSE(cudnn_rules<MixedFloat16>.allow(reduced));
  CHECK(cudnn_rules<MixedFloat16>.type == CUDNN_DATA_HALF);
  CHECK(cudnn_rules<Float32>.allow(unordered));
  CudnnRules strict = cudnn_rules<Float32>;
  strict.deterministic = true;
  CHECK_FALSE(strict.allow(unordered));
}

TEST_CASE("a refusal by cuDNN is one sentence that names the object described") {
  if (const std::string why = testing::why_no_cudnn(); !why.empty()) SKIP(why);
  CHECK_THROWS_WITH(CudnnTarget(std::string_view("{}")),
                    Catch::Matchers::StartsWith(
                        "cuda: describing a GPU to cuDNN failed: CUDNN_STATUS_BAD_PARAM ("));
  const CudnnTarget target{h200_description()};
  Conv2DOp op = Conv2D<8, 3>::op(shape(9, 9, 4));
  op.dilation = {0, 1};
  CHECK_THROWS_WITH(
      ConvolutionGraph(target, op, 2, ConvolutionPass::forward, {}, ConvolutionTail::none),
      Catch::Matchers::StartsWith("cuda: describing a convolution to cuDNN failed"));
}
