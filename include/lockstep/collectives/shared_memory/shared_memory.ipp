#pragma once

#include "lockstep/collectives/shared_memory/shared_memory.hpp"

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
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {
namespace detail {

/// The first bytes of the memory.
struct SharedMemoryHead {
  static constexpr std::array<char, 8> name{'l', 'o', 'c', 'k', 's', 't', 'p', 'm'};
  static constexpr std::uint64_t current_layout = 2;

  std::array<char, 8> magic = name;
  std::uint64_t layout = current_layout;
  std::uint64_t bytes = 0, heap = 0;
  std::array<unsigned char, 32> proof{};
};

inline SharedMemoryHead head_of(const SharedMemory::Options& options) {
  SharedMemoryHead head;
  head.bytes = options.bytes;
  head.heap = options.heap;
  const std::string_view key =
      options.key.empty() ? "lockstep: a job without a secret" : std::string_view(options.key);
  const std::string text = format_text("lockstep shared memory\n{} {} {} {}\n{}\n", head.layout,
                                       head.bytes, head.heap, options.name.size(), options.name) +
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
  const int file = ::memfd_create("lockstep-exchange", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  check(file >= 0, "memfd_create");
  std::shared_ptr<SharedMemory> memory(new SharedMemory(file, options));
  check(::fchmod(file, 0600) == 0, "fchmod");
  // Beyond the limit ftruncate would raise SIGXFSZ, which ends the process.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < memory->file_bytes()) {
    memory->heap_bytes_ = 0;
    if (limit.rlim_cur < memory->file_bytes())
      throw Error("shared memory: it needs {} bytes, but the limit of file sizes (ulimit -f) is {}",
                  memory->file_bytes(), limit.rlim_cur);
  }
  check(::ftruncate(file, static_cast<off_t>(memory->file_bytes())) == 0, "ftruncate");
  check(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "sealing");
  memory->map();
  if (!memory->reserve(memory->begin_, page)) {
    do {
      errno = ::posix_fallocate(file, 0, static_cast<off_t>(page + options.bytes));
    } while (errno == EINTR);
    check(errno == 0, "posix_fallocate");
  }
  Options created = options;
  created.heap = memory->heap_bytes_;
  const detail::SharedMemoryHead head = detail::head_of(created);
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
  const std::string path = format_text("/proc/{}/fd/{}", number(place.substr(0, slash)),
                                       number(place.substr(slash + 1)));
  const auto opened = [&](const std::string& what, int flags) {
    const int file = ::open(what.c_str(), flags | O_CLOEXEC);
    if (file < 0)
      throw Error("shared memory: cannot open {}: {}", path, detail::system_message(errno));
    return file;
  };
  const auto check = [&](bool ok, const char* fact) {
    if (!ok) throw Error("shared memory: {} {}", path, fact);
  };
  // A path of it first, which has no effect on what it leads to, a pipe or a device perhaps.
  std::shared_ptr<SharedMemory> memory(new SharedMemory(opened(path, O_PATH), options));
  struct stat status{};
  check(::fstat(memory->file_, &status) == 0 && status.st_uid == ::geteuid(),
        "belongs to another user");
  check(S_ISREG(status.st_mode), "is not sealed memory");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size != memory->file_bytes()) memory->heap_bytes_ = 0;
  check(size == memory->file_bytes(), "has another size");
  const int file = opened(format_text("/proc/self/fd/{}", memory->file_), O_RDWR);
  ::close(std::exchange(memory->file_, file));
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int found = ::fcntl(file, F_GET_SEALS);
  check(found >= 0 && (found & seals) == seals, "is not sealed memory");
  memory->map();
  memory->close_file();
  Options created = options;
  created.heap = memory->heap_bytes_;
  const detail::SharedMemoryHead expected = detail::head_of(created);
  check(CRYPTO_memcmp(memory->begin_, &expected, sizeof expected) == 0,
        "was not made for this run of the job");
  return memory;
}

SharedMemory::~SharedMemory() {
  // In a forked child other memory may lie there.
  if (begin_ && process_ == ::getpid()) {
    ::munmap(begin_, page + bytes_);
    if (heap_) ::munmap(heap_, heap_bytes_);
  }
  close_file();
}

std::string SharedMemory::place() const { return format_text("{}/{}", ::getpid(), file_); }

void SharedMemory::close_file() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

bool SharedMemory::reserve(std::byte* p, std::size_t n) {
#ifdef MADV_POPULATE_WRITE
  constexpr int populate = MADV_POPULATE_WRITE;
#else
  constexpr int populate = 23;
#endif
  const auto system_page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(p) / system_page * system_page;
  const std::size_t all = reinterpret_cast<std::uintptr_t>(p) + n - begin;
  while (::madvise(reinterpret_cast<void*>(begin), all, populate) != 0) {
    if (errno == EINVAL) return false;
    if (errno != EINTR && errno != EAGAIN)
      throw Error("shared memory: cannot reserve {} bytes: {}", n, detail::system_message(errno));
  }
  return true;
}

void SharedMemory::map() {
  const auto mapped = [&](std::size_t bytes, std::size_t at) -> std::byte* {
    void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                           file_, static_cast<off_t>(at));
    if (p == MAP_FAILED) return nullptr;
    ::madvise(p, bytes, MADV_DONTFORK);
    return static_cast<std::byte*>(p);
  };
  process_ = ::getpid();
  begin_ = mapped(page + bytes_, 0);
  if (!begin_)
    throw Error("shared memory: mmap of {} bytes failed: {}", page + bytes_,
                detail::system_message(errno));
  if (heap_bytes_ == 0) return;
  heap_ = mapped(heap_bytes_, heap_at());  // null under a limit of address space
  if (heap_) ::madvise(heap_, heap_bytes_, MADV_DONTDUMP);
}

}  // namespace lockstep
