/// \file
#include "lockstep/devices/cuda/device.hpp"

#include <dlfcn.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/recorder.hpp"
#include "support/refusal.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::Recorder, testing::refusal;

namespace {

int gpu_count = 2, capability = 90;
CUresult started = CUDA_SUCCESS;

/// A machine whose GPUs exist only in a fake driver.
Driver fake_driver() {
  Driver table;
  table.cuGetErrorName = [](CUresult, const char** s) { return *s = "CUDA_ERROR_X", CUDA_SUCCESS; };
  table.cuGetErrorString = [](CUresult, const char** s) { return *s = "it broke", CUDA_SUCCESS; };
  table.cuInit = [](unsigned) { return started; };
  table.cuDeviceGetCount = [](int* n) { return *n = gpu_count, CUDA_SUCCESS; };
  table.cuDeviceGet = [](CUdevice* d, int i) { return *d = i, CUDA_SUCCESS; };
  table.cuDeviceGetName = [](char* name, int, CUdevice d) {
    const std::string text = "Paper " + std::to_string(d);
    text.copy(name, text.size());
    return CUDA_SUCCESS;
  };
  table.cuDeviceGetUuid = [](CUuuid* u, CUdevice) {
    for (int i = 0; i < 16; ++i) u->bytes[i] = static_cast<char>(0x10 * i + 1);
    return CUDA_SUCCESS;
  };
  table.cuDeviceTotalMem = [](std::size_t* n, CUdevice) {
    return *n = std::size_t{3} << 30, CUDA_SUCCESS;
  };
  table.cuDeviceGetAttribute = [](int* v, CUdevice_attribute a, CUdevice) {
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability / 10
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability % 10
                                                             : 100;
    return CUDA_SUCCESS;
  };
  table.cuMemGetInfo = [](std::size_t* free, std::size_t* all) {
    *free = std::size_t{1} << 20;
    return *all = std::size_t{3} << 30, CUDA_SUCCESS;
  };
  table.cuMemHostAlloc = [](void** p, std::size_t n, unsigned) {
    return *p = std::malloc(n), CUDA_SUCCESS;
  };
  table.cuMemFreeHost = [](void* p) { return std::free(p), CUDA_SUCCESS; };
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
  return table;
}

struct Fixture {
  Fixture() {
    gpu_count = 2;
    capability = 90;
    started = CUDA_SUCCESS;
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  Recorder recorder;
  Driver table = fake_driver();
  EntryPoints<Driver>::Override instead{table};
};

bool has_driver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

void open(const Cuda& device) { device.open(1, 0); }

struct Wide : Sequential<Input<1000>, ReLU> {};

}  // namespace

TEST_CASE("a GPU is named as in TensorFlow or by its number") {
  CHECK(Cuda{"/gpu:1"} == Cuda{1});
  CHECK(Cuda{"gpu:0"} == Cuda{0});
  CHECK(Cuda{"GPU:12"} == Cuda{12});
  CHECK(Cuda{"/device:GPU:2"} == Cuda{2});
  CHECK(Cuda{"3"} == Cuda{3});
  for (const char* const name : {"", "/cpu:0", "gpu", "gpu:", "/gpu:-1", "gpu:1x", "gpu: 1"})
    CHECK(refusal<UsageError>([&] { Cuda{name}; }) ==
          std::string("cuda: '") + name + "' does not name a GPU; write \"/gpu:0\", or its number");
}

TEST_CASE_METHOD(Fixture, "a GPU that cannot be used is refused in one sentence") {
  SECTION("no such GPU") {
    const std::string message = refusal<UsageError>([] { open(Cuda{2}); });
    CHECK(
        message.starts_with("cuda: there is no gpu:2 among 2 GPUs:\ngpu:0  Paper 0  sm_90  3072 "
                            "MiB  GPU-01112131-4151-6171-8191-a1b1c1d1e1f1\ngpu:1  Paper 1"));
    CHECK(message.ends_with("name one of them, or make it visible with CUDA_VISIBLE_DEVICES"));
  }
  SECTION("no GPU") {
    gpu_count = 0;
    CHECK(refusal<DeviceError>([] { open({}); }) ==
          "cuda: this machine has no GPU; use a program for the CPU");
    started = CUDA_ERROR_NO_DEVICE;
    CHECK(refusal<DeviceError>([] { open({}); }) ==
          "cuda: this machine has no GPU; use a program for the CPU");
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    CHECK(refusal<DeviceError>([] {
            open({});
          }).starts_with("cuda: no GPU is visible; CUDA_VISIBLE_DEVICES is '7'"));
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  SECTION("a driver that does not start") {
    started = CUDA_ERROR_UNKNOWN;
    CHECK(refusal<DeviceError>([] {
            open({});
          }).starts_with("cuda: starting the driver failed: CUDA_ERROR_X, it broke; "));
  }
  SECTION("an old GPU") {
    capability = 61;
    CHECK(refusal<DeviceError>([] { open(Cuda{1}); })
              .starts_with("cuda: gpu:1, Paper 1, has compute capability 6.1, and CUDA 13 needs "
                           "7.5 or later; "));
  }
}

TEST_CASE_METHOD(Fixture, "the peak of a GPU follows from its multiprocessors and its clock") {
  // The fake has 100 multiprocessors at 100 kHz.
  capability = 90;
  CHECK(gpus()[0].float32_flops == 2 * 128 * 100 * 1e5);
  capability = 86;
  CHECK(gpus()[0].float32_flops == 2 * 128 * 100 * 1e5);
  capability = 80;
  CHECK(gpus()[0].float32_flops == 2 * 64 * 100 * 1e5);
}

TEST_CASE("an old driver is refused for its version, not for the functions it lacks") {
  if (has_driver()) SKIP("this machine has a driver");
  // Without a driver the toolkit's folders are searched.
  char folder[] = "/tmp/lockstep-old-driver-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string lib = std::string(folder) + "/lib";
  std::filesystem::create_directory(lib);
  std::ofstream(lib + "/old.cpp") << "extern \"C\" int cuDriverGetVersion(int* v) "
                                     "{ return *v = 12040, 0; }";
  REQUIRE(std::system(
              ("g++ -shared -fPIC -o " + lib + "/libcuda.so.1 " + lib + "/old.cpp").c_str()) == 0);
  setenv("CUDA_HOME", folder, 1);
  CHECK(
      refusal<DeviceError>([] { Driver::load(); }) ==
      "cuda: the driver supports CUDA 12.4 and this program needs 13.0; update NVIDIA's driver to "
      "580 or later");
  unsetenv("CUDA_HOME");
  std::filesystem::remove_all(folder);
}

TEST_CASE("without a driver or library the error names the missing file") {
  if (has_driver()) SKIP("this machine has a driver");
  CHECK(
      refusal<DeviceError>([] { open({}); }).starts_with("cuda: libcuda.so.1 cannot be loaded ("));
  CHECK(refusal<DeviceError>([] {
          Library("libnothing.so.7", "install it");
        }).ends_with("; install it"));
  const Library libc("libc.so.6", "");
  void (*function)() = nullptr;
  CHECK(refusal<DeviceError>([&] { libc.find(function, "cuTeleport"); }) ==
        "cuda: libc.so.6 has no function cuTeleport; it is too old for this program, so update "
        "it");
}

TEST_CASE_METHOD(Fixture, "a failed allocation reports the memory needed and free") {
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  SECTION("a buffer") {
    recorder.fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(refusal<OutOfMemory>([&] { context.allocate(std::size_t{5} << 20); }) ==
          "cuda: out of memory: 5120 KiB are needed, 1024 KiB of 3145728 KiB are free; use a "
          "smaller batch, or end other programs that use the GPU (nvidia-smi lists them)");
  }
  SECTION("the workspace of sums") {
    recorder.fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(refusal<OutOfMemory>([&] { context.handle<SumWorkspace>(); }) ==
          "cuda: out of memory: " + std::to_string(SumWorkspace::bytes >> 10) +
              " KiB are needed, 1024 KiB of 3145728 KiB are free; use a smaller batch, or end "
              "other programs that use the GPU (nvidia-smi lists them)");
    CHECK(context.handle<SumWorkspace>().get() == 0);  // a later call tries again
  }
  SECTION("pinned host memory") {
    const std::vector<float> x(3 << 18);
    const std::string message =
        "cuda: out of memory: 3072 KiB of pinned host memory are needed, and the driver cannot "
        "allocate them; use a smaller batch, end other programs, or raise the container's memory "
        "limit";
    recorder.fail("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(refusal<OutOfMemory>([&] { context.feed(0, x.data(), x.size()); }) == message);
    CHECK(context.feed(0, x.data(), 10) == nullptr);  // the context remains usable
    recorder.fail("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
    std::vector<std::byte> to(3 << 19);
    CHECK(refusal<OutOfMemory>([&] { context.download(to.data(), nullptr, to.size()); }) ==
          message);
    recorder.fail("cuMemHostAlloc", CUDA_ERROR_UNKNOWN);
    CHECK(refusal<DeviceError>([&] {
            context.download(to.data(), nullptr, to.size());
          }).starts_with("cuda: allocating pinned host memory failed: CUDA_ERROR_X"));
    CHECK(recorder.count("cuMemHostAlloc") == 4);
  }
}

TEST_CASE_METHOD(Fixture, "a thread holds the GPU's context only within its scope") {
  auto context = Cuda{1}.open(1, 0);
  CHECK(recorder.count("cuCtxPushCurrent_v2") == recorder.count("cuCtxPopCurrent_v2"));
  {
    const auto scope = context.scope();
    CHECK(recorder.count("cuCtxPushCurrent_v2") == recorder.count("cuCtxPopCurrent_v2") + 1);
  }
  CHECK(recorder.count("cuCtxPushCurrent_v2") == recorder.count("cuCtxPopCurrent_v2"));
}

TEST_CASE_METHOD(Fixture, "replicas without a list of devices use the GPUs in turn") {
  recorder.forget();
  auto first = Cuda{}.open(2, 0), second = Cuda{}.open(2, 1), third = Cuda{}.open(3, 2);
  CHECK(first.gpu().ordinal == 0);
  CHECK(second.gpu().ordinal == 1);
  CHECK(third.gpu().ordinal == 0);
  CHECK(Cuda::available() == 2);
}

TEST_CASE_METHOD(Fixture, "a feed buffer in flight is not overwritten") {
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  const std::vector<float> x(10);
  context.feed(0, x.data(), x.size());
  context.feed(1, x.data(), x.size());
  context.feed(0, x.data(), x.size());  // the first copy may be in flight
  CHECK(recorder.count("cuMemHostAlloc") == 3);
  CHECK(recorder.count("cuStreamSynchronize") == 0);
  context.synchronize();
  const std::size_t waits = recorder.count("cuStreamSynchronize");
  context.feed(0, x.data(), x.size());
  CHECK(recorder.count("cuStreamSynchronize") == waits);
  for (int i = 0; i < 60; ++i) context.feed(0, x.data(), x.size());  // staging memory is bounded
  CHECK(recorder.count("cuStreamSynchronize") == waits + 1);
}

TEST_CASE("a batch that does not fit is refused with the plan's figures") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("of a GPU of known size");
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  lockstep::detail::Engine<Wide, Cuda> engine(context);
  engine.prepare(10);
  const std::string message = refusal<OutOfMemory>([&] { engine.prepare(std::size_t{1} << 24); });
  CHECK(
      message.starts_with("cuda: out of memory: the activations of 16777216 examples on one "
                          "replica need "));
  CHECK(message.find("; the largest batch of a replica that fits has ") != std::string::npos);
  engine.prepare(20);  // the engine remains usable
}
