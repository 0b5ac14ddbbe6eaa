#pragma once

#include "lockstep/core/format_numbers.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep::detail {

std::string format_metric(double value) {
  if (is_nan(value)) return "nan";
  return std::abs(value) > 1e-3 ? format_text("{:.4f}", value) : format_text("{:.4e}", value);
}

std::string format_eta(double seconds) {
  const double hours = std::floor(seconds / 3600),
               minutes = std::floor(std::fmod(seconds, 3600) / 60),
               rest = std::trunc(std::fmod(seconds, 60));
  if (seconds > 3600) return format_text("{:.0f}:{:02.0f}:{:02.0f}", hours, minutes, rest);
  if (seconds > 60) return format_text("{:.0f}:{:02.0f}", minutes, rest);
  return format_text("{:.0f}s", std::trunc(seconds));
}

std::string format_step_time(double seconds) {
  if (seconds >= 1 || seconds == 0) return format_text("{:.0f}s/step", seconds);
  if (seconds >= 1e-3) return format_text("{:.0f}ms/step", seconds * 1e3);
  return format_text("{:.0f}us/step", seconds * 1e6);
}

std::string format_count(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string format_bytes(std::uint64_t bytes) {
  double size = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* larger : {"KB", "MB", "GB", "TB", "PB"}) {
    if (size < 1024) break;
    size /= 1024;
    unit = larger;
  }
  return format_text("{:.2f} {}", size, unit);
}

template <class T>
[[gnu::cold]] std::string by_charconv(T value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}
std::string shortest_number(float value) { return by_charconv(value); }
std::string shortest_number(double value) { return by_charconv(value); }

std::string json_number(double value) { return is_finite(value) ? shortest_number(value) : "null"; }

std::string python_number(double value) {
  if (!is_finite(value)) return is_nan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double magnitude = std::abs(value);
  const bool is_scientific = value != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  std::array<char, 32> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), value,
                    is_scientific ? std::chars_format::scientific : std::chars_format::fixed)
          .ptr;
  const std::string text(digits.data(), end);
  return is_scientific || text.find('.') != text.npos ? text : text + ".0";
}

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (result += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      result += format_text("\\u{:04x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  result += '"';
  return result;
}

}  // namespace lockstep::detail
