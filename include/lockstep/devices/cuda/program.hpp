/// \file
/// Kernels of our own: text in the headers, compiled by NVRTC when first used. Invariants: a text
/// is specialised on numbers of the plan, which are its defines; what was compiled is kept on disk
/// under the hash of all that went into it, so a file is never stale; a cache that cannot be used
/// costs time, never a result.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"
#include "lockstep/core/sha256.hpp"
#include "lockstep/devices/cuda/gpus.hpp"
#include "lockstep/devices/cuda/libraries/nvrtc.hpp"
#include "lockstep/devices/cuda/prelude.hpp"

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
  [[gnu::cold]] std::string line() const {
    std::array<char, 96> value{};
    if (!is_real_)
      std::snprintf(value.data(), value.size(),
                    whole_ > std::numeric_limits<int>::max() ? "%lldLL" : "%lld",
                    static_cast<long long>(whole_));
    else if (real_ - real_ == 0)
      return hexadecimal();
    else
      std::snprintf(value.data(), value.size(), real_ > 0 ? "(1.0f / 0.0f)" : "(-1.0f / 0.0f)");
    return std::string("#define ") + name_ + " (" + value.data() + ")\n";
  }

 private:
  /// All bits, whatever the program's locale takes for a point.
  std::string hexadecimal() const {
    std::array<char, 96> digits{};
    const double size = real_ < 0 ? -real_ : real_;
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), size, std::chars_format::hex);
    return std::string("#define ") + name_ + (std::signbit(real_) ? " (-0x" : " (0x") +
           std::string(digits.data(), end.ptr) + "f)\n";
  }

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
  [[gnu::cold]] explicit KernelCache(const char* kind = ".cubin") : kind_(kind) {
    if (const char* const own = std::getenv("LOCKSTEP_KERNEL_CACHE")) {
      folder_ = own;
    } else if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
      folder_ = std::filesystem::path(cache) / "lockstep";
    } else if (const char* const home = std::getenv("HOME"); home && *home) {
      folder_ = std::filesystem::path(home) / ".cache" / "lockstep";
    }
  }

  [[gnu::cold]] std::optional<std::string> find(const std::string& key) const {
    if (folder_.empty()) return std::nullopt;
    std::ifstream file(folder_ / (key + kind_), std::ios::binary);
    if (!file) return std::nullopt;
    std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (all.size() < digest_size) return std::nullopt;
    std::string content = all.substr(digest_size);
    if (all.compare(0, digest_size, digest(content)) != 0) return std::nullopt;  // damaged
    return content;
  }

  /// By a temporary file and a rename, so that another process never reads a part of it.
  [[gnu::cold]] void keep(const std::string& key, const std::string& content) const {
    if (folder_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    const auto part = folder_ / (key + ".part." + std::to_string(::getpid()));
    {
      std::ofstream file(part, std::ios::binary);
      file << digest(content) << content;
      file.close();
      if (!file) {
        std::filesystem::remove(part, error);
        return;
      }
    }
    std::filesystem::rename(part, folder_ / (key + kind_), error);
    if (error) std::filesystem::remove(part, error);
  }

  static std::string digest(std::string_view content) {
    return sha256_hex(std::as_bytes(std::span(content)));
  }

 private:
  static constexpr std::size_t digest_size = 64;
  const char* kind_;
  std::filesystem::path folder_;
};

/// The whole text that NVRTC gets.
[[gnu::cold]] inline std::string whole_text(const Source& source, std::span<const Define> defines) {
  std::string all;
  for (const Define& define : defines) all += define.line();
  return all + prelude + source.functions + source.text;
}

