/// \file
/// The host stand-in for a GPU detects the faults that it is meant to detect.
#include "support/host_gpu.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/devices/cuda/device.hpp"
#include "support/run_kernel.hpp"

using namespace lockstep;
using detail::cuda::Grid;
using detail::cuda::Source;

namespace {

constexpr Source turned{"turned", R"cuda(
// Each block reverses 64 numbers.
KERNEL(with_barrier)(int* x) {
  __shared__ int kept[64];
  const int i = threadIdx.x;
  kept[i] = x[blockIdx.x * 64 + i];
  __syncthreads();
  x[blockIdx.x * 64 + i] = kept[63 - i];
}
KERNEL(without_barrier)(int* x) {
  __shared__ int kept[64];
  const int i = threadIdx.x;
  kept[i] = x[blockIdx.x * 64 + i];
  x[blockIdx.x * 64 + i] = kept[63 - i];
}
)cuda"};

std::vector<int> run(const char* entry) {
  testing::HostGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  std::vector<int> x(640);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i);
  testing::DeviceArray<Cuda, int> on_gpu(context, x);
  context.launch(context.kernel(turned, entry, {}), Grid{{10, 1, 1}, {64, 1, 1}}, on_gpu.data());
  return on_gpu.download();
}
std::vector<int> expected() {
  std::vector<int> x(640);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i / 64 * 64 + 63 - i % 64);
  return x;
}

std::string refusal(const Source& source) {
  testing::HostGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  try {
    context.kernel(source, "kernel", {});
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "";
}

/// Sets an environment variable while it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* const v = std::getenv(name)) before_ = v;
    setenv(name, value, 1);
  }
  ~Environment() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("a missing barrier shows as a wrong result") {
  CHECK(run("with_barrier") == expected());
  CHECK(run("without_barrier") != expected());
}

TEST_CASE("a text that does not compile is refused with the compiler's message") {
  const std::string message =
      refusal({"broken", "KERNEL(kernel)(float* x) { x[0] = nonsense(1); }"});
  CHECK(message.starts_with("cuda: the kernels of broken do not compile for sm_90a: "));
  CHECK(message.find("nonsense") != std::string::npos);
}

TEST_CASE("compiled texts are cached for machines without the compilers") {
  // lockstep's own cache is off, and compiled texts of the host go to a folder.
  const Environment cache("LOCKSTEP_KERNEL_CACHE", "");
  const auto folder =
      std::filesystem::temp_directory_path() / ("lockstep-store-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const Source broken{"broken, kept", "KERNEL(kernel)(float* x) { x[0] = nonsense(2); }"};
  {
    const Environment store("LOCKSTEP_HOST_GPU_STORE", folder.c_str());
    const std::string message = refusal(broken);
    CHECK(run("with_barrier") == expected());
    const Environment path("PATH", "/nowhere");
    CHECK(run("with_barrier") == expected());
    CHECK(refusal(broken) == message);
    const std::string missing = refusal({"new", "KERNEL(kernel)(float* x) { x[0] = 3; }"});
    CHECK(missing.starts_with("cuda: the kernels of new do not compile for sm_90"));
  }
  const Environment store("LOCKSTEP_HOST_GPU_STORE", folder.c_str());
  CHECK(refusal({"new", "KERNEL(kernel)(float* x) { x[0] = 3; }"}).empty());
  std::filesystem::remove_all(folder);
}

TEST_CASE("code that only the host compiler accepts is refused for GPUs") {
  try {
    detail::cuda::Nvrtc::load();
  } catch (const DeviceError&) {
    SKIP("there is no NVRTC");
  }
  CHECK(refusal({"hosts only",
                 "KERNEL(kernel)(float* x) { x[0] = __builtin_popcountll(7); strlen(\"\"); }"}) !=
        "");
}

TEST_CASE("GPU memory is inaccessible to the host, and a thread needs its context") {
  testing::HostGpu gpu;
  auto context = Cuda{}.open(1, 0);
  CHECK_THROWS_AS(context.allocate(64), DeviceError);
  const auto scope = context.scope();
  std::byte* const p = context.allocate(64);
  context.clear(p, 64);
  context.synchronize();
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  // The system call returns EFAULT where an access would crash.
  CHECK(write(pipe_ends[1], p, 1) == -1);
  CHECK(errno == EFAULT);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  context.release(p, 64);
}
