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

inline void* find_condition_function(const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  void* const newer = ::dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  Dl_info one{}, other{};
  const bool is_same_library = newer != nullptr && ::dladdr(found, &one) != 0 &&
                               ::dladdr(newer, &other) != 0 && one.dli_fbase == other.dli_fbase;
  return is_same_library ? newer : found;
}

}  // namespace lockstep::testing::detail

/// The next definition of the function `name`.
#define LOCKSTEP_NEXT(name)                                              \
  ([] {                                                                  \
    static std::atomic<void*> known_next{nullptr};                       \
    return lockstep::testing::detail::next_definition<decltype(::name)>( \
        known_next, [] { return ::dlsym(RTLD_NEXT, #name); });           \
  }())

/// The same for the functions of condition variables, of which x86-64 has an older version, which
/// dlsym finds in the C library.
#define LOCKSTEP_NEXT_CONDITION(name)                                                          \
  ([] {                                                                                        \
    static std::atomic<void*> known_next{nullptr};                                             \
    return lockstep::testing::detail::next_definition<decltype(::name)>(                       \
        known_next, [] { return lockstep::testing::detail::find_condition_function(#name); }); \
  }())
