/// \file
/// MNIST from a folder of IDX files. Invariants: the test files are not touched before `test()`;
/// other examples are used only if the caller names them and the folder is missing.
#pragma once

#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/sources/splits.hpp"

namespace lockstep::datasets {

/// MNIST: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte` in `folder`, each plain or with `.gz` (the plain one wins).
///
/// Any number of images of any one size; shape (height, width, 1), labels 0 to 9.
/// \throws FileError if the folder is missing, or it or one of its files cannot be read; DataError
/// from `train()` and `test()` if a file is damaged or the two of a part do not agree.
/// \code
///   auto train = lockstep::datasets::mnist("data/mnist").train();   // 60,000 of (28, 28, 1)
/// \endcode
LOCKSTEP_COLD_DECL Splits mnist(const std::string& folder);

/// MNIST from `folder` or, if there is no such folder, `otherwise`, and a warning says so. A folder
/// that exists and lacks a file is an error.
/// \code
///   using namespace lockstep::datasets;
///   auto train = mnist("data/mnist", digits()).train();
/// \endcode
LOCKSTEP_COLD_DECL Splits mnist(const std::string& folder, const Splits& otherwise);

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/mnist.ipp"
#endif
