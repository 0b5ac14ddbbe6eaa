/// \file
/// The functions of the C library that the simulation replaces, as the next definition in the
/// loader's order: the library's own, or a sanitizer's.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace lockstep::testing::detail {

/// Finds a function once. Needs no static initialization, because the loader and other libraries
/// call these functions before ours are initialized.
template <class F, class Find>
F* next_definition(std::atomic<void*>& known, Find find) {
  void* found = known.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = find();
    known.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<F*>(found);
}

}  // namespace lockstep::testing::detail

/// The next definition of the function `name`.
#define LOCKSTEP_NEXT(name)                                              \
  ([] {                                                                  \
    static std::atomic<void*> known_next{nullptr};                       \
    return lockstep::testing::detail::next_definition<decltype(::name)>( \
        known_next, [] { return ::dlsym(RTLD_NEXT, #name); });           \
  }())

/// The same for the functions of condition variables, of which x86-64 has an older version.
#define LOCKSTEP_NEXT_CONDITION(name)                                                    \
  ([] {                                                                                  \
    static std::atomic<void*> known_next{nullptr};                                       \
    return lockstep::testing::detail::next_definition<decltype(::name)>(known_next, [] { \
      void* const found = ::dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.2");                     \
      return found != nullptr ? found : ::dlsym(RTLD_NEXT, #name);                       \
    });                                                                                  \
  }())