/// Machine code for one architecture. \throws DeviceError with the compiler's words.
[[gnu::cold]] inline std::string compile(const Source& source, const std::string& all,
                                         const std::string& architecture) {
  nvrtcProgram program = nullptr;
  check(nvrtc().nvrtcCreateProgram(&program, all.c_str(), source.name, 0, nullptr, nullptr),
        "making a program");
  struct Owner {
    nvrtcProgram* program;
    ~Owner() { nvrtc().nvrtcDestroyProgram(program); }
  } owner{&program};
  const std::string option = "--gpu-architecture=" + architecture;
  const std::array options{option.c_str(), "--std=c++17"};
  const nvrtcResult result =
      nvrtc().nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    std::size_t size = 0;
    std::string said;
    if (nvrtc().nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS && size > 1) {
      said.resize(size);
      nvrtc().nvrtcGetProgramLog(program, said.data());
      said.resize(std::min<std::size_t>(size - 1, 1000));
    }
    throw DeviceError({"cuda: the kernels of ", source.name, " do not compile for ", architecture,
                       ": ", nvrtc().nvrtcGetErrorString(result), ": ", said});
  }
  std::size_t size = 0;
  check(nvrtc().nvrtcGetCUBINSize(program, &size), "asking for the size of a program");
  std::string code(size, '\0');
  check(nvrtc().nvrtcGetCUBIN(program, code.data()), "asking for a program's code");
  return code;
}

/// What NVRTC compiles for. On compute capability 9.0 also Hopper's own instructions, which no
/// later GPU has: machine code does not run on those anyway.
[[gnu::cold]] inline std::string architecture_of(int capability) {
  return "sm_" + std::to_string(capability) + (capability == 90 ? "a" : "");
}

/// A GPU's loaded kernels. Used by one thread at a time, with the GPU's context current.
///
/// \code
///   text + defines  ->  module  ->  entry "forward"
///                               ->  entry "backward"
/// \endcode
class Programs {
 public:
  /// `capability`: major * 10 + minor.
  explicit Programs(int capability) : architecture_(architecture_of(capability)) {}
  Programs(Programs&& other) noexcept = default;
  Programs& operator=(Programs&&) = delete;
  ~Programs() {
    for (const Loaded& m : loaded_) driver().cuModuleUnload(m.module);
  }

  /// The kernel `entry` of the text, specialised on `defines`. The text's module comes from memory,
  /// else from disk, else it is compiled. \throws DeviceError if it does not compile or load.
  CUfunction find(const Source& source, const char* entry, std::span<const Define> defines) {
    Loaded& m = module_of(source, defines);
    for (const Entry& e : m.entries)
      if (e.name == entry) return e.function;
    return add_entry(m, entry);
  }

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

  Loaded& module_of(const Source& source, std::span<const Define> defines) {
    for (Loaded& m : loaded_)
      if (m.text == source.text && m.functions == source.functions &&
          std::equal(m.defines.begin(), m.defines.end(), defines.begin(), defines.end()))
        return m;
    return load(source, defines);
  }

  [[gnu::cold, gnu::noinline]] CUfunction add_entry(Loaded& m, const char* name) {
    CUfunction function = nullptr;
    check(driver().cuModuleGetFunction(&function, m.module, name), "finding a kernel");
    m.entries.push_back({name, function});
    return function;
  }

  [[gnu::cold, gnu::noinline]] Loaded& load(const Source& source, std::span<const Define> defines) {
    const std::string all = whole_text(source, defines);
    int major = 0, minor = 0;
    check(nvrtc().nvrtcVersion(&major, &minor), "asking for NVRTC's version");
    const std::string key = KernelCache::digest(
        text({all, "\n", architecture_, " ", major, ".", minor, " ", source.name}));
    std::optional<std::string> code = cache_.find(key);
    if (!code) {
      code = compile(source, all, architecture_);
      cache_.keep(key, *code);
    }
    loaded_.push_back(
        {source.text, source.functions, {defines.begin(), defines.end()}, nullptr, {}});
    if (const CUresult loaded = driver().cuModuleLoadData(&loaded_.back().module, code->data());
        loaded != CUDA_SUCCESS) {
      loaded_.pop_back();
      refuse(loaded, "loading a kernel");
    }
    return loaded_.back();
  }

  std::string architecture_;
  KernelCache cache_;
  std::vector<Loaded> loaded_;
};

}  // namespace lockstep::detail::cuda
