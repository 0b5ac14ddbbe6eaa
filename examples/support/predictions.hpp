/// \file
/// What a model of digits predicts, printed with pictures of the digits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/options.hpp"

namespace support {

/// A test image and the model's outputs for it.
struct ShownDigit {
  std::span<const std::uint8_t> pixels;  ///< 28 x 28 gray values, row after row
  std::span<const float> logits;
  std::int32_t label;
};

/// The digits in rows of five, in Braille characters of 2 x 4 pixels each; below each its
/// prediction, and its label where they differ.
std::string picture(std::span<const ShownDigit> digits);

/// Prints the accuracy and the picture on stdout, unless that belongs to --progress json or none.
void print_predictions(const Options& options, double accuracy, std::span<const ShownDigit> digits);

}  // namespace support
