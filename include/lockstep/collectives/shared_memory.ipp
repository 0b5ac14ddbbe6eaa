#pragma once

#include "lockstep/collectives/shared_memory.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {
namespace detail {

/// The first bytes of the memory.
struct SharedMemoryHead {
  static constexpr std::array<char, 8> name{'l', 'o', 'c', 'k', 's', 't', 'p', 'm'};
  static constexpr std::uint64_t current_layout = 1;

  std::array<char, 8> magic = name;
  std::uint64_t layout = current_layout;
  std::uint64_t bytes = 0;
  std::array<unsigned char, 32> proof{};
};

inline SharedMemoryHead head_of(const SharedMemory::Options& options) {
  SharedMemoryHead head;
  head.bytes = options.bytes;
  const std::string_view key =
      options.key.empty() ? "lockstep: a job without a secret" : std::string_view(options.key);
  const std::string text = fmt::format("lockstep shared memory\n{} {} {}\n{}\n", head.layout,
                                       head.bytes, options.name.size(), options.name) +
                           options.run;
  unsigned int length = 0;
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          head.proof.data(), &length);
  if (!made || length != head.proof.size())
    throw Error(
        "shared memory: OpenSSL refused HMAC-SHA256; check that its configuration permits it");
  return head;
}

inline std::string system_message(int error) {
  return std::error_code(error, std::system_category()).message();
}

}  // namespace detail

std::shared_ptr<SharedMemory> SharedMemory::create(const Options& options) {
  const auto check = [](bool ok, const char* what) {
    if (!ok) throw Error("shared memory: {} failed: {}", what, detail::system_message(errno));
  };
  // Beyond the limit ftruncate would raise SIGXFSZ, which ends the process.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < options.bytes + page)
    throw Error("shared memory: it needs {} bytes, but the limit of file sizes (ulimit -f) is {}",
                options.bytes + page, limit.rlim_cur);
  const int file = ::memfd_create("lockstep-exchange", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  check(file >= 0, "memfd_create");
  std::shared_ptr<SharedMemory> memory(new SharedMemory(file, options.bytes + page));
  check(::fchmod(file, 0600) == 0, "fchmod");
  check(::ftruncate(file, static_cast<off_t>(memory->bytes_)) == 0, "ftruncate");
  // Reserved now, because a page that cannot be had later would raise SIGBUS.
  do {
    errno = ::posix_fallocate(file, 0, static_cast<off_t>(memory->bytes_));
  } while (errno == EINTR);
  check(errno == 0, "posix_fallocate");
  check(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "sealing");
  memory->map();
  const detail::SharedMemoryHead head = detail::head_of(options);
  std::memcpy(memory->begin_, &head, sizeof head);
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::open(std::string_view place, const Options& options) {
  const std::size_t slash = place.find('/');
  const auto number = [&](std::string_view digits) {
    const auto value = detail::whole_number<std::uint32_t>(digits);
    if (slash == std::string_view::npos || !value)
      throw Error("shared memory: {} is not a place; expected 'PID/FD'", detail::quote(place));
    return *value;
  };
  const std::string path = fmt::format("/proc/{}/fd/{}", number(place.substr(0, slash)),
                                       number(place.substr(slash + 1)));
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0)
    throw Error("shared memory: cannot open {}: {}", path, detail::system_message(errno));
  std::shared_ptr<SharedMemory> memory(new SharedMemory(file, options.bytes + page));
  const auto check = [&](bool ok, const char* fact) {
    if (!ok) throw Error("shared memory: {} {}", path, fact);
  };
  struct stat status{};
  check(::fstat(file, &status) == 0 && status.st_uid == ::geteuid(), "belongs to another user");
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int found = ::fcntl(file, F_GET_SEALS);
  check(found >= 0 && (found & seals) == seals, "is not sealed memory");
  check(static_cast<std::size_t>(status.st_size) == memory->bytes_, "has another size");
  memory->map();
  memory->close_file();
  const detail::SharedMemoryHead expected = detail::head_of(options);
  check(CRYPTO_memcmp(memory->begin_, &expected, sizeof expected) == 0,
        "was not made for this run of the job");
  return memory;
}

SharedMemory::~SharedMemory() {
  if (begin_) ::munmap(begin_, bytes_);
  close_file();
}

std::string SharedMemory::place() const { return fmt::format("{}/{}", ::getpid(), file_); }

void SharedMemory::close_file() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void SharedMemory::map() {
  void* const begin =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, 0);
  if (begin == MAP_FAILED)
    throw Error("shared memory: mmap of {} bytes failed: {}", bytes_,
                detail::system_message(errno));
  begin_ = static_cast<std::byte*>(begin);
}

}  // namespace lockstep
