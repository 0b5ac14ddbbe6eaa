/// \file
/// lockstep's own kernels: CUDA C++ text in the headers, compiled by NVRTC on first use.
/// Invariants: a text is specialised by defines, numbers from the plan; compiled code is cached on
/// disk under the hash of everything that went into it, so a file is never stale; an unusable cache
/// costs time, never correctness.
///
///     Source + defines -> hash -> in memory? on disk? else NVRTC -> module -> CUfunction
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/numbers/float16.hpp"
#include "lockstep/devices/cuda/gpus.hpp"

namespace lockstep::detail::cuda {

/// The text of one or more kernels. Entry points are written `KERNEL(name)(arguments) { ... }`; see
/// prelude.hpp for what a text may use. `name` is for messages; `functions` precede the text, which
/// may call them.
struct Source {
  const char* name;
  const char* text;
  const char* functions = "";
};

/// Concatenated texts, for the text of a Source.
template <std::size_t... N>
struct JoinedText {
  constexpr JoinedText(const char (&... texts)[N]) {
    std::size_t at = 0;
    ((std::copy_n(texts, N - 1, all + at), at += N - 1), ...);
  }
  constexpr operator const char*() const { return all; }
  // public, because g++ 12 accesses it where the object converts to a pointer
  char all[(std::size_t{1} + ... + (N - 1))]{};
};

/// A number passed to a text as a macro.
class Define {
 public:
  constexpr Define() = default;
  template <class N>
    requires std::is_arithmetic_v<N>
  constexpr Define(const char* name, N value) : name_(name), is_real_(std::is_floating_point_v<N>) {
    if constexpr (std::is_floating_point_v<N>)
      real_ = static_cast<double>(value);
    else
      whole_ = static_cast<std::int64_t>(value);
  }
  bool operator==(const Define&) const = default;
  std::string_view name() const { return name_; }

  /// The `#define` line. Floats are written in hexadecimal, so that no bit is lost.
  LOCKSTEP_COLD_DECL std::string line() const;

 private:
  /// The exact value, independent of the locale's decimal point.
  LOCKSTEP_DECL std::string hexadecimal() const;

  const char* name_ = "";
  bool is_real_ = false;
  std::int64_t whole_ = 0;
  double real_ = 0;
};

/// The prelude's ACTIVATION code of an element type.
template <class A>
inline constexpr int code_of = 0;
template <>
inline constexpr int code_of<bfloat16> = 1;
template <>
inline constexpr int code_of<float16> = 2;
/// The ACTIVATION code of a precision.
template <class Precision>
inline constexpr int activation_code = code_of<typename Precision::activation>;

/// Appends a define.
template <std::size_t N>
std::array<Define, N + 1> with_define(const std::array<Define, N>& defines, const Define& more) {
  std::array<Define, N + 1> all{};
  std::copy(defines.begin(), defines.end(), all.begin());
  all[N] = more;
  return all;
}

/// Appends the ACTIVATION define of a precision.
template <class Precision, std::size_t N>
std::array<Define, N + 1> with_activation(const std::array<Define, N>& defines) {
  return with_define(defines, {"ACTIVATION", activation_code<Precision>});
}

/// A disk cache of compiled kernels and autotuning results: one file per key, prefixed with the
/// SHA-256 of its content, so that a damaged file is ignored.
///
///     <folder>/<key>.cubin:    [ 64 hex digits of SHA-256 | content ]
///     <folder>/<key>.winner:   [ 64 hex digits of SHA-256 | name of a candidate ]
class KernelCache {
 public:
  /// The folder is $LOCKSTEP_KERNEL_CACHE, else lockstep/ in $XDG_CACHE_HOME, else in ~/.cache. An
  /// empty LOCKSTEP_KERNEL_CACHE turns the cache off. File names end with `kind`.
  LOCKSTEP_COLD_DECL explicit KernelCache(const char* kind = ".cubin");

  /// The content of a key, or nothing if it is missing or damaged.
  LOCKSTEP_COLD_DECL std::optional<std::string> find(const std::string& key) const;

  /// Writes a temporary file and renames it, so that other processes never read a partial one.
  LOCKSTEP_COLD_DECL void store(const std::string& key, const std::string& content) const;

  /// SHA-256 in hexadecimal.
  LOCKSTEP_DECL static std::string digest(std::string_view content);

 private:
  static constexpr std::size_t digest_size = 64;
  /// The file of a key.
  LOCKSTEP_DECL std::string path_of(const std::string& key) const;
  const char* kind_;
  std::string folder_;
};

/// The full text passed to NVRTC: defines, prelude, functions, text.
LOCKSTEP_COLD_DECL std::string whole_text(const Source& source, std::span<const Define> defines);

/// The loaded modules of a GPU. Used by one thread at a time, with the GPU's context current.
///
/// \code
///   text + defines  ->  module  ->  entry "forward"
///                               ->  entry "backward"
/// \endcode
class Programs {
 public:
  /// `capability`: 10 * major + minor.
  LOCKSTEP_DECL explicit Programs(int capability);
  Programs(Programs&& other) noexcept = default;
  Programs& operator=(Programs&&) = delete;
  LOCKSTEP_DECL ~Programs();

  /// The kernel `entry` of the text, specialised on `defines`. Its module comes from memory, else
  /// from disk, else from NVRTC. \throws DeviceError if it does not compile or load.
  LOCKSTEP_DECL CUfunction find(const Source& source, const char* entry,
                                std::span<const Define> defines);

 private:
  struct Entry {
    std::string_view name;
    CUfunction function;
  };
  /// A loaded module and the entry points found in it.
  struct Loaded {
    const char *text, *functions;
    std::vector<Define> defines;
    CUmodule module;
    std::vector<Entry> entries;
  };

  /// The loaded module of a specialised text; loads it on first use.
  LOCKSTEP_DECL Loaded& module_of(const Source& source, std::span<const Define> defines);

  /// Looks up an entry point and remembers it.
  LOCKSTEP_COLD_DECL CUfunction add_entry(Loaded& m, const char* name);

  /// Loads a module from disk, else compiles and stores it.
  LOCKSTEP_COLD_DECL Loaded& load(const Source& source, std::span<const Define> defines);

  std::string architecture_;
  KernelCache cache_;
  std::vector<Loaded> loaded_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/program.ipp"
#endif
