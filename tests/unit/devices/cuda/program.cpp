/// \file
#include "lockstep/devices/cuda/program.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/host_gpu.hpp"
#include "support/kernel_cache.hpp"
#include "support/refusal.hpp"
#include "support/run_kernel.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::refusal;

namespace {

/// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const v = std::getenv(name)) before_ = v;
    setenv(name, value, 1);
  }
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

constexpr Source three_entries{"three entries", R"cuda(
KERNEL(plus_number)(int* x) { x[INDEX] += NUMBER; }
KERNEL(minus_number)(int* x) { x[INDEX] -= NUMBER; }
KERNEL(times_number)(int* x) { x[INDEX] *= NUMBER; }
)cuda"};

/// The texts and architectures that the compiler received.
std::vector<std::string> texts, architectures;
nvrtcResult (*create)(nvrtcProgram*, const char*, const char*, int, const char* const*,
                      const char* const*) = nullptr;

/// The compiler of `table`, recording the texts.
Nvrtc noting(Nvrtc table) {
  texts.clear();
  create = table.nvrtcCreateProgram;
  table.nvrtcCreateProgram = [](nvrtcProgram* p, const char* text, const char* name, int n,
                                const char* const* headers, const char* const* names) {
    texts.push_back(text);
    return create(p, text, name, n, headers, names);
  };
  return table;
}

/// A compiler that compiles nothing and records the architectures.
Nvrtc paper_nvrtc() {
  architectures.clear();
  Nvrtc table;
  table.nvrtcVersion = [](int* major, int* minor) {
    return *major = 13, *minor = 0, NVRTC_SUCCESS;
  };
  table.nvrtcCreateProgram = [](nvrtcProgram*, const char*, const char*, int, const char* const*,
                                const char* const*) { return NVRTC_SUCCESS; };
  table.nvrtcDestroyProgram = [](nvrtcProgram*) { return NVRTC_SUCCESS; };
  table.nvrtcCompileProgram = [](nvrtcProgram, int n, const char* const* options) {
    for (int i = 0; i < n; ++i)
      if (std::string_view(options[i]).starts_with("--gpu-architecture="))
        architectures.push_back(options[i] + std::string_view("--gpu-architecture=").size());
    return NVRTC_SUCCESS;
  };
  table.nvrtcGetCUBINSize = [](nvrtcProgram, std::size_t* n) { return *n = 1, NVRTC_SUCCESS; };
  table.nvrtcGetCUBIN = [](nvrtcProgram, char* to) { return *to = 'x', NVRTC_SUCCESS; };
  return table;
}
Driver paper_driver() {
  Driver table;
  table.cuModuleLoadData = [](CUmodule*, const void*) { return CUDA_SUCCESS; };
  table.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
  table.cuModuleGetFunction = [](CUfunction*, CUmodule, const char*) { return CUDA_SUCCESS; };
  return table;
}

struct SmallCnn
    : Sequential<Input<6, 6, 3>, Conv2D<8, 3, Padding::same>, BatchNormalization<>, ReLU,
                 MaxPooling2D<2>, Flatten, Dense<12>, ReLU, Dropout<0.5>, Dense<4>> {};

}  // namespace

TEST_CASE("the entries of a text are compiled and loaded together") {
  const Variable no_cache("LOCKSTEP_KERNEL_CACHE", "");
  testing::HostGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  testing::DeviceArray<Cuda, int> x(context, std::vector<int>(8, 10));
  const auto run = [&](const char* entry, int number) {
    context.launch(context.kernel(three_entries, entry, {{"NUMBER", number}}),
                   Grid{{1, 1, 1}, {8, 1, 1}}, x.data());
    return x.download()[7];
  };
  CHECK(run("plus_number", 3) == 13);
  CHECK(run("minus_number", 3) == 10);
  CHECK(run("times_number", 3) == 30);
  CHECK(run("plus_number", 3) == 33);
  CHECK(gpu.compiled == 1);
  CHECK(gpu.modules == 1);
  CHECK(run("minus_number", 4) == 29);
  CHECK(run("times_number", 4) == 116);
  CHECK(gpu.compiled == 2);
  CHECK(gpu.modules == 2);
  CHECK(refusal<DeviceError>([&] {
          run("missing", 4);
        }).starts_with("cuda: finding a kernel failed"));
  CHECK(run("plus_number", 4) == 120);
  CHECK(gpu.modules == 2);
}

