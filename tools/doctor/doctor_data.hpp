/// \file
/// Fingerprints of data sets and programs: names, sizes, and a digest of samples of the contents.
/// Invariants: it reads at most 192 KiB of each of 200 files of a folder, and 192 MiB of a single
/// file; the result does not depend on the order in which the file system lists the files.
#pragma once

#include <sys/stat.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/core/format_numbers.hpp>
#include <lockstep/core/numbers/sha256.hpp>

namespace lockstep_doctor {

/// A data set as the doctor compares it.
struct Fingerprint {
  std::string text{};   ///< "4 files, 52.4 MB, 0123456789abcdef"; equal if the data sets are
  std::string list{};   ///< the first files: a line "name size digest" for each
  std::string fault{};  ///< why there is none
  std::string doubt{};  ///< why it is not known
};

/// 16 hexadecimal digits over the first, the middle and the last `part` bytes of a file, or
/// "unreadable".
inline std::string sample_digest(const std::filesystem::path& path, std::uintmax_t size,
                                 std::size_t part) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(static_cast<std::size_t>(std::min<std::uintmax_t>(size, part)));
  std::vector<std::uintmax_t> begins{0};
  if (size > part) begins = {0, size / 2, size - part};
  lockstep::Sha256 sha;
  std::uintmax_t read = 0;
  for (const std::uintmax_t begin : begins) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(begin));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto got = static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0));
    sha.update(std::as_bytes(std::span(bytes.data(), got)));
    read += got;
  }
  return size > 0 && read == 0 ? "unreadable" : sha.hex().substr(0, 16);
}

/// The regular files of a folder and its subfolders, through symbolic links too.
class FileWalk {
 public:
  struct Entry {
    std::string name;  ///< relative to the folder
    std::uintmax_t size;
  };
  static constexpr std::size_t most_files = 1'000'000;

  FileWalk(const std::filesystem::path& root, std::chrono::steady_clock::time_point deadline)
      : root_(root), deadline_(deadline) {
    walk(root);
  }

  std::vector<Entry>& entries() { return entries_; }
  const std::error_code& error() const { return error_; }
  bool is_late() const { return is_late_; }

 private:
  using Identity = std::pair<dev_t, ino_t>;

  /// Skips folders that this user may not read, lost+found, and links to a folder that they are in.
  void walk(const std::filesystem::path& folder) {
    namespace fs = std::filesystem;
    struct stat status{};
    if (::stat(folder.c_str(), &status) != 0) return;  // it has just disappeared
    const Identity identity{status.st_dev, status.st_ino};
    if (std::find(above_.begin(), above_.end(), identity) != above_.end()) return;
    const auto options = above_.empty() ? fs::directory_options::none
                                        : fs::directory_options::skip_permission_denied;
    above_.push_back(identity);
    fs::directory_iterator entry(folder, options, error_), end;
    for (; !error_ && entry != end && entries_.size() < most_files; entry.increment(error_)) {
      is_late_ = is_late_ || std::chrono::steady_clock::now() > deadline_;
      if (is_late_) break;
      std::error_code gone;  // a file may disappear, or be a broken link or a circle of links
      if (entry->is_directory(gone) && entry->path().filename() != "lost+found")
        walk(entry->path());
      if (error_) break;  // of that folder
      if (entry->is_regular_file(gone))
        entries_.push_back(
            {entry->path().lexically_relative(root_).string(), entry->file_size(gone)});
    }
    above_.pop_back();
  }

  const std::filesystem::path root_;
  const std::chrono::steady_clock::time_point deadline_;
  std::vector<Entry> entries_;
  std::vector<Identity> above_;  // the folder and those that it is in
  std::error_code error_;
  bool is_late_ = false;
};

/// Fingerprint of a folder and its subfolders, or of a file; none if that takes longer than `limit`.
inline Fingerprint fingerprint(const std::string& place,
                               std::chrono::milliseconds limit = std::chrono::hours(1)) {
  constexpr std::size_t most_sampled = 200, most_list_bytes = 20'000;
  namespace fs = std::filesystem;
  using Entry = FileWalk::Entry;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const Fingerprint late{
      .doubt = fmt::format("{} takes longer than {} s to read", place, limit.count() / 1000)};
  std::vector<Entry> entries;
  std::error_code error;
  const fs::path root(place);
  if (fs::is_regular_file(root, error)) {
    entries.push_back({root.filename().string(), fs::file_size(root, error)});
  } else if (fs::is_directory(root, error)) {
    FileWalk walk(root, deadline);
    if (walk.is_late()) return late;
    error = walk.error();
    entries = std::move(walk.entries());
  } else {
    return {.fault = fmt::format("{} does not exist", place)};
  }
  if (error) return {.fault = fmt::format("{}: {}", place, error.message())};
  if (entries.empty()) return {.fault = fmt::format("{} has no files", place)};
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  const bool is_file = fs::is_regular_file(root, error);
  const fs::path folder = is_file ? root.parent_path() : root;
  const std::size_t part = std::size_t{64} << (is_file ? 20 : 10);
  // Samples are spread evenly over a large data set.
  const std::size_t stride = (entries.size() + most_sampled - 1) / most_sampled;
  Fingerprint result;
  lockstep::Sha256 all;
  std::uintmax_t bytes = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, size] = entries[i];
    bytes += size;
    if (std::chrono::steady_clock::now() > deadline) return late;
    const std::string line = fmt::format(
        "{} {} {}\n", name, size, i % stride == 0 ? sample_digest(folder / name, size, part) : "-");
    all.update(std::as_bytes(std::span(line)));
    if (result.list.size() + line.size() < most_list_bytes) result.list += line;
  }
  result.text = fmt::format("{} file{}, {}, {}", entries.size(), entries.size() == 1 ? "" : "s",
                            lockstep::detail::format_bytes(bytes), all.hex().substr(0, 16));
  return result;
}

}  // namespace lockstep_doctor
