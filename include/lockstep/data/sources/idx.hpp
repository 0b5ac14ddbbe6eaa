/// \file
/// IDX, the file format of MNIST: 00 00, a type, a rank, big-endian 32-bit extents, then the
/// elements. Invariants: a file is read whole or refused with a sentence; no more memory is taken
/// than the file can fill.
/// Source: http://yann.lecun.com/exdb/mnist/ ("The IDX file format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// An IDX file of unsigned bytes.
struct IdxBytes {
  std::vector<std::size_t> extents;  ///< first axis: examples
  std::vector<std::uint8_t> bytes;   ///< row after row
  std::string path;                  ///< the file that was read, with `.gz` if it has it
};

/// Reads an IDX file of unsigned bytes with `rank` axes, plain or gzip.
///
/// `path` is the name without `.gz`; if there is no such file, `path` + ".gz" is read. The plain
/// one wins when both are there.
/// \throws FileError if neither can be read; DataError if the content is not such an IDX file:
/// empty, truncated, damaged, of another type or rank, too large, or followed by further bytes.
/// \code
///   auto images = lockstep::read_idx("data/mnist/train-images-idx3-ubyte", 3);
/// \endcode
LOCKSTEP_COLD_DECL IdxBytes read_idx(const std::string& path, int rank);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/idx.ipp"
#endif
