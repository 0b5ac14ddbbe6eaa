/// \file
/// Denormal numbers. A processor spends some hundred cycles on each operation with one, and an
/// optimizer's moments decay into that range: m = 0.9 m never reaches zero but stays at a few
/// multiples of the smallest denormal.
#pragma once

#include <cstdint>

namespace lockstep::detail {

/// Scope in which the calling thread flushes denormals to zero (below 1.2e-38 in float), both as
/// operands and as results. TensorFlow does the same.
class FlushDenormalsScope {
 public:
  FlushDenormalsScope() : before_(get()) { set(before_ | flush); }
  ~FlushDenormalsScope() { set(before_); }
  FlushDenormalsScope(const FlushDenormalsScope&) = delete;
  FlushDenormalsScope& operator=(const FlushDenormalsScope&) = delete;

 private:
#if defined(__x86_64__)
  using Control = std::uint32_t;
  static constexpr Control flush = 1u << 15 | 1u << 6;  // MXCSR: FTZ (results), DAZ (operands)
  static Control get() { return __builtin_ia32_stmxcsr(); }
  static void set(Control c) { __builtin_ia32_ldmxcsr(c); }
#elif defined(__aarch64__)
  using Control = std::uint64_t;
  static constexpr Control flush = 1u << 24;  // FPCR: FZ
  static Control get() {
    Control c = 0;
    asm volatile("mrs %0, fpcr" : "=r"(c)::"memory");
    return c;
  }
  static void set(Control c) { asm volatile("msr fpcr, %0" ::"r"(c) : "memory"); }
#else
  using Control = std::uint32_t;
  static constexpr Control flush = 0;
  static Control get() { return 0; }
  static void set(Control) {}
#endif
  Control before_;
};

}  // namespace lockstep::detail
