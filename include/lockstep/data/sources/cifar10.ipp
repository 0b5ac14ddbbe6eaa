#pragma once

#include "lockstep/data/sources/cifar10.hpp"

#include <array>
#include <initializer_list>
#include <string>
#include <system_error>
#include <utility>

#include "lockstep/core/shape.hpp"
#include "lockstep/data/sources/data_folder.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/files/byte_reader.hpp"

namespace lockstep::datasets::detail {

inline constexpr std::size_t cifar10_plane = 32 * 32, cifar10_image = 3 * cifar10_plane,
                             cifar10_record = 1 + cifar10_image, cifar10_records = 10'000;

/// Throws if the file does not exist, with a hint where it might be instead.
inline void expect_cifar10_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return;
  const auto folder = path.parent_path(), unpacked = folder / "cifar-10-batches-bin";
  if (std::filesystem::exists(unpacked / path.filename(), ignored))
    throw FileError(path.string(), "cannot be found; pass the folder {}", unpacked.string());
  if (std::filesystem::exists(folder / path.stem(), ignored))
    throw FileError(
        path.string(),
        "cannot be found, but {} of the Python version is there; put the binary version there",
        path.stem().string());
  throw FileError(
      path.string(),
      "cannot be found; put the file there or pass another folder with the binary version of "
      "CIFAR-10");
}

void read_cifar10_file(const std::filesystem::path& path, std::size_t records,
                       std::vector<std::uint8_t>& images, std::vector<std::int32_t>& labels) {
  expect_cifar10_file(path);
  lockstep::detail::ByteReader file(path);
  const std::size_t bytes = records * cifar10_record;
  const auto truncated = [&](std::uint64_t got) {
    return DataError(file.path(), "is truncated: {} of {} bytes; fetch it again", got, bytes);
  };
  if (file.most() < bytes) throw truncated(file.most());
  std::size_t done = images.size();
  images.resize(done + records * cifar10_image);
  std::array<std::uint8_t, cifar10_record> record;
  for (std::size_t i = 0; i < records; ++i, done += cifar10_image) {
    const std::size_t got = file.read(record.data(), record.size());
    if (got != record.size()) throw truncated(i * cifar10_record + got);
    if (record[0] >= 10)
      throw DataError(
          file.path(),
          "label {} is {}, but CIFAR-10 has classes 0 to 9; check that it is the right file", i,
          record[0]);
    labels.push_back(record[0]);
    const std::uint8_t* const planes = record.data() + 1;
    std::uint8_t* const image = images.data() + done;
    for (std::size_t p = 0; p < cifar10_plane; ++p)
      for (std::size_t c = 0; c < 3; ++c) image[3 * p + c] = planes[c * cifar10_plane + p];
  }
  std::uint8_t extra = 0;
  if (file.read(&extra, 1) != 0)
    throw DataError(file.path(),
                    "is longer than the {} bytes of {} images; check that it is the right file",
                    bytes, records);
  file.expect_end();
}

inline Images read_cifar10(const std::filesystem::path& folder,
                           std::initializer_list<const char*> names) {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
  for (const char* name : names) expect_cifar10_file(folder / name);
  for (const char* name : names) {
    if (images.capacity() == 0) {  // reserve only after the first file proved to be long enough
      read_cifar10_file(folder / name, cifar10_records, images, labels);
      images.reserve(names.size() * images.size());
    } else {
      read_cifar10_file(folder / name, cifar10_records, images, labels);
    }
  }
  return {std::move(images), shape(32, 32, 3), std::move(labels), Shape{}};
}

}  // namespace lockstep::datasets::detail

namespace lockstep::datasets {

Splits cifar10(const std::filesystem::path& folder) {
  detail::expect_data_folder(folder, "CIFAR-10",
                             "datasets::shapes() of <lockstep/data/sources/drawn_shapes.hpp>");
  return {"CIFAR-10",
          [folder] {
            return detail::read_cifar10(folder,
                                        {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin"});
          },
          [folder] { return detail::read_cifar10(folder, {"test_batch.bin"}); }};
}

Splits cifar10(const std::filesystem::path& folder, const Splits& fallback) {
  return detail::has_data_folder(folder, "CIFAR-10", fallback) ? cifar10(folder) : fallback;
}

}  // namespace lockstep::datasets
