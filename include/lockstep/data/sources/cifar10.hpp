/// \file
/// CIFAR-10 from a folder with its binary version: records of a label and 32 x 32 red, green and
/// blue planes. Invariants: a file has 10,000 records, neither more nor less, or is refused; the
/// test file is not touched before `test()`; other examples are used only if the caller names them
/// and the folder is missing.
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

/// Adds `records` images of a file, channels last, and their labels.
LOCKSTEP_COLD_DECL void read_cifar10_file(const std::filesystem::path& path, std::size_t records,
                                          std::vector<std::uint8_t>& images,
                                          std::vector<std::int32_t>& labels);

}  // namespace detail

/// CIFAR-10: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin` in `folder`, each of
/// 10,000 records of 3073 bytes.
///
/// Shape (32, 32, 3), red, green, blue last; labels 0 to 9: airplane, automobile, bird, cat, deer,
/// dog, frog, horse, ship, truck.
/// \throws FileError if the folder is missing, or it or one of its files cannot be read; DataError
/// from `train()` and `test()` if a file is too short, too long or damaged, or has a label above 9.
/// \code
///   auto train = lockstep::datasets::cifar10("data/cifar10").train();   // 50,000 of (32, 32, 3)
/// \endcode
LOCKSTEP_COLD_DECL Splits cifar10(const std::filesystem::path& folder);

/// CIFAR-10 from `folder` or, if there is no such folder, `otherwise`, and a warning says so. A
/// folder that exists and lacks a file is an error.
/// \code
///   using namespace lockstep::datasets;
///   auto train = cifar10("data/cifar10", shapes()).train();   // <lockstep/data/sources/drawn_shapes.hpp>
/// \endcode
LOCKSTEP_COLD_DECL Splits cifar10(const std::filesystem::path& folder, const Splits& otherwise);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/cifar10.ipp"
#endif
