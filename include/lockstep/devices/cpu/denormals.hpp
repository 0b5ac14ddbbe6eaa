/// \file
/// Numbers that are too small for full precision. A processor takes some hundred cycles for each
/// operation on them, and moments of an optimizer end there: 0.9 m, again and again, stays at a few
/// of the smallest steps for ever.
#pragma once

#include <cstdint>

namespace lockstep::detail {

/// While it lives, this thread takes denormal numbers for 0, and makes none: below 1.2e-38 in float.
/// TensorFlow computes so, too.
class FlushDenormalsScope {
 public:
  FlushDenormalsScope() : before_(get()) { set(before_ | flush); }
  ~FlushDenormalsScope() { set(before_); }
  FlushDenormalsScope(const FlushDenormalsScope&) = delete;
  FlushDenormalsScope& operator=(const FlushDenormalsScope&) = delete;

 private:
#if defined(__x86_64__)
  using Control = std::uint32_t;
  static constexpr Control flush = 1u << 15 | 1u << 6;  // of results, of operands
  static Control get() { return __builtin_ia32_stmxcsr(); }
  static void set(Control c) { __builtin_ia32_ldmxcsr(c); }
#elif defined(__aarch64__)
  using Control = std::uint64_t;
  static constexpr Control flush = 1u << 24;
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
