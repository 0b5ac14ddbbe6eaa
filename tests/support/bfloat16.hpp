/// \file
/// Requirements of bfloat16 tests on the machine.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/cpu.hpp"

namespace testing {

/// Why the device cannot be opened; empty if it can.
inline std::string bfloat16_fault() {
  try {
    lockstep::CpuBFloat16{}.open(1, 0);
  } catch (const lockstep::DeviceError& error) {
    return error.what();
  }
  return {};
}

/// Skips the test if the device cannot be opened.
inline void need_bfloat16() {
  if (const std::string fault = bfloat16_fault(); !fault.empty()) SKIP(fault);
}

}  // namespace testing
