/// \file
/// NVIDIA's libraries, loaded on first use with dlopen. Invariants: a program that includes
/// lockstep/cuda.hpp links none of them, so it starts on machines without them; each library is
/// loaded once; a missing one is a DeviceError that names the file.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::detail::cuda {

/// A shared library that stays loaded until the process ends.
class Library {
 public:
  /// Searches the system's path, then the toolkit's folders: $CUDA_HOME, $CUDA_PATH,
  /// /usr/local/cuda. `remedy` ends the error message. \throws DeviceError if the file cannot be
  /// loaded.
  [[gnu::cold]] Library(const char* file, const char* remedy) : file_(file) {
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

  /// \throws DeviceError if the library does not export the function.
  template <class F>
  void find(F& function, const char* name) const {
    void* const symbol = dlsym(handle_, name);
    if (symbol == nullptr)
      throw DeviceError("cuda: {} has no function {}; it is too old for this program, so update it",
                        file_, name);
    function = reinterpret_cast<F>(symbol);
  }
  /// Sets the function to null if the library is too old to export it; the caller has a fallback.
  template <class F>
  void find_newer(F& function, const char* name) const {
    function = reinterpret_cast<F>(dlsym(handle_, name));
  }

 private:
  const char* file_;
  void* handle_ = nullptr;
};

/// The entry points of a library. Tests can override the loaded table.
template <class Table>
class EntryPoints {
 public:
  /// \throws DeviceError if the library or one of its functions is missing; a later call tries
  /// again.
  static const Table& get() {
    if (const Table* const replacement = override_table().load(std::memory_order_acquire)) {
      if (replacement == &none_) throw DeviceError("cuda: this library is disabled");
      return *replacement;
    }
    static const Table loaded = Table::load();
    return loaded;
  }
  /// While it lives, `get` returns `table`.
  class Override {
   public:
    explicit Override(const Table& table) : before_(override_table().exchange(&table)) {}
    /// While it lives, `get` throws, as if the library were missing.
    Override() : before_(override_table().exchange(&none_)) {}
    ~Override() { override_table().store(before_); }
    Override(const Override&) = delete;
    Override& operator=(const Override&) = delete;

   private:
    const Table* before_;
  };

 private:
  static constexpr Table none_{};
  // Not a static member, because nvcc 13 considers its type incomplete.
  static std::atomic<const Table*>& override_table() {
    static std::atomic<const Table*> table{nullptr};
    return table;
  }
};

}  // namespace lockstep::detail::cuda

// A table is a list of names: LIST(entry) expands to entry(name) for each. NVIDIA's headers rename
// some functions to their newest version (cuMemAlloc is cuMemAlloc_v2), so a name is expanded
// before it becomes a member, a type and a string.
#define LOCKSTEP_CUDA_QUOTE(name) #name
#define LOCKSTEP_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
#define LOCKSTEP_CUDA_FIND(name) library.find(table.name, LOCKSTEP_CUDA_QUOTE(name));
#define LOCKSTEP_CUDA_FIND_NEWER(name) library.find_newer(table.name, LOCKSTEP_CUDA_QUOTE(name));
