/// \file
/// MNIST from a folder of IDX files. Invariants: the test files are not opened before `test()`;
/// other examples are used only if the caller passes them and the folder is missing.
#pragma once

#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets {

/// Reads MNIST: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte` in `folder`, each plain or with `.gz` (the plain file takes
/// precedence).
///
/// Any number of images of any one size. Shape (height, width, 1), labels 0 to 9.
/// \throws FileError if the folder is missing or cannot be read, or a file cannot; DataError from
/// `train()` and `test()` if a file is damaged or images and labels do not match.
/// \code
///   auto train = lockstep::datasets::mnist("data/mnist").train();   // 60,000 of (28, 28, 1)
/// \endcode
LOCKSTEP_COLD_DECL Splits mnist(const std::string& folder);

/// Reads MNIST from `folder`. If the folder does not exist, logs a warning and returns `fallback`.
/// A folder that exists but lacks a file is an error.
/// \code
///   using namespace lockstep::datasets;
///   auto train = mnist("data/mnist", digits()).train();
/// \endcode
LOCKSTEP_COLD_DECL Splits mnist(const std::string& folder, const Splits& fallback);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/mnist.ipp"
#endif
