#pragma once

#include "lockstep/devices/cuda/command.hpp"

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail::cuda {

Grid Grid::over(std::size_t n, unsigned threads) {
  const std::size_t blocks = (n + threads - 1) / threads;
  return {{static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, max_blocks)), 1, 1},
          {threads, 1, 1}};
}

// Built on demand: pointers into bytes_ would not survive a copy of the object.
std::array<void*, Arguments::most> Arguments::pointers() {
  std::array<void*, most> all{};
  for (std::size_t i = 0; i < count_; ++i) all[i] = bytes_.data() + offset_[i];
  return all;
}

bool Arguments::operator==(const Arguments& other) const {
  return size_ == other.size_ && std::memcmp(bytes_.data(), other.bytes_.data(), size_) == 0;
}

bool Command::is_like(const Command& other) const {
  return kind == other.kind && function == other.function && grid == other.grid &&
         words == other.words;
}

std::string Command::title() const {
  return kind == Kind::kernel ? format_text("kernel '{}'", label()) : label();
}

std::string Command::label() const {
  switch (kind) {
    case Kind::kernel: {
      const char* entry = nullptr;
      // The driver knows the names of entry points, so commands do not store them.
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

void Command::execute(CUstream stream) {
  switch (kind) {
    case Kind::kernel: {
      auto pointers = arguments.pointers();
      check(driver().cuLaunchKernel(function, grid.blocks[0], grid.blocks[1], grid.blocks[2],
                                    grid.threads[0], grid.threads[1], grid.threads[2], 0, stream,
                                    pointers.data(), nullptr),
            "launching a kernel");
      return;
    }
    case Kind::copy_in:
      check(driver().cuMemcpyHtoDAsync(words[0], reinterpret_cast<const void*>(words[1]), words[2],
                                       stream),
            "copying to the GPU");
      return;
    case Kind::copy_out:
      check(
          driver().cuMemcpyDtoHAsync(reinterpret_cast<void*>(words[0]), words[1], words[2], stream),
          "copying from the GPU");
      return;
    case Kind::copy:
      check(driver().cuMemcpyDtoDAsync(words[0], words[1], words[2], stream), "copying on the GPU");
      return;
    case Kind::clear:
      check(driver().cuMemsetD8Async(words[0], 0, words[1], stream), "clearing memory");
      return;
    case Kind::call:
      run(stream);
      return;
  }
}

}  // namespace lockstep::detail::cuda
