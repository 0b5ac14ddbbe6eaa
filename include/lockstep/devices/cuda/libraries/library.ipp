#pragma once

#include "lockstep/devices/cuda/libraries/library.hpp"

#include <dlfcn.h>
#include <cstdlib>
#include <initializer_list>

namespace lockstep::detail::cuda {

Library::Library(const char* file, const char* remedy) : file_(file) {
  handle_ = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  if (handle_ != nullptr) return;
  const std::string why = dlerror();
  for (const char* const home : std::initializer_list<const char*>{
           std::getenv("CUDA_HOME"), std::getenv("CUDA_PATH"), "/usr/local/cuda"}) {
    if (home == nullptr || *home == '\0') continue;
    for (const char* const folder : {"/lib64/", "/lib/"}) {
      handle_ = dlopen((std::string(home) + folder + file).c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (handle_ != nullptr) return;
    }
  }
  throw DeviceError("cuda: {} cannot be loaded ({}); {}", file, why, remedy);
}

}  // namespace lockstep::detail::cuda
