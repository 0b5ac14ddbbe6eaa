#pragma once

#include "lockstep/devices/cuda/gpus.hpp"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail::cuda {

inline std::string uuid_text(const CUuuid& uuid) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    // 8-4-4-4-12 digits, as nvidia-smi prints them
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

int count_gpus() {
  const CUresult started = driver().cuInit(0);
  int count = 0;
  // cuInit fails without a GPU; the message below is the better one.
  if (started != CUDA_ERROR_NO_DEVICE) {
    check(started, "starting the driver");
    check(driver().cuDeviceGetCount(&count), "counting the GPUs");
  }
  if (count > 0) return count;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr)
    throw DeviceError(
        "cuda: no GPU is visible; CUDA_VISIBLE_DEVICES is '{}': unset it, or name GPUs that "
        "nvidia-smi lists",
        visible);
  throw DeviceError("cuda: this machine has no GPU; use a program for the CPU");
}

Gpu describe_gpu(int ordinal) {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, ordinal), "opening a GPU");
  Gpu gpu;
  gpu.ordinal = ordinal;
  std::array<char, 256> name{};
  check(driver().cuDeviceGetName(name.data(), static_cast<int>(name.size()), device),
        "reading a GPU's name");
  gpu.name = name.data();
  CUuuid uuid{};
  check(driver().cuDeviceGetUuid(&uuid, device), "reading a GPU's UUID");
  gpu.uuid = uuid_text(uuid);
  check(driver().cuDeviceTotalMem(&gpu.memory, device), "reading a GPU's memory size");
  const auto ask = [&](CUdevice_attribute attribute) {
    int value = 0;
    check(driver().cuDeviceGetAttribute(&value, attribute, device), "reading a GPU's attributes");
    return value;
  };
  gpu.major = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  gpu.minor = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  gpu.multiprocessors = ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const double lanes = gpu.major * 10 + gpu.minor <= 80 ? 64 : 128;
  const double hertz = 1e3 * ask(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  gpu.float32_flops = 2 * lanes * gpu.multiprocessors * hertz;
  return gpu;
}

Gpu find_gpu(int ordinal) {
  const int count = count_gpus();
  if (ordinal >= count)
    throw UsageError(
        "cuda: there is no gpu:{} among {}{}:\n{}\nname one of them, or make it visible with "
        "CUDA_VISIBLE_DEVICES",
        ordinal, count, count == 1 ? " GPU" : " GPUs", gpu_table(gpus()));
  return describe_gpu(ordinal);
}

void check_capability(const Gpu& gpu) {
  if (gpu.major * 10 + gpu.minor < min_capability)
    throw DeviceError(
        "cuda: gpu:{}, {}, has compute capability {}.{}, and CUDA 13 needs 7.5 or later; choose "
        "another GPU with CUDA_VISIBLE_DEVICES, or use a program for the CPU",
        gpu.ordinal, gpu.name, gpu.major, gpu.minor);
}

int parse_gpu(std::string_view name) {
  std::string_view rest = name;
  if (rest.starts_with('/')) rest.remove_prefix(1);
  if (rest.starts_with("device:")) rest.remove_prefix(7);
  if (rest.starts_with("gpu:") || rest.starts_with("GPU:")) rest.remove_prefix(4);
  int ordinal = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), ordinal);
  if (error != std::errc{} || end != rest.data() + rest.size() || ordinal < 0)
    throw UsageError("cuda: '{}' does not name a GPU; write \"/gpu:0\", or its number", name);
  return ordinal;
}

void log_gpus() {
  static std::atomic_flag logged;
  if (!logged.test_and_set())
    log(LogLevel::info, format_text("cuda: the GPUs are\n{}", gpu_table(gpus())));
}

}  // namespace lockstep::detail::cuda

namespace lockstep {

std::vector<Gpu> gpus() {
  std::vector<Gpu> all;
  const int count = detail::cuda::count_gpus();
  for (int i = 0; i < count; ++i) all.push_back(detail::cuda::describe_gpu(i));
  return all;
}

std::string gpu_table(const std::vector<Gpu>& gpus) {
  std::string table;
  for (const Gpu& gpu : gpus)
    table += format_text("{}gpu:{}  {}  sm_{}{}  {} MiB  {}", table.empty() ? "" : "\n",
                         gpu.ordinal, gpu.name, gpu.major, gpu.minor, gpu.memory >> 20, gpu.uuid);
  return table;
}

}  // namespace lockstep
