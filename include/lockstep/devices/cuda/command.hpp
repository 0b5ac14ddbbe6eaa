/// \file
/// One call that a replica makes of its GPU: a kernel with its arguments, a copy, a library's call.
/// Invariant: two calls that are alike may share a place in a graph.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Blocks and threads of a launch.
struct Grid {
  std::array<unsigned, 3> blocks{1, 1, 1}, threads{1, 1, 1};
  bool operator==(const Grid&) const = default;

  /// For a loop over `n` elements, `for (i64 i = INDEX; i < n; i += STRIDE)`.
  LOCKSTEP_DECL static Grid over(std::size_t n, unsigned threads = 256);
  static constexpr std::size_t max_blocks = 1 << 16;
};

/// The arguments of a kernel, by value.
class Arguments {
 public:
  static constexpr std::size_t capacity = 240, most = 24;

  template <class... Ts>
  explicit Arguments(const Ts&... values) {
    static_assert(sizeof...(Ts) <= most && (std::is_trivially_copyable_v<Ts> && ...));
    (add(values), ...);
  }
  Arguments() = default;

  /// As cuLaunchKernel wants them; valid while this object lives.
  LOCKSTEP_DECL std::array<void*, most> pointers();
  LOCKSTEP_DECL bool operator==(const Arguments& other) const;

 private:
  template <class T>
  void add(const T& value) {
    const std::size_t at = (size_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (at + sizeof(T) > capacity) throw DeviceError("cuda: a kernel has too many arguments");
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    offset_[count_++] = static_cast<std::uint8_t>(at);
    size_ = at + sizeof(T);
  }

  alignas(16) std::array<std::byte, capacity> bytes_{};  // gaps between arguments stay zero
  std::array<std::uint8_t, most> offset_{};
  std::size_t count_ = 0, size_ = 0;
};

/// One call.
struct Command {
  enum class Kind { kernel, copy_in, copy_out, copy, clear, call };
  Kind kind = Kind::call;
  // A kernel's.
  CUfunction function = nullptr;
  Grid grid{};
  Arguments arguments{};
  // A copy's: to, from, bytes. A call's: whatever tells it from others.
  std::array<std::uint64_t, 8> words{};
  std::function<void(CUstream)> run{};
  const char* name = "";  // a call's, for messages

  /// Whether the two commands are equal, except for a kernel's arguments.
  LOCKSTEP_DECL bool is_like(const Command& other) const;

  /// "kernel 'normalize'", "cuDNN convolution", "copy to the GPU".
  LOCKSTEP_COLD_DECL std::string title() const;
  /// The same with a kernel's name alone.
  LOCKSTEP_COLD_DECL std::string label() const;

  LOCKSTEP_DECL void execute(CUstream stream);
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/command.ipp"
#endif
