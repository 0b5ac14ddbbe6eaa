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

#include "lockstep/core/text.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Blocks and threads of a launch.
struct Grid {
  std::array<unsigned, 3> blocks{1, 1, 1}, threads{1, 1, 1};
  bool operator==(const Grid&) const = default;

  /// For a loop over `n` elements, `for (i64 i = INDEX; i < n; i += STRIDE)`.
  static Grid over(std::size_t n, unsigned threads = 256) {
    const std::size_t blocks = (n + threads - 1) / threads;
    return {{static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, most_blocks)), 1, 1},
            {threads, 1, 1}};
  }
  static constexpr std::size_t most_blocks = 1 << 16;
};

/// The arguments of a kernel, by value.
class Arguments {
 public:
  static constexpr std::size_t room = 240, most = 24;

  template <class... Ts>
  explicit Arguments(const Ts&... values) {
    static_assert(sizeof...(Ts) <= most && (std::is_trivially_copyable_v<Ts> && ...));
    (add(values), ...);
  }
  Arguments() = default;

  /// As cuLaunchKernel wants them; valid while this object lives.
  std::array<void*, most> pointers() {
    std::array<void*, most> all{};
    for (std::size_t i = 0; i < count_; ++i) all[i] = bytes_.data() + offset_[i];
    return all;
  }
  bool operator==(const Arguments& other) const {
    return size_ == other.size_ && std::memcmp(bytes_.data(), other.bytes_.data(), size_) == 0;
  }

 private:
  template <class T>
  void add(const T& value) {
    const std::size_t at = (size_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (at + sizeof(T) > room) throw DeviceError("cuda: a kernel has too many arguments");
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    offset_[count_++] = static_cast<std::uint8_t>(at);
    size_ = at + sizeof(T);
  }

  alignas(16) std::array<std::byte, room> bytes_{};  // gaps between arguments stay zero
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
  bool is_like(const Command& other) const {
    return kind == other.kind && function == other.function && grid == other.grid &&
           words == other.words;
  }

  /// "kernel 'normalize'", "cuDNN convolution", "copy to the GPU".
  [[gnu::cold]] std::string title() const {
    return kind == Kind::kernel ? text({"kernel '", label(), "'"}) : label();
  }
  /// The same with a kernel's name alone.
  [[gnu::cold]] std::string label() const {
    switch (kind) {
      case Kind::kernel: {
        const char* entry = nullptr;
        const CUresult result = driver().cuFuncGetName(&entry, function);
        return result == CUDA_SUCCESS && entry != nullptr ? entry : "unknown";
      }
      case Kind::copy_in:
        return "copy to the GPU";
      case Kind::copy_out:
        return "copy from the GPU";
      case Kind::copy:
        return "copy";
      case Kind::clear:
        return "clear";
      case Kind::call:
        return name;
    }
    return "";
  }

  void execute(CUstream stream) {
    switch (kind) {
      case Kind::kernel: {
        auto pointers = arguments.pointers();
        check(driver().cuLaunchKernel(function, grid.blocks[0], grid.blocks[1], grid.blocks[2],
                                      grid.threads[0], grid.threads[1], grid.threads[2], 0, stream,
                                      pointers.data(), nullptr),
              "starting a kernel");
        return;
      }
      case Kind::copy_in:
        check(driver().cuMemcpyHtoDAsync(words[0], reinterpret_cast<const void*>(words[1]),
                                         words[2], stream),
              "copying to the GPU");
        return;
      case Kind::copy_out:
        check(driver().cuMemcpyDtoHAsync(reinterpret_cast<void*>(words[0]), words[1], words[2],
                                         stream),
              "copying from the GPU");
        return;
      case Kind::copy:
        check(driver().cuMemcpyDtoDAsync(words[0], words[1], words[2], stream),
              "copying on the GPU");
        return;
      case Kind::clear:
        check(driver().cuMemsetD8Async(words[0], 0, words[1], stream), "clearing memory");
        return;
      case Kind::call:
        run(stream);
        return;
    }
  }
};

}  // namespace lockstep::detail::cuda
