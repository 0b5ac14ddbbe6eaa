/// \file
/// NPZ, numpy's file format for several arrays: a zip archive of NPY files.
///
///     local header, data | local header, data | ... | directory | end record, comment
///
/// Invariants: the whole directory is validated when the file is read; an array is inflated on
/// request, and its length and checksum are verified.
///
/// Not part of <lockstep/lockstep.hpp>.
/// Source: numpy.savez; PKWARE's APPNOTE.TXT 6.3 for zip, without zip64 and encryption.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/data/sources/npy.hpp"

namespace lockstep {

/// A file written by `numpy.savez` or `numpy.savez_compressed`.
/// \code
///   const auto file = lockstep::NpzFile::read("mnist.npz");
///   auto train = lockstep::tensors<std::uint8_t, std::int32_t>(file.array("x_train"),
///                                                              file.array("y_train"));
/// \endcode
class NpzFile {
 public:
  /// \throws FileError if the file cannot be read; DataError if it is not a valid zip archive or
  /// uses features that numpy does not use below 4 GiB (zip64, encryption, several disks, other
  /// compression methods).
  LOCKSTEP_COLD_DECL static NpzFile read(const std::filesystem::path& path);
  /// `bytes`: the contents of the file that errors call `path`.
  LOCKSTEP_COLD_DECL NpzFile(std::string path, std::vector<std::uint8_t> bytes);

  /// Names of the arrays, without ".npy", in file order.
  LOCKSTEP_COLD_DECL std::vector<std::string> names() const;
  /// \throws DataError if the array does not exist or is damaged.
  LOCKSTEP_COLD_DECL NpyArray array(std::string_view name) const;

 private:
  static constexpr std::uint64_t stored = 0, deflated = 8;
  struct Entry {
    std::string name;
    std::uint64_t method, checksum;
    std::size_t packed, size, begin;  // packed: compressed bytes, from begin in the file
  };

  template <class... Args>
  [[noreturn, gnu::cold]] void refuse(FormatText<Args...> fact, const Args&... args) const {
    refuse_with(format_text<Args...>(fact, args...));
  }
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse_with(const std::string& fact) const;
  /// The little-endian number of `size` bytes at `at`, which must lie within the file.
  LOCKSTEP_COLD_DECL std::size_t number(std::size_t at, std::size_t size) const;

  /// The position of the end record, which only a comment may follow.
  LOCKSTEP_COLD_DECL std::size_t end_record() const;

  /// Reads and checks all entries of the directory.
  LOCKSTEP_COLD_DECL void read_directory();

  /// Reads the directory entry at `at`. \returns the position of the next one.
  LOCKSTEP_COLD_DECL std::size_t read_entry(std::size_t at, std::size_t directory, std::size_t end);

  /// Refuses entries that overlap, which a zip bomb may do, and duplicate names.
  LOCKSTEP_COLD_DECL void check_entries();

  /// Inflates an entry; throws unless it has exactly the declared length.
  LOCKSTEP_COLD_DECL static std::vector<std::uint8_t> inflated(std::span<const std::uint8_t> packed,
                                                               const Entry& entry,
                                                               const std::string& where);

  /// Verifies the checksum and parses the array.
  LOCKSTEP_COLD_DECL static NpyArray checked(std::span<const std::uint8_t> content,
                                             const Entry& entry, const std::string& where);

  std::string path_;
  std::vector<std::uint8_t> bytes_;
  std::vector<Entry> entries_;
  std::vector<std::pair<std::size_t, std::size_t>> spans_;  // of entries, for check_entries()
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/npz.ipp"
#endif
