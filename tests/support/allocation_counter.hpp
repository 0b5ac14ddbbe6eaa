/// \file
/// Counts calls of operator new per thread. Include it in exactly one file of a program, since it
/// replaces the operators of the whole program.
///
/// Allocations by oneDNN while it executes a primitive are not counted: this file also interposes
/// oneDNN's C function `dnnl_primitive_execute`, pauses the calling thread's count and forwards the
/// call. The library under test has no hook for this.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace testing {
inline thread_local std::size_t allocations = 0;
inline thread_local int allocations_paused = 0;

/// Counts this thread's allocations since construction.
/// \code
///   const AllocationCounter counter;
///   step();
///   CHECK(counter.count() == 0);
/// \endcode
class AllocationCounter {
 public:
  std::size_t count() const { return allocations - before_; }

 private:
  std::size_t before_ = allocations;
};

inline void* counted_allocation(std::size_t bytes, std::size_t alignment) noexcept {
  if (allocations_paused == 0) ++allocations;
  return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}
inline void* counted_allocation_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* const p = counted_allocation(bytes, alignment)) return p;
  throw std::bad_alloc();
}
}  // namespace testing

// Not inline: g++ must not see that new ends in aligned_alloc. The standard library's array and
// nothrow forms call these, except for the aligned nothrow form.
[[gnu::noinline]] void* operator new(std::size_t n) {
  return testing::counted_allocation_or_throw(n, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
  return testing::counted_allocation_or_throw(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a,
                                     const std::nothrow_t&) noexcept {
  return testing::counted_allocation(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>

extern "C" dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive,
                                                dnnl_stream_t stream, int count,
                                                const dnnl_exec_arg_t* arguments) {
  static const auto next = reinterpret_cast<decltype(&dnnl_primitive_execute)>(
      dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  if (next == nullptr) std::abort();
  ++testing::allocations_paused;
  const dnnl_status_t status = next(primitive, stream, count, arguments);
  --testing::allocations_paused;
  return status;
}
#endif
