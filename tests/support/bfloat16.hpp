/// \file
/// What tests in bfloat16 ask of the machine.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include "lockstep/cpu.hpp"

namespace testing {

/// Skips the test where the device cannot be opened.
inline void need_bfloat16() {
  try {
    lockstep::CpuBFloat16{}.open(1, 0);
  } catch (const lockstep::DeviceError& error) {
    SKIP(error.what());
  }
}

}  // namespace testing