TEST_CASE("a model compiles and loads each of its texts once") {
  const Variable no_cache("LOCKSTEP_KERNEL_CACHE", ""), host_alone("LOCKSTEP_WITHOUT_NVRTC", "1");
  testing::HostGpu gpu;
  const Nvrtc table = noting(EntryPoints<Nvrtc>::get());
  const EntryPoints<Nvrtc>::Override instead(table);
  Model model{SmallCnn{}, OneDevice<Cuda>{}, SparseCategoricalCrossentropy{.from_logits = true},
              Adam{}, Accuracy{}};
  const std::vector<float> images(std::size_t{8} * 6 * 6 * 3, 0.5f);
  const std::vector<int> labels(8, 1);
  const auto data = tensors(images, shape(6, 6, 3), labels) | batch(4);
  model.fit(data, data, {.epochs = 2, .progress = ProgressStyle::none});
  CHECK(texts.size() > 5);
  CHECK(gpu.compiled == texts.size());
  CHECK(gpu.modules == texts.size());
  std::sort(texts.begin(), texts.end());
  CHECK(std::adjacent_find(texts.begin(), texts.end()) == texts.end());
}

TEST_CASE("kernels are compiled for the GPU's architecture, with Hopper's extensions on Hopper") {
  const Variable no_cache("LOCKSTEP_KERNEL_CACHE", "");
  const Nvrtc nvrtc_table = paper_nvrtc();
  const Driver driver_table = paper_driver();
  const EntryPoints<Nvrtc>::Override nvrtcs(nvrtc_table);
  const EntryPoints<Driver>::Override drivers(driver_table);
  for (const int capability : {75, 80, 89, 90, 100, 120}) {
    Programs programs(capability);
    programs.find(three_entries, "plus_number", {});
  }
  CHECK(architectures ==
        std::vector<std::string>{"sm_75", "sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"});
}

TEST_CASE("a damaged or unwritable kernel cache is the same as an empty one") {
  const testing::OwnKernelCache folder;
  const KernelCache kernels(".test");
  CHECK_FALSE(kernels.find("key"));
  kernels.store("key", "machine code");
  CHECK(kernels.find("key") == "machine code");
  REQUIRE(folder.files().size() == 1);
  const std::filesystem::path path = folder.files().front();
  const auto put = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  };
  std::string whole;
  std::getline(std::ifstream(path, std::ios::binary), whole);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    CHECK_FALSE(kernels.find("key"));
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    put(changed);
    CHECK_FALSE(kernels.find("key"));
  }
  kernels.store("key", "new code");
  CHECK(kernels.find("key") == "new code");

  put("");  // a file in the way of a folder, also for the superuser
  const Variable nowhere("LOCKSTEP_KERNEL_CACHE", (path.string() + "/below").c_str());
  const KernelCache unwritable(".test");
  unwritable.store("key", "machine code");
  CHECK_FALSE(unwritable.find("key"));
}

TEST_CASE("processes that fill one kernel cache at once read whole entries only") {
  const testing::OwnKernelCache folder;
  const auto content = [](int i) {
    return std::string(static_cast<std::size_t>(1 + i * 9973 % 20'000), static_cast<char>('a' + i));
  };
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    children.push_back(::fork());
    REQUIRE(children.back() >= 0);
    if (children.back() > 0) continue;
    const KernelCache kernels(".test");
    for (int i = 0; i < 60; ++i) {
      kernels.store("key", content((child + i) % 20));
      const auto found = kernels.find("key");
      if (found && *found != content(found->front() - 'a')) ::_exit(1);
    }
    ::_exit(kernels.find("key") ? 0 : 2);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(folder.files().size() == 1);  // no temporary file is left
}
