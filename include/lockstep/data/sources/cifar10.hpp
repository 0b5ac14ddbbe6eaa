/// \file
/// CIFAR-10 from a folder with its binary version: records of a label followed by 32 x 32 red,
/// green and blue planes. Invariants: a file has exactly 10,000 records or is refused; the test
/// file is not opened before `test()`; other examples are used only if the caller passes them and
/// the folder is missing.
/// Source: https://www.cs.toronto.edu/~kriz/cifar.html ("Binary version").
///
/// Not part of <lockstep/lockstep.hpp>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets {

namespace detail {

/// Appends the `records` images of a file, channels last, and their labels.
LOCKSTEP_COLD_DECL void read_cifar10_file(const std::filesystem::path& path, std::size_t records,
                                          std::vector<std::uint8_t>& images,
                                          std::vector<std::int32_t>& labels);

}  // namespace detail

/// Reads CIFAR-10: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin` in `folder`, each
/// with 10,000 records of 3073 bytes.
///
/// Images have shape (32, 32, 3), channels red, green, blue. Labels are 0 to 9: airplane,
/// automobile, bird, cat, deer, dog, frog, horse, ship, truck.
/// \throws FileError if the folder is missing or cannot be read, or a file cannot; DataError from
/// `train()` and `test()` if a file is too short, too long or damaged, or has a label above 9.
/// \code
///   auto train = lockstep::datasets::cifar10("data/cifar10").train();   // 50,000 of (32, 32, 3)
/// \endcode
LOCKSTEP_COLD_DECL Splits cifar10(const std::filesystem::path& folder);

/// Reads CIFAR-10 from `folder`. If the folder does not exist, logs a warning and returns
/// `fallback`. A folder that exists but lacks a file is an error.
/// \code
///   using namespace lockstep::datasets;
///   auto train = cifar10("data/cifar10", shapes()).train();   // <lockstep/data/sources/drawn_shapes.hpp>
/// \endcode
LOCKSTEP_COLD_DECL Splits cifar10(const std::filesystem::path& folder, const Splits& fallback);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/cifar10.ipp"
#endif
