#pragma once

#include "lockstep/files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/process/standard_streams.hpp"
#include "lockstep/files/file_status.hpp"

namespace lockstep {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const FileKind found = file_status(path_).kind;
  if (path_.empty() || path_.back() == '/' || found == FileKind::folder)
    throw FileError(path_, "it is a folder; give the name of a file");
  if (found == FileKind::other)
    throw FileError(path_,
                    "it is not a regular file but a device, FIFO or socket, which committing would "
                    "replace; give the name of a file");
  if (detail::names_open_file(path_))
    throw FileError(path_,
                    "it stands for a file that this process has open, which committing would "
                    "replace; give the name of a file");
  target_ = path_;
  detail::reserve_standard_streams();
  struct ::stat link{};
  if (::lstat(path_.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    char* const real = ::realpath(path_.c_str(), nullptr);
    if (real == nullptr)
      throw FileError(path_,
                      "it is a symbolic link whose target cannot be reached; remove the link, or "
                      "give the name of a file");
    target_ = real;
    std::free(real);
  }
  const std::size_t slash = target_.rfind('/');
  folder_ = slash == std::string::npos ? "." : slash == 0 ? "/" : target_.substr(0, slash);
  struct ::stat old{};
  const bool replaces = ::stat(target_.c_str(), &old) == 0;
  static std::atomic<unsigned> counter{0};
  do {
    temporary_ = format_text("{}/.lockstep-{}-{}.tmp", folder_, ::getpid(), counter++);
    descriptor_ =
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0)
    fail("cannot write into its folder", "create the folder, or choose one that you may write to");
  if (replaces) inherit(old);
}

AtomicFile::~AtomicFile() { drop(); }

void AtomicFile::write(std::span<const std::byte> bytes) {
  require_open();
  while (!bytes.empty()) {
    // Linux transfers at most 2 GiB per call.
    const ssize_t n =
        ::write(descriptor_, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot be written", "free disk space, or choose another folder");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::sync() {
  require_open();
  if (::fsync(descriptor_) != 0) fail("cannot be synced to disk", "check the disk");
  if (::close(std::exchange(descriptor_, -1)) != 0)
    fail("cannot be closed", "free disk space, or choose another folder");
}

void AtomicFile::commit() {
  if (descriptor_ >= 0 || temporary_.empty()) sync();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0)
    fail("the temporary file cannot be renamed to this path", "check the folder's permissions");
  temporary_.clear();
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = folder >= 0 && ::fsync(folder) == 0;
  const int code = errno;
  if (folder >= 0) ::close(folder);
  // Some file systems cannot sync a folder and report EINVAL, which is not an error of the file.
  if (!synced && code != EINVAL) {
    errno = code;
    fail("written, but its folder cannot be synced to disk", "check the disk");
  }
}

void AtomicFile::inherit(const struct ::stat& old) {
  struct ::stat now{};
  if (::fstat(descriptor_, &now) != 0) return;
  if ((now.st_uid != old.st_uid || now.st_gid != old.st_gid) &&
      ::fchown(descriptor_, old.st_uid, old.st_gid) != 0)
    static_cast<void>(::fchown(descriptor_, static_cast<uid_t>(-1), old.st_gid) == 0);
  ::mode_t mode = old.st_mode & 07777;
  if (::fstat(descriptor_, &now) != 0 || now.st_gid != old.st_gid)
    mode &= ~::mode_t{S_IRWXG} | (mode & S_IRWXO) << 3;  // a different group gets the rights of
                                                         // others
  static_cast<void>(::fchmod(descriptor_, mode) == 0);
}

void AtomicFile::require_open() const {
  if (descriptor_ < 0)
    throw UsageError(
        "{}: the file was already committed, or an error closed it; open a new AtomicFile", path_);
}

void AtomicFile::fail(std::string_view fact, std::string_view remedy) {
  const int code = errno;
  drop();
  if (code == EFBIG) remedy = "raise the limit of file sizes (ulimit -f)";
  throw FileError(path_, "{} ({}); {}", fact, std::generic_category().message(code), remedy);
}

void AtomicFile::drop() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void check_writable(const std::string& path) { const AtomicFile probe(path); }

}  // namespace lockstep
