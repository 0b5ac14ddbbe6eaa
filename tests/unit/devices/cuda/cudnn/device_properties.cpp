/// \file
/// cuDNN's description of a GPU. On a machine with a GPU it is written to a file, from which
/// machines without one make plans.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/devices/cuda/cudnn/convolution_plan.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/libraries/access.hpp"
#include "support/h200.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;

namespace {

std::string json_of(Descriptor&& described) {
  return described.finalize().characters(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
}
std::string description(cudnnHandle_t handle) {
  return json_of(std::move(Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a GPU")
                               .set(CUDNN_ATTR_DEVICEPROP_HANDLE, handle)));
}
std::string description(std::string_view json) {
  return json_of(std::move(Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a GPU")
                               .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json)));
}

/// The workspaces of cuDNN's plans for one convolution.
std::vector<std::int64_t> plans(const std::string& json) {
  const CudnnTarget target{json};
  const CudnnRules rules{.type = CUDNN_DATA_BFLOAT16};
  const Conv2DOp op = Conv2D<16, 3, same>::op(shape(32, 32, 16));
  std::vector<std::int64_t> all;
  for (const CudnnPlan& plan :
       make_plans(target,
                  ConvolutionGraph(target, op, 128, ConvolutionPass::forward, rules,
                                   ConvolutionTail::none),
                  rules, 8))
    all.push_back(plan.workspace);
  return all;
}

/// "NVIDIA H200" becomes "h200".
std::string short_name(std::string name) {
  if (name.starts_with("NVIDIA ")) name.erase(0, 7);
  for (char& c : name)
    c = std::isalnum(static_cast<unsigned char>(c)) != 0
            ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
            : '_';
  return name;
}

}  // namespace

TEST_CASE("the file of a GPU's description is named after the GPU") {
  CHECK(short_name("NVIDIA H200") == "h200");
  CHECK(short_name("NVIDIA GeForce RTX 4090") == "geforce_rtx_4090");
}

TEST_CASE("cuDNN's description of a described GPU yields the same plans") {
  if (const std::string why = testing::why_no_cudnn(); !why.empty()) SKIP(why);
  const std::string first = testing::h200_description(), second = description(first);
  CHECK(second.find("H200") != std::string::npos);
  CHECK(description(second) == second);
  CHECK(!plans(first).empty());
  CHECK(plans(second) == plans(first));
}

TEST_CASE("a GPU's description is written to a file, and cuDNN makes plans from it") {
  if (!testing::has_gpu()) SKIP("this machine has no GPU that lockstep can use");
  if (const std::string why = testing::why_no_cudnn(); !why.empty()) SKIP(why);
  CudaContext context = Cuda{0}.open(1, 0);
  const auto scope = context.scope();
  const std::string json = description(context.handle<CudnnAccess>().handle());
  CHECK(!plans(json).empty());

  const std::string name = short_name(context.gpu().name);
  const auto path = std::filesystem::current_path() / (name + ".deviceprop.json");
  std::ofstream(path) << json;
  REQUIRE(std::filesystem::file_size(path) == json.size());
  WARN("cuDNN's description of " << context.gpu().name << " is in " << path.string());
  if (name == "h200")
    WARN("so that machines without one plan by it: cp '"
         << path.string() << "' '"
         << std::filesystem::path(testing::h200_file).lexically_normal().string() << "'");
}
