/// \file
/// Compiles a kernel's text with the real NVRTC, which needs no GPU.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <regex>
#include <string>

#include "lockstep/devices/cuda/libraries/nvrtc.hpp"

namespace testing {

/// The real NVRTC; null if this machine has none or LOCKSTEP_WITHOUT_NVRTC is set.
inline const lockstep::detail::cuda::Nvrtc* real_nvrtc() {
  using lockstep::detail::cuda::Nvrtc;
  static const Nvrtc* const real = []() -> const Nvrtc* {
    if (std::getenv("LOCKSTEP_WITHOUT_NVRTC") != nullptr) return nullptr;
    try {
      static const Nvrtc loaded = Nvrtc::load();
      return &loaded;
    } catch (const lockstep::DeviceError&) {
      return nullptr;
    }
  }();
  return real;
}

/// NVRTC's output for a text.
struct GpuCode {
  bool done = false;
  std::string code;  ///< a cubin
  std::string log;   ///< including registers and spills of each entry point

  bool spills() const {
    static const std::regex some("[1-9][0-9]* bytes spill");
    return std::regex_search(log, some);
  }
};

/// Compiles a text for `architecture`, such as "sm_90a". Requires real_nvrtc().
inline GpuCode compile_for_gpu(const std::string& text, const std::string& name,
                               const std::string& architecture) {
  const auto& nvrtc = *real_nvrtc();
  nvrtcProgram p = nullptr;
  nvrtc.nvrtcCreateProgram(&p, text.c_str(), name.c_str(), 0, nullptr, nullptr);
  const std::string option = "--gpu-architecture=" + architecture;
  const char* const options[] = {option.c_str(), "--std=c++17", "--ptxas-options=-v"};
  GpuCode result;
  result.done = nvrtc.nvrtcCompileProgram(p, 3, options) == NVRTC_SUCCESS;
  std::size_t size = 0;
  nvrtc.nvrtcGetProgramLogSize(p, &size);
  result.log.resize(size);
  nvrtc.nvrtcGetProgramLog(p, result.log.data());
  result.log.resize(result.log.find('\0'));
  if (result.done) {
    nvrtc.nvrtcGetCUBINSize(p, &size);
    result.code.resize(size);
    nvrtc.nvrtcGetCUBIN(p, result.code.data());
  }
  nvrtc.nvrtcDestroyProgram(&p);
  return result;
}

}  // namespace testing
