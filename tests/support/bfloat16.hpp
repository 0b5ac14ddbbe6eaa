/// \file
/// Requirements of bfloat16 tests on the machine.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include "lockstep/cpu.hpp"

namespace testing {

/// Skips the test if the device cannot be opened.
inline void need_bfloat16() {
  try {
    lockstep::CpuBFloat16{}.open(1, 0);
  } catch (const lockstep::DeviceError& error) {
    SKIP(error.what());
  }
}

}  // namespace testing
