/// \file
/// Kernels of our own: text in the headers, compiled by NVRTC when first used. Invariants: a text
/// is specialised on numbers of the plan, which are its defines; what was compiled is kept on disk
/// under the hash of all that went into it, so a file is never stale; a cache that cannot be used
/// costs time, never a result.
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

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/float16.hpp"
#include "lockstep/devices/cuda/gpus.hpp"

namespace lockstep::detail::cuda {

/// The text of kernels. Entry points are written `KERNEL(name)(arguments) { ... }`; see prelude.hpp
/// for what a text may use. `name` is for messages; `functions` stand before the text, which may
/// call them.
struct Source {
  const char* name;
  const char* text;
  const char* functions = "";
};

/// Texts as one, where a Source wants one.
template <std::size_t... N>
struct JoinedText {
  constexpr JoinedText(const char (&... texts)[N]) {
    std::size_t at = 0;
    ((std::copy_n(texts, N - 1, all + at), at += N - 1), ...);
  }
  constexpr operator const char*() const { return all; }
  // Public: g++ 12 looks at it where this becomes a pointer.
  char all[(std::size_t{1} + ... + (N - 1))]{};
};

/// A number that a text knows by name.
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

  /// As a line of C++: a float is written by its bits.
  LOCKSTEP_COLD_DECL std::string line() const;

 private:
  /// All bits, whatever the program's locale takes for a point.
  LOCKSTEP_DECL std::string hexadecimal() const;

  const char* name_ = "";
  bool is_real_ = false;
  std::int64_t whole_ = 0;
  double real_ = 0;
};

/// The prelude's ACTIVATION of an element type.
template <class A>
inline constexpr int code_of = 0;
template <>
inline constexpr int code_of<bfloat16> = 1;
template <>
inline constexpr int code_of<float16> = 2;
/// That of a precision.
template <class Precision>
inline constexpr int activation_code = code_of<typename Precision::activation>;

/// `defines` and one more.
template <std::size_t N>
std::array<Define, N + 1> with_define(const std::array<Define, N>& defines, const Define& more) {
  std::array<Define, N + 1> all{};
  std::copy(defines.begin(), defines.end(), all.begin());
  all[N] = more;
  return all;
}

/// `defines` and the type of activations.
template <class Precision, std::size_t N>
std::array<Define, N + 1> with_activation(const std::array<Define, N>& defines) {
  return with_define(defines, {"ACTIVATION", activation_code<Precision>});
}

/// Compiled kernels, and ways that were found to be the fastest, on disk: one file for each, with
/// the digest of its content in front.
class KernelCache {
 public:
  /// $LOCKSTEP_KERNEL_CACHE, else lockstep/ in $XDG_CACHE_HOME, else in ~/.cache; an empty
  /// LOCKSTEP_KERNEL_CACHE: none. Files' names end with `kind`.
  LOCKSTEP_COLD_DECL explicit KernelCache(const char* kind = ".cubin");

  LOCKSTEP_COLD_DECL std::optional<std::string> find(const std::string& key) const;

  /// By a temporary file and a rename, so that another process never reads a part of it.
  LOCKSTEP_COLD_DECL void store(const std::string& key, const std::string& content) const;

  LOCKSTEP_DECL static std::string digest(std::string_view content);

 private:
  static constexpr std::size_t digest_size = 64;
  LOCKSTEP_DECL std::string path_of(const std::string& key) const;
  const char* kind_;
  std::string folder_;
};

/// The whole text that NVRTC gets.
LOCKSTEP_COLD_DECL std::string whole_text(const Source& source, std::span<const Define> defines);

/// A GPU's loaded kernels. Used by one thread at a time, with the GPU's context current.
///
/// \code
///   text + defines  ->  module  ->  entry "forward"
///                               ->  entry "backward"
/// \endcode
class Programs {
 public:
  /// `capability`: major * 10 + minor.
  LOCKSTEP_DECL explicit Programs(int capability);
  Programs(Programs&& other) noexcept = default;
  Programs& operator=(Programs&&) = delete;
  LOCKSTEP_DECL ~Programs();

  /// The kernel `entry` of the text, specialised on `defines`. The text's module comes from memory,
  /// else from disk, else it is compiled. \throws DeviceError if it does not compile or load.
  LOCKSTEP_DECL CUfunction find(const Source& source, const char* entry,
                                std::span<const Define> defines);

 private:
  struct Entry {
    std::string_view name;
    CUfunction function;
  };
  struct Loaded {
    const char *text, *functions;
    std::vector<Define> defines;
    CUmodule module;
    std::vector<Entry> entries;
  };

  LOCKSTEP_DECL Loaded& module_of(const Source& source, std::span<const Define> defines);

  LOCKSTEP_COLD_DECL CUfunction add_entry(Loaded& m, const char* name);

  LOCKSTEP_COLD_DECL Loaded& load(const Source& source, std::span<const Define> defines);

  std::string architecture_;
  KernelCache cache_;
  std::vector<Loaded> loaded_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/program.ipp"
#endif
