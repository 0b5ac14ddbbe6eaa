/// \file
/// One command of a replica to its GPU: a kernel with its arguments, a copy, a memset or a library
/// call. Invariant: commands for which `is_like` holds can share a node of a graph.
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

/// Blocks and threads of a kernel launch.
struct Grid {
  std::array<unsigned, 3> blocks{1, 1, 1}, threads{1, 1, 1};
  bool operator==(const Grid&) const = default;

  /// One thread per element, up to a limit, for `for (i64 i = INDEX; i < n; i += STRIDE)`.
  LOCKSTEP_DECL static Grid over(std::size_t n, unsigned threads = 256);
  /// Larger loops give each thread several elements.
  static constexpr std::size_t max_blocks = 1 << 16;
};

/// Kernel arguments by value, packed at their natural alignment in a fixed buffer, so that
/// recording a launch does not allocate.
class Arguments {
 public:
  /// Bytes, and number of arguments.
  static constexpr std::size_t capacity = 240, most = 24;

  template <class... Ts>
  explicit Arguments(const Ts&... values) {
    static_assert(sizeof...(Ts) <= most && (std::is_trivially_copyable_v<Ts> && ...));
    (add(values), ...);
  }
  Arguments() = default;

  /// Pointers as cuLaunchKernel expects them; valid while this object lives.
  LOCKSTEP_DECL std::array<void*, most> pointers();
  LOCKSTEP_DECL bool operator==(const Arguments& other) const;

 private:
  /// Appends an argument. \throws DeviceError if the buffer is full.
  template <class T>
  void add(const T& value) {
    const std::size_t at = (size_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (at + sizeof(T) > capacity) throw DeviceError("cuda: a kernel has too many arguments");
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    offset_[count_++] = static_cast<std::uint8_t>(at);
    size_ = at + sizeof(T);
  }

  alignas(16) std::array<std::byte, capacity> bytes_{};  // padding stays zero, for operator==
  std::array<std::uint8_t, most> offset_{};
  std::size_t count_ = 0, size_ = 0;
};

/// One command.
struct Command {
  enum class Kind { kernel, copy_in, copy_out, copy, clear, call };
  Kind kind = Kind::call;
  // for a kernel
  CUfunction function = nullptr;
  Grid grid{};
  Arguments arguments{};
  // For a copy: to, from, bytes. For a library call: everything that distinguishes it.
  std::array<std::uint64_t, 8> words{};
  std::function<void(CUstream)> run{};
  const char* name = "";  // of a library call, for messages

  /// Whether the commands are equal except for kernel arguments.
  LOCKSTEP_DECL bool is_like(const Command& other) const;

  /// For messages: "kernel 'normalize'", "cuDNN convolution", "copy to the GPU".
  LOCKSTEP_COLD_DECL std::string title() const;
  /// For profiles: the same, with a kernel's name only.
  LOCKSTEP_COLD_DECL std::string label() const;

  /// Enqueues the command on the stream. \throws DeviceError.
  LOCKSTEP_DECL void execute(CUstream stream);
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/command.ipp"
#endif
