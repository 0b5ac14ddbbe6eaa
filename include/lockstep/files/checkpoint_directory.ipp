#pragma once

#include "lockstep/files/checkpoint_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <system_error>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/crc32c.hpp"
#include "lockstep/core/process/file_descriptor.hpp"
#include "lockstep/core/process/standard_streams.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/files/input_file.hpp"
#include "lockstep/files/json_document.hpp"

namespace lockstep::detail {

inline constexpr std::size_t manifest_limit = std::size_t{16} << 20;
/// Bytes of a file that is not in memory as a whole.
inline constexpr std::size_t entry_block = std::size_t{1} << 20;
inline constexpr std::string_view entry_prefix = "step-", temporary_suffix = ".tmp";

CheckpointFault& checkpoint_fault() {
  static CheckpointFault fault = nullptr;
  return fault;
}

/// Whether a test makes this operation fail; sets errno.
[[gnu::cold]] inline bool fails(std::string_view operation) {
  const CheckpointFault fault = checkpoint_fault();
  const int code = fault == nullptr ? 0 : fault(operation);
  if (code != 0) errno = code;
  return code != 0;
}

/// \throws FileError for `errno`. `needed`: bytes that were to be written, 0 if unknown.
[[noreturn, gnu::cold]] inline void fail_checkpoint(const std::string& path, std::string_view fact,
                                                    std::uint64_t needed = 0) {
  const int code = errno;
  std::string remedy = "check the path, its permissions and the disk";
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    remedy = code == EFBIG ? "raise the limit of file sizes (ulimit -f)" : "free disk space";
    struct ::statvfs disk{};
    const std::string folder = path.substr(0, path.rfind('/'));
    if (needed > 0 && ::statvfs(folder.c_str(), &disk) == 0)
      remedy = format_text("the checkpoint needs {} bytes and the disk has {} free; {}", needed,
                           std::uint64_t{disk.f_bavail} * disk.f_frsize, remedy);
  } else if (code == EACCES || code == EROFS || code == EPERM) {
    remedy = "choose a directory that you may write to";
  } else if (code == ENOENT) {
    remedy = "create the folder that contains it";
  }
  throw FileError(path, "{} ({}); {}", fact, std::generic_category().message(code), remedy);
}

/// Syncs a folder to disk. Some file systems cannot and report EINVAL, which is not an error.
inline void sync_folder(const std::string& path, std::string_view name) {
  const std::string operation = format_text("fsync {}", name);
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fails(operation) || !folder.is_open() || (::fsync(folder.number()) != 0 && errno != EINVAL))
    fail_checkpoint(path, "its folder cannot be synced to disk");
}

/// Writes a file of an entry and syncs it to disk. \returns its CRC32C.
inline std::uint32_t write_entry_file(const std::string& path, const CheckpointFile& file,
                                      std::uint64_t needed) {
  if (fails("open " + file.name)) fail_checkpoint(path, "cannot be created", needed);
  FileDescriptor to(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!to.is_open()) fail_checkpoint(path, "cannot be created", needed);
  std::uint32_t crc = 0;
  constexpr std::size_t part = std::size_t{1} << 18;  // stays in the cache for the checksum
  constexpr ::off_t stretch = ::off_t{8} << 20;
  ::off_t written = 0, started = 0;
  const auto write = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (fails("write " + file.name)) fail_checkpoint(path, "cannot be written", needed);
      const ssize_t n = ::write(to.number(), bytes.data(), std::min(bytes.size(), part));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_checkpoint(path, "cannot be written", needed);
      crc = crc32c(bytes.data(), static_cast<std::size_t>(n), crc);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      written += n;
      if (written - started < stretch) continue;
      // Lets the disk begin now instead of at fsync; an error is fsync's to report.
      static_cast<void>(
          ::sync_file_range(to.number(), started, written - started, SYNC_FILE_RANGE_WRITE));
      started = written;
    }
  };
  for (const std::span<const std::byte> bytes : file.bytes) {
    if (!file.fetch) write(bytes);
    for (std::size_t at = 0; file.fetch && at < bytes.size(); at += entry_block)
      write(file.fetch(bytes.subspan(at, std::min(bytes.size() - at, entry_block))));
  }
  // An fsync that failed is not repeated: the kernel has dropped the pages that it could not write.
  if (fails("fsync " + file.name) || ::fsync(to.number()) != 0)
    fail_checkpoint(path, "cannot be synced to disk", needed);
  if (fails("close " + file.name) || !to.close()) fail_checkpoint(path, "cannot be closed", needed);
  return crc;
}

