#pragma once

#include "lockstep/data/sources/npz.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

#include "lockstep/core/format_text.hpp"
#include "lockstep/files/byte_reader.hpp"

namespace lockstep {

NpzFile NpzFile::read(const std::filesystem::path& path) {
  return NpzFile(path.string(), detail::read_whole(path));
}

NpzFile::NpzFile(std::string path, std::vector<std::uint8_t> bytes)
    : path_(std::move(path)), bytes_(std::move(bytes)) {
  read_directory();
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

NpyArray NpzFile::array(std::string_view name) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.name == name; });
  if (entry == entries_.end()) {
    std::string has;
    for (std::size_t i = 0; i < entries_.size() && i < 8; ++i)
      has += (i ? ", " : "") + detail::shown_name(entries_[i].name);
    if (entries_.size() > 8) has += ", ...";
    throw DataError(path_, "has no array {}; it has {}", detail::shown_name(name),
                    has.empty() ? "none" : has);
  }
  const std::string where = format_text("{}, array {}", path_, detail::shown_name(entry->name));
  const auto packed = std::span(bytes_).subspan(entry->begin, entry->packed);
  if (entry->method == stored) return checked(packed, *entry, where);
  return checked(inflated(packed, *entry, where), *entry, where);
}

void NpzFile::refuse_with(const std::string& fact) const {
  throw DataError(path_, "{}; save it again with numpy.savez", fact);
}

std::size_t NpzFile::number(std::size_t at, std::size_t size) const {
  return static_cast<std::size_t>(detail::npy_bits(bytes_.data() + at, size, false));
}

std::size_t NpzFile::end_record() const {
  constexpr std::size_t size = 22, longest = 65535;
  if (bytes_.size() >= size)
    for (std::size_t comment = 0; comment <= std::min(longest, bytes_.size() - size); ++comment) {
      const std::size_t at = bytes_.size() - size - comment;
      if (number(at, 4) == 0x06054b50 && number(at + 20, 2) == comment) return at;
    }
  refuse("is not a zip archive, or is truncated: it has no end record");
}

void NpzFile::read_directory() {
  const std::size_t end = end_record();
  const std::size_t count = number(end + 10, 2), size = number(end + 12, 4),
                    begin = number(end + 16, 4);
  if (count == 0xffff || size == 0xffffffff || begin == 0xffffffff ||
      (end >= 20 && number(end - 20, 4) == 0x07064b50))
    throw DataError(
        path_,
        "is a zip64 archive (4 GiB or 65535 arrays and more), which is not supported; save the "
        "arrays with numpy.save");
  if (number(end + 4, 2) != 0 || number(end + 6, 2) != 0 || number(end + 8, 2) != count)
    refuse("is part of a multi-disk archive");
  if (begin > end || size != end - begin)
    refuse("its directory of {} bytes at {} does not end at the end record", size, begin);
  std::size_t at = begin;
  for (std::size_t i = 0; i < count; ++i) at = read_entry(at, begin, end);
  if (at != end) refuse("its directory has bytes after its {} entries", count);
  check_entries();
}

std::size_t NpzFile::read_entry(std::size_t at, std::size_t directory, std::size_t end) {
  constexpr std::size_t fixed = 46, local_fixed = 30;
  if (end - at < fixed || number(at, 4) != 0x02014b50)
    refuse("its directory is damaged at byte {}", at);
  const std::size_t length = number(at + 28, 2);
  const std::size_t next = at + fixed + length + number(at + 30, 2) + number(at + 32, 2);
  if (next > end) refuse("its directory is damaged at byte {}", at);
  Entry entry{};
  const std::string_view name(reinterpret_cast<const char*>(bytes_.data()) + at + fixed, length);
  const std::string shown = detail::shown_name(name);
  entry.method = number(at + 10, 2);
  entry.checksum = number(at + 16, 4);
  entry.packed = number(at + 20, 4);
  entry.size = number(at + 24, 4);
  const std::size_t local = number(at + 42, 4);
  if (entry.packed == 0xffffffff || entry.size == 0xffffffff || local == 0xffffffff)
    throw DataError(
        path_,
        "its entry {} uses zip64 (4 GiB and more), which is not supported; save the array with "
        "numpy.save",
        shown);
  if ((number(at + 8, 2) & 1) != 0)
    throw DataError(path_, "its entry {} is encrypted; save it without a password", shown);
  if (entry.method != stored && entry.method != deflated)
    refuse(
        "its entry {} uses compression method {}, but only stored (0) and deflated (8) are "
        "supported",
        shown, entry.method);
  if (local > directory || directory - local < local_fixed || number(local, 4) != 0x04034b50)
    refuse("its entry {} is not at the offset that the directory gives", shown);
  // numpy writes zip64 local headers for any size, so only the sizes in the directory count.
  entry.begin = local + local_fixed + number(local + 26, 2) + number(local + 28, 2);
  if (entry.begin > directory || entry.packed > directory - entry.begin)
    refuse("its entry {} runs into the directory", shown);
  if (number(local + 26, 2) != length || number(local + 8, 2) != entry.method ||
      !std::equal(name.begin(), name.end(),
                  reinterpret_cast<const char*>(bytes_.data()) + local + local_fixed))
    refuse("its entry {} differs from the directory in name or method", shown);
  // 1032 is deflate's maximum compression ratio (zlib manual).
  if (entry.method == stored ? entry.size != entry.packed : entry.size / 1032 > entry.packed)
    refuse("its entry {} of {} bytes cannot hold the declared {}", shown, entry.packed, entry.size);
  spans_.emplace_back(local, entry.begin + entry.packed);
  if (name.size() > 4 && name.substr(name.size() - 4) == ".npy") {
    entry.name = name.substr(0, name.size() - 4);
    entries_.push_back(std::move(entry));
  }
  return next;
}

void NpzFile::check_entries() {
  std::sort(spans_.begin(), spans_.end());
  for (std::size_t i = 1; i < spans_.size(); ++i)
    if (spans_[i].first < spans_[i - 1].second) refuse("its entries overlap");
  spans_ = {};
  std::vector<std::string_view> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse("has two arrays named {}", detail::shown_name(*twice));
}

std::vector<std::uint8_t> NpzFile::inflated(std::span<const std::uint8_t> packed,
                                            const Entry& entry, const std::string& where) {
  // One extra byte reveals content that is longer than declared.
  std::vector<std::uint8_t> out(entry.size + 1);
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  stream.next_in = const_cast<Bytef*>(packed.data());  // zlib does not write to it
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = inflate(&stream, Z_FINISH);
  const std::size_t left = stream.avail_in, got = stream.total_out;
  inflateEnd(&stream);
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  if (result != Z_STREAM_END || left != 0 || got != entry.size)
    throw DataError(
        where,
        "its deflated data are damaged or differ from the declared length; fetch the file again");
  out.pop_back();
  return out;
}

NpyArray NpzFile::checked(std::span<const std::uint8_t> content, const Entry& entry,
                          const std::string& where) {
  const auto sum = crc32(0, content.data(), static_cast<uInt>(content.size()));
  if (sum != entry.checksum)
    throw DataError(where,
                    "its checksum does not match, so the data are damaged; fetch the file again");
  return detail::parse_npy(content, where);
}

}  // namespace lockstep
