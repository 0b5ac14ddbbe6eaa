/// \file
/// Sentences of numbered words, padded with zeros, each positive (1) or negative (0).
#pragma once

#include <cstdint>
#include <string>

#include "support/parts.hpp"

namespace support {

/// The input of a network of sentences: `steps` numbers from 0, padding, to `vocabulary` - 1.
struct SentenceShape {
  int steps, vocabulary;
};

/// Draws sentences of 3 to `steps` words out of 300. Some words are positive, some negative, and
/// after a negation each means the opposite, so that the label depends on the order of the words. A
/// sentence is a pure function of the seed, the part and its index.
/// \code
///   support::Parts parts = support::drawn_sentences(40, options.seed);
/// \endcode
Parts drawn_sentences(int steps, std::uint64_t seed);

/// Reads x_train, y_train, x_test and y_test of an NPZ file. x: (sentences, steps) integers; y:
/// (sentences) of 0 and 1. The test part is read only if `validate`, otherwise it is the first one.
/// \throws lockstep::FileError, or lockstep::DataError naming the array
Parts read_sentences(const std::string& path, const SentenceShape& shape, bool validate);

}  // namespace support
