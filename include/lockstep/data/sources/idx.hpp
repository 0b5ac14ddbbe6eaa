/// \file
/// IDX, the file format of MNIST.
///
///     00 00 | type, 1 byte | rank, 1 byte | extents, 4 bytes each, big-endian | elements
///
/// Invariants: a file is read completely or refused with an error; no more memory is allocated than
/// the file can fill.
/// Source: http://yann.lecun.com/exdb/mnist/ ("The IDX file format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// The contents of an IDX file of unsigned bytes.
struct IdxBytes {
  std::vector<std::size_t> extents;  ///< the first axis counts examples
  std::vector<std::uint8_t> bytes;   ///< row by row
  std::string path;                  ///< the file that was read, including `.gz`
};

/// Reads an IDX file of unsigned bytes with `rank` axes, plain or gzip.
///
/// `path` is the name without `.gz`. If that file does not exist, `path` + ".gz" is read.
/// \throws FileError if neither file can be read; DataError if the content is not such an IDX file:
/// empty, truncated, damaged, of another type or rank, too large, or followed by further bytes.
/// \code
///   auto images = lockstep::read_idx("data/mnist/train-images-idx3-ubyte", 3);
/// \endcode
LOCKSTEP_COLD_DECL IdxBytes read_idx(const std::string& path, int rank);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/idx.ipp"
#endif
