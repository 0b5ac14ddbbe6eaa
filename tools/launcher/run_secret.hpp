/// \file
/// The secret of a job in lockstep-run. Invariant: it is only in pages that core dumps leave out
/// and that are wiped before they are returned.
#pragma once

#include <string.h>  // NOLINT(modernize-deprecated-headers): explicit_bzero
#include <sys/mman.h>
#include <sys/random.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "run_descriptor.hpp"

namespace lockstep_run {

/// Pages for secret bytes.
class SecretPages {
 public:
  explicit SecretPages(std::size_t size)
      : size_(size),
        data_(static_cast<char*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (static_cast<void*>(data_) == MAP_FAILED) fail("no memory for the secret");
    ::madvise(data_, size_, MADV_DONTDUMP);  // best effort
  }
  SecretPages(const SecretPages&) = delete;
  SecretPages& operator=(const SecretPages&) = delete;
  ~SecretPages() {
    ::explicit_bzero(data_, size_);
    ::munmap(data_, size_);
  }
  char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  char* data_;
};

/// A secret as text.
class SecretText {
 public:
  /// 64 random hexadecimal digits.
  SecretText() : pages_(2 * bytes) {
    std::array<unsigned char, bytes> random{};
    if (::getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes))
      fail("cannot get random bytes");
    constexpr std::string_view digits = "0123456789abcdef";
    for (std::size_t i = 0; i < bytes; ++i) {
      pages_.data()[2 * i] = digits[random[i] >> 4];
      pages_.data()[2 * i + 1] = digits[random[i] & 15];
    }
    ::explicit_bzero(random.data(), bytes);
  }
  std::string_view text() const { return {pages_.data(), pages_.size()}; }

 private:
  static constexpr std::size_t bytes = 32;
  SecretPages pages_;
};

}  // namespace lockstep_run
