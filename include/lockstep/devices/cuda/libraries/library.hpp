/// \file
/// NVIDIA's libraries, loaded when first used. Invariants: a program that includes
/// lockstep/cuda.hpp links none of them, so it starts on machines that have none; a library is
/// loaded once; what is missing is one DeviceError that names the file.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail::cuda {

/// A shared library that stays loaded until the process ends.
class Library {
 public:
  /// Looks where the system looks, then in the toolkit's folders: $CUDA_HOME, $CUDA_PATH,
  /// /usr/local/cuda. `remedy` ends the sentence of what is missing.
  /// \throws DeviceError if no such file can be loaded.
  LOCKSTEP_COLD_DECL Library(const char* file, const char* remedy);

  /// \throws DeviceError if the library has no such function.
  template <class F>
  void find(F& function, const char* name) const {
    void* const symbol = dlsym(handle_, name);
    if (symbol == nullptr)
      throw DeviceError(
          "cuda: {} has no function {}; it is older than this program needs, update it", file_,
          name);
    function = reinterpret_cast<F>(symbol);
  }
  /// Null where the library is too old to have it: whoever calls it can do without.
  template <class F>
  void find_newer(F& function, const char* name) const {
    function = reinterpret_cast<F>(dlsym(handle_, name));
  }

 private:
  const char* file_;
  void* handle_ = nullptr;
};

/// The functions of a library as a table. A test may put its own table in the place of the loaded
/// one.
template <class Table>
class EntryPoints {
 public:
  /// \throws DeviceError if the library or one of its functions is missing; a later call tries
  /// again.
  static const Table& get() {
    if (const Table* const replacement = other().load(std::memory_order_acquire)) {
      if (replacement == &none_) throw DeviceError("cuda: this library is set aside");
      return *replacement;
    }
    static const Table loaded = Table::load();
    return loaded;
  }
  /// While it lives, `get` returns `table`.
  class Override {
   public:
    explicit Override(const Table& table) : before_(other().exchange(&table)) {}
    /// `get` throws, as if the library were missing.
    Override() : before_(other().exchange(&none_)) {}
    ~Override() { other().store(before_); }
    Override(const Override&) = delete;
    Override& operator=(const Override&) = delete;

   private:
    const Table* before_;
  };

 private:
  static constexpr Table none_{};
  // No static member: nvcc 13 takes its type for incomplete.
  static std::atomic<const Table*>& other() {
    static std::atomic<const Table*> table{nullptr};
    return table;
  }
};

}  // namespace lockstep::detail::cuda

// A table is a list of names: LIST(entry) says entry(name) for each. NVIDIA's headers rename some
// functions to their newest version (cuMemAlloc is cuMemAlloc_v2), so a name is expanded before it
// becomes a member, a type and a string.
#define LOCKSTEP_CUDA_QUOTE(name) #name
#define LOCKSTEP_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
#define LOCKSTEP_CUDA_FIND(name) library.find(table.name, LOCKSTEP_CUDA_QUOTE(name));
#define LOCKSTEP_CUDA_FIND_NEWER(name) library.find_newer(table.name, LOCKSTEP_CUDA_QUOTE(name));

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/libraries/library.ipp"
#endif
