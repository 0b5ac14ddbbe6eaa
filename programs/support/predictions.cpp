#include "support/predictions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>

#include <lockstep/training/report/progress.hpp>

namespace support {

namespace {

constexpr std::size_t side = 28, in_row = 5;  // pixels per side, digits per row
constexpr std::size_t ink = 96;               // smallest gray value drawn as a dot

/// Appends the Braille character of the 2 x 4 pixels at (y, x). Its eight dots are numbered down the
/// left column (1, 2, 3, 7) and the right one (4, 5, 6, 8); dot d is bit d - 1 above U+2800.
void draw_character(std::string& text, std::span<const std::uint8_t> pixels, std::size_t y,
                    std::size_t x) {
  constexpr unsigned bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  unsigned dots = 0;
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 2; ++j)
      if (pixels[(y + i) * side + x + j] >= ink) dots |= bits[i][j];
  text += '\xE2';  // UTF-8 of U+2800 + dots
  text += static_cast<char>(0xA0 | dots >> 6);
  text += static_cast<char>(0x80 | (dots & 0x3F));
}

/// "3", or "3, not 5" for a wrong prediction.
std::string caption(const ShownDigit& digit) {
  const auto best = std::max_element(digit.logits.begin(), digit.logits.end());
  const auto predicted = best - digit.logits.begin();
  return predicted == digit.label ? std::to_string(predicted)
                                  : fmt::format("{}, not {}", predicted, digit.label);
}

}  // namespace

std::string picture(std::span<const ShownDigit> digits) {
  std::string text;
  for (std::size_t first = 0; first < digits.size(); first += in_row) {
    const auto row = digits.subspan(first, std::min(in_row, digits.size() - first));
    for (std::size_t y = 0; y < side; y += 4) {
      for (const ShownDigit& digit : row) {
        text += "  ";
        for (std::size_t x = 0; x < side; x += 2) draw_character(text, digit.pixels, y, x);
      }
      text += '\n';
    }
    for (const ShownDigit& digit : row)
      fmt::format_to(std::back_inserter(text), "  {:^{}}", caption(digit), side / 2);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

void print_predictions(const Options& options, double accuracy,
                       std::span<const ShownDigit> digits) {
  using lockstep::ProgressStyle;
  if (options.progress == ProgressStyle::none || options.progress == ProgressStyle::json) return;
  fmt::print("\ntest accuracy: {:.2f} %\n\n{}", 100 * accuracy, picture(digits));
  std::fflush(stdout);
}

}  // namespace support
