/// \file
/// Prints the predictions of a digit model, with pictures of the digits.
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

/// The digits in rows of five, drawn in Braille characters of 2 x 4 pixels. Below each digit stands
/// its prediction, and its label if they differ.
std::string picture(std::span<const ShownDigit> digits);

/// Prints the accuracy and the pictures to stdout, except under --progress json and none.
void print_predictions(const Options& options, double accuracy, std::span<const ShownDigit> digits);

}  // namespace support