/// The names in a folder, without . and ..; nullopt if it cannot be read (errno).
inline std::optional<std::vector<std::string>> entry_names_in(const std::string& path) {
  struct Close {
    void operator()(::DIR* folder) const { ::closedir(folder); }
  };
  const std::unique_ptr<::DIR, Close> folder(::opendir(path.c_str()));
  if (!folder) return std::nullopt;
  std::vector<std::string> names;
  while (const ::dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Removes an entry's folder and its files, as far as possible; of a link, only the link.
inline void remove_entry(const std::string& path) {
  struct ::stat facts{};
  if (::lstat(path.c_str(), &facts) != 0) return;
  if (!S_ISDIR(facts.st_mode)) {
    ::unlink(path.c_str());
    return;
  }
  for (const std::string& name : entry_names_in(path).value_or(std::vector<std::string>{}))
    ::unlink((path + "/" + name).c_str());
  ::rmdir(path.c_str());
}

/// \throws FileError unless the file has nothing but the number of a process: a hard link to another
/// file must not be overwritten.
[[gnu::cold]] inline void check_lock_file(const FileDescriptor& file, const std::string& path) {
  char text[24] = {};
  const ssize_t n = ::pread(file.number(), text, sizeof text, 0);
  const std::string_view found(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  if (n < 0 || found.size() == sizeof text || found.find_first_not_of("0123456789") != found.npos)
    throw FileError(path, "it is not a lock file, which has the number of a process; move it away");
}

CheckpointDirectory::~CheckpointDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

std::string CheckpointDirectory::path_of(std::uint64_t step) const {
  return format_text("{}/{}{:09}", path_, entry_prefix, step);
}

void CheckpointDirectory::open_for_writing() {
  if (lock_ >= 0) return;
  if (path_.empty()) throw UsageError("checkpoint: the directory's name is empty; set .directory");
  reserve_standard_streams();
  const bool is_new = !fails("mkdir directory") && ::mkdir(path_.c_str(), 0777) == 0;
  if (!is_new && errno != EEXIST)
    fail_checkpoint(path_, "the checkpoint directory cannot be created");
  const std::size_t slash = path_.find_last_of('/', path_.find_last_not_of('/'));
  if (is_new) sync_folder(slash == std::string::npos ? "." : path_.substr(0, slash + 1), "parent");
  struct ::stat facts{};
  if (::stat(path_.c_str(), &facts) != 0)
    throw FileError(path_,
                    "it is a symbolic link whose target cannot be reached; remove the link, or "
                    "choose another directory");
  if (!S_ISDIR(facts.st_mode))
    throw FileError(path_, "it is not a directory; choose another path for the checkpoints");
  const std::string lock = path_ + "/lock";
  // The directory may come from elsewhere: a link here must not make another file be written.
  FileDescriptor file(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file.is_open() && errno == ELOOP)
    throw FileError(lock, "it is a symbolic link instead of a lock file; remove it");
  if (fails("open lock") || !file.is_open())
    fail_checkpoint(path_, "cannot write into the checkpoint directory");
  if (fails("lock") || ::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      throw FileError(
          lock,
          "cannot be locked ({}), and only one process may write checkpoints here; mount "
          "the file system with locks (Lustre: -o flock), or choose a directory on "
          "another one",
          std::generic_category().message(errno));
    char text[24] = {};
    const ssize_t n = ::pread(file.number(), text, sizeof text - 1, 0);
    const auto owner = whole_number<std::uint64_t>(
        std::string_view(text, n > 0 ? static_cast<std::size_t>(n) : 0));
    throw DirectoryInUse(path_,
                         "another process writes checkpoints here{}; end it, or choose another "
                         "directory",
                         owner ? format_text(" (process {})", *owner) : std::string());
  }
  check_lock_file(file, lock);
  const std::string owner = std::to_string(::getpid());
  if (::ftruncate(file.number(), 0) != 0 ||
      ::pwrite(file.number(), owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size()))
    fail_checkpoint(lock, "cannot be written");
  for (const std::string& name : entry_names_in(path_).value_or(std::vector<std::string>{}))
    if (name.starts_with(entry_prefix) && name.ends_with(temporary_suffix))
      remove_entry(path_ + "/" + name);
  for (const char* const name : {"/latest", "/best"})
    ::unlink((path_ + name + std::string(temporary_suffix)).c_str());
  lock_ = ::fcntl(file.number(), F_DUPFD_CLOEXEC,
                  0);  // shares the lock, which ends when both are closed
  if (lock_ < 0) fail_checkpoint(lock, "cannot be kept open");
}

std::vector<std::uint64_t> CheckpointDirectory::steps() const {
  std::vector<std::uint64_t> found;
  const auto names = entry_names_in(path_);
  if (!names) {
    if (errno == ENOENT) return found;
    fail_checkpoint(path_, "the checkpoint directory cannot be read");
  }
  for (const std::string& name : *names) {
    if (!name.starts_with(entry_prefix)) continue;
    const auto step =
        whole_number<std::uint64_t>(std::string_view(name).substr(entry_prefix.size()));
    if (step && path_of(*step) == path_ + "/" + name) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void CheckpointDirectory::write(std::uint64_t step, const std::vector<CheckpointFile>& files,
                                std::string description) {
  if (lock_ < 0)
    throw UsageError("{}: the checkpoint directory is not open; call open_for_writing first",
                     path_);
  const std::string entry = path_of(step), temporary = entry + std::string(temporary_suffix);
  std::uint64_t needed = 0;
  for (const CheckpointFile& file : files)
    for (const auto& bytes : file.bytes) needed += bytes.size();
  remove_entry(temporary);
  bool exchanged = false;
  if (fails("mkdir entry") || ::mkdir(temporary.c_str(), 0777) != 0)
    fail_checkpoint(temporary, "cannot be created", needed);
  try {
    std::string list;
    for (const CheckpointFile& file : files) {
      const std::uint32_t crc = write_entry_file(temporary + "/" + file.name, file, needed);
      std::uint64_t size = 0;
      for (const auto& bytes : file.bytes) size += bytes.size();
      list += format_text("{}\n    {{\"name\": {}, \"size\": {}, \"crc32c\": \"{:08x}\"}}",
                          list.empty() ? "" : ",", json_string(file.name), size, crc);
    }
    std::string text = std::move(description) + ",\n  \"files\": [" + list + "],\n";
    text += format_text("  \"crc32c\": \"{:08x}\"\n}}\n", crc32c(text.data(), text.size()));
    if (text.size() > manifest_limit)
      throw FileError(temporary, "its manifest would have {} bytes, more than {}; save less state",
                      text.size(), manifest_limit);
    write_entry_file(temporary + "/" + std::string(manifest_name),
                     {std::string(manifest_name), {std::as_bytes(std::span(text))}}, needed);
    sync_folder(temporary, "entry");
    struct ::stat facts{};
    // An entry of this step may be here if it was refused as damaged, so that training resumed from
    // an older one.
    const bool replaces = ::lstat(entry.c_str(), &facts) == 0;
    if (fails("rename entry"))
      fail_checkpoint(entry, "the temporary entry cannot be renamed to this path", needed);
    exchanged = replaces && ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, entry.c_str(),
                                        RENAME_EXCHANGE) == 0;
    if (!exchanged) {
      if (replaces) remove(step);  // the file system cannot exchange two folders
      if (::rename(temporary.c_str(), entry.c_str()) != 0)
        fail_checkpoint(entry, "the temporary entry cannot be renamed to this path", needed);
    }
  } catch (...) {
    remove_entry(temporary);
    throw;
  }
  sync_folder(path_, "directory");
  // Only now: after a power failure the old entry may have its name again.
  if (exchanged) remove_entry(temporary);
  // A hint, so it is not synced, and an error is not one of the checkpoint.
  if (!fails("write latest")) note("latest", step);
}

void CheckpointDirectory::note(std::string_view name, std::uint64_t step) {
  const std::string path = format_text("{}/{}", path_, name),
                    next = path + std::string(temporary_suffix);
  const std::string line = path_of(step).substr(path_.size() + 1) + "\n";
  ::unlink(next.c_str());  // and not through a link
  const FileDescriptor hint(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (hint.is_open() &&
      ::write(hint.number(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
      !fails(format_text("rename {}", name)))
    static_cast<void>(::rename(next.c_str(), path.c_str()) == 0);
}

/// \throws CheckpointError.
[[noreturn, gnu::cold]] inline void refuse_damaged(const std::string& path,
                                                   const std::string& fact) {
  throw CheckpointError(path, "{}; the checkpoint is damaged, use an older one", fact);
}

/// The text before the manifest's own checksum, which must match. \throws CheckpointError.
inline void check_manifest(const std::string& path, std::string_view text) {
  constexpr std::string_view before = "  \"crc32c\": \"", after = "\"\n}\n";
  const std::size_t tail = before.size() + 8 + after.size();
  if (text.size() < tail) refuse_damaged(path, "the manifest is truncated");
  const std::string_view head = text.substr(0, text.size() - tail);
  if (text.substr(head.size()) !=
      format_text("{}{:08x}{}", before, crc32c(head.data(), head.size()), after))
    refuse_damaged(path, "the manifest does not match its own checksum");
}

/// The checksum of the rest of a file, of which `bytes` are the beginning and get as many more as `kept`
/// wants.
[[gnu::cold]] inline std::uint32_t check_rest(InputFile& file, std::vector<std::byte>& bytes,
                                              std::uint64_t kept) {
  std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  std::uint64_t left = file.size() - bytes.size();
  if (kept < bytes.size()) bytes.resize(static_cast<std::size_t>(kept));
  while (left > 0) {
    const auto next =
        file.next(static_cast<std::size_t>(std::min<std::uint64_t>(left, entry_block)));
    left -= next.size();
    crc = crc32c(next.data(), next.size(), crc);
    const auto more = std::min<std::uint64_t>(kept - bytes.size(), next.size());
    bytes.insert(bytes.end(), next.begin(), next.begin() + static_cast<std::ptrdiff_t>(more));
  }
  return crc;
}

CheckpointEntry CheckpointDirectory::read(std::uint64_t step, const SizeCheck& check,
                                          const Kept& kept) const {
  constexpr std::size_t limit = manifest_limit;
  CheckpointEntry entry{path_of(step), {}, {}};
  const std::string path = entry.path + "/" + std::string(manifest_name);
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT)
    refuse_damaged(path, "the manifest is missing");
  {
    InputFile file(path);
    if (file.size() > limit)
      refuse_damaged(path,
                     format_text("the manifest has {} bytes, more than {}", file.size(), limit));
    const auto bytes = file.next(static_cast<std::size_t>(file.size()));
    entry.manifest.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  check_manifest(path, entry.manifest);
  struct Listed {
    std::string name, crc;
    std::uint64_t size;
  };
  std::vector<Listed> listed;
  try {
    const JsonDocument document(entry.manifest, path, {.bytes = limit});
    for (const JsonValue& file : json_list(document.root(), "files"))
      listed.push_back({std::string(json_text(file, "name")),
                        std::string(json_text(file, "crc32c")), json_natural(file, "size")});
  } catch (const JsonError& e) {
    throw CheckpointError(path, "{}; it was written by another program or version", e.what());
  }
  for (const Listed& file : listed)
    if (check) check(entry, file.name, file.size);
  for (const Listed& file : listed) {
    const std::string name = entry.path + "/" + file.name;
    if (file.name.find('/') != std::string::npos || file.name.starts_with('.'))
      refuse_damaged(path, format_text("the file name {} is not allowed", quote(file.name)));
    if (::access(name.c_str(), F_OK) != 0 && errno == ENOENT)
      refuse_damaged(name, "the file is missing");
    InputFile input(name);
    if (input.size() != file.size)
      refuse_damaged(name, format_text("it has {} bytes instead of {}", input.size(), file.size));
    auto bytes = input.next(static_cast<std::size_t>(
        kept ? std::min<std::uint64_t>(file.size, entry_block) : file.size));
    const std::uint64_t most = kept ? std::min(kept(file.name, bytes), file.size) : file.size;
    if (format_text("{:08x}", check_rest(input, bytes, most)) != file.crc)
      refuse_damaged(name, "its content does not match its checksum");
    entry.files.emplace(file.name, std::move(bytes));
  }
  return entry;
}

void CheckpointDirectory::remove_all() {
  for (const std::uint64_t step : steps()) remove(step);
  for (const char* const name : {"/latest", "/best"}) ::unlink((path_ + name).c_str());
}

void CheckpointDirectory::remove(std::uint64_t step) {
  const std::string entry = path_of(step),
                    temporary = entry + ".old" + std::string(temporary_suffix);
  remove_entry(temporary);
  if (fails("rename old entry") || ::rename(entry.c_str(), temporary.c_str()) != 0)
    fail_checkpoint(entry, "cannot be removed");
  if (fails("remove old entry")) return;
  remove_entry(temporary);
}

}  // namespace lockstep::detail
