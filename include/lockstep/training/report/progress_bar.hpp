/// \file
/// The text of a progress bar. Invariants: a text is a function of what the bar was told, never of
/// a clock or a stream of its own; between two redraws of a bar lie at least 50 ms, and what comes
/// earlier costs two comparisons.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/logs.hpp"

namespace lockstep {

/// How a run is reported.
enum class ProgressStyle {
  automatic,  ///< keras on a terminal; plain elsewhere, and when CI is set
  keras,  ///< the bar of Keras 3, in colour unless NO_COLOR is set; on a pipe each redraw is a line
  classic,  ///< the bar of Keras 2: 70/70 [=====] - 3s 12ms/step - loss: 0.5432
  plain,    ///< one line an epoch, as Keras' verbose=2
  json,     ///< one JSON object a line
  none
};

namespace detail {
/// Whether an environment variable has a value.
inline bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}
}  // namespace detail

/// `automatic` resolved for a stream; every other style as it is.
inline ProgressStyle resolve(ProgressStyle style, bool is_terminal) {
  if (style != ProgressStyle::automatic) return style;
  return is_terminal && !detail::is_set("CI") ? ProgressStyle::keras : ProgressStyle::plain;
}

/// The style of a name ("keras", "classic", "plain", "json", "none"), or nothing.
inline std::optional<ProgressStyle> progress_style(std::string_view name) {
  for (const auto& [known, style] : {std::pair{"keras", ProgressStyle::keras},
                                     {"classic", ProgressStyle::classic},
                                     {"plain", ProgressStyle::plain},
                                     {"json", ProgressStyle::json},
                                     {"none", ProgressStyle::none}})
    if (name == known) return style;
  return std::nullopt;
}

/// One bar: of an epoch, an evaluation or a prediction. Styles keras, classic and plain.
///
/// Byte for byte what Keras writes (3.15: keras/src/utils/progbar.py; classic: 2.15,
/// keras/src/utils/generic_utils.py), but for one thing: in the plain style a negative value keeps
/// its decimals, where Keras' verbose=2 turns to exponents. Times are in seconds, from any origin.
/// \code
///   lockstep::ProgressBar bar(lockstep::ProgressStyle::keras, 70, is_terminal, now());
///   std::string text = bar.update(step + 1, logs, now());    // empty: nothing to write yet
/// \endcode
class ProgressBar {
 public:
  static constexpr double interval = 0.05;

  /// `target`: number of steps, nothing if it is not known yet. Without colour the style keras
  /// draws the part that is left as a thin line.
  ProgressBar(ProgressStyle style, std::optional<std::uint64_t> target, bool is_terminal,
              double start, bool has_colour = true)
      : style_(style),
        target_(target),
        is_terminal_(is_terminal),
        has_colour_(has_colour),
        start_(start) {}

  /// Text after `current` steps, to be written at once; empty if it is not time yet.
  std::string update(std::uint64_t current, const Logs& logs, double now) {
    return draw(current, logs, now, false);
  }
  /// The last text, with the time in all. A target that was unknown is now `current`.
  std::string finish(std::uint64_t current, const Logs& logs, double now) {
    if (!target_) target_ = current;
    return draw(current, logs, now, true);
  }
  /// True while the last text did not end its line.
  bool is_line_open() const { return line_open_; }

 private:
  // The functions that draw are cold: they are called at most twenty times a second.

  /// A text and the columns that it takes on the screen.
  struct Line {
    std::string text;
    std::size_t columns = 0;
    [[gnu::noinline]] void add(std::initializer_list<std::string_view> parts) {
      for (const std::string_view part : parts) {
        text += part;
        for (const char c : part) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      }
    }
  };
  [[gnu::noinline, gnu::cold]] void add_coloured(Line& line, std::string_view code,
                                                 std::string_view part) const {
    if (has_colour_) (line.text += "\x1b[") += code;
    line.add({part});
    if (has_colour_) line.text += "\x1b[0m";
  }

  [[gnu::cold]] std::string draw(std::uint64_t current, const Logs& logs, double now, bool last) {
    if (style_ == ProgressStyle::plain && !last) return {};
    const double step_time = step_seconds(current, now);
    if (!last && drawn_ && now - *drawn_ < interval) return {};
    remember(logs);
    drawn_ = now;
    if (style_ == ProgressStyle::plain) return plain_line(current, step_time, now);

    Line line;
    if (style_ == ProgressStyle::keras)
      keras_line(line, current, step_time, now, last);
    else
      classic_line(line, current, step_time, now, last);
    add_values(line);
    std::string text(is_terminal_ ? columns_ : 0, '\b');
    text += is_terminal_ ? '\r' : '\n';
    text += line.text;
    if (columns_ > line.columns) text.append(columns_ - line.columns, ' ');
    columns_ = line.columns;
    if (last) text += '\n';
    line_open_ = !last;
    return text;
  }

  /// Mean time of a step; the first step, which pays for preparations, counts only when it is
  /// alone.
  double step_seconds(std::uint64_t current, double now) {
    if (current == 0) return 0;
    const double result = after_first_ && current > 1
                              ? (now - *after_first_) / static_cast<double>(current - 1)
                              : (now - start_) / static_cast<double>(current);
    if (current == 1) after_first_ = now;
    return result;
  }

  /// Keras 3 sorts the names of each call, Keras 2 takes them as they come; a new name goes last.
  [[gnu::cold]] void remember(const Logs& logs) {
    const std::size_t known = values_.size();
    for (std::pair<std::string_view, double> entry : logs) {
      std::size_t at = 0;
      while (at < values_.size() && values_[at].first != entry.first) ++at;
      if (at < values_.size()) {
        values_[at].second = entry.second;
        continue;
      }
      values_.emplace_back(entry.first, entry.second);
      for (; style_ != ProgressStyle::classic && at > known && entry.first < values_[at - 1].first;
           --at)
        std::swap(values_[at - 1], values_[at]);
    }
  }

  bool has_target() const { return target_ && *target_ > 0; }
  /// " 5/70", as wide as "70/70".
  [[gnu::cold]] std::string count(std::uint64_t current) const {
    const auto target = static_cast<unsigned long long>(*target_);
    const int width = std::snprintf(nullptr, 0, "%llu", target);
    return detail::print("%*llu/%llu", width, static_cast<unsigned long long>(current), target);
  }
  /// How many of `width` characters are done.
  std::size_t filled(std::uint64_t current, std::size_t width) const {
    const double share = static_cast<double>(current) / static_cast<double>(*target_);
    return static_cast<std::size_t>(static_cast<double>(width) * std::min(share, 1.0));
  }
  [[gnu::cold]] static std::string unknown(std::uint64_t current) {
    return detail::print("%7llu/Unknown", static_cast<unsigned long long>(current));
  }
  [[gnu::cold]] std::string eta(std::uint64_t current, double step_time) const {
    return detail::format_eta(step_time *
                              (static_cast<double>(*target_) - static_cast<double>(current)));
  }
  [[gnu::cold]] static std::string repeat(std::string_view part, std::size_t times) {
    std::string text;
    while (times-- > 0) text += part;
    return text;
  }

  [[gnu::cold]] void keras_line(Line& line, std::uint64_t current, double step_time, double now,
                                bool last) {
    constexpr std::size_t width = 20;
    if (has_target()) {
      add_coloured(line, "1m", count(current));
      line.add({" "});
      const std::size_t done = filled(current, width);
      if (done > 0) add_coloured(line, "32m", repeat("━", done));
      add_coloured(line, "37m", repeat(has_colour_ ? "━" : "─", width - done));
    } else {
      line.add({unknown(current)});
    }
    line.add({" "});
    add_coloured(
        line, "1m",
        has_target() && !last ? eta(current, step_time) : detail::format_seconds(now - start_));
    line.add({" ", detail::format_step_time(step_time)});
  }

  [[gnu::cold]] void classic_line(Line& line, std::uint64_t current, double step_time, double now,
                                  bool last) {
    constexpr std::size_t width = 30;
    if (has_target()) {
      const std::size_t done = filled(current, width);
      std::string bar(done, '=');
      if (done > 0 && current < *target_) bar.back() = '>';
      line.add({count(current), " [", bar, std::string(width - done, '.'), "]"});
    } else {
      line.add({unknown(current)});
    }
    if (has_target() && !last)
      line.add({" - ETA: ", eta(current, step_time)});
    else
      line.add(
          {" - ", detail::format_seconds(now - start_), " ", detail::format_step_time(step_time)});
  }

  [[gnu::cold]] std::string plain_line(std::uint64_t current, double step_time, double now) {
    if (!has_target()) return {};
    Line line;
    line.add({count(current), " - ", detail::format_seconds(now - start_), " - ",
              detail::format_step_time(step_time)});
    add_values(line);
    line.add({"\n"});
    return std::move(line.text);
  }

  [[gnu::cold]] void add_values(Line& line) const {
    for (const auto& [name, value] : values_)
      line.add({" - ", name, ": ", detail::format_metric(value)});
  }

  ProgressStyle style_;
  std::optional<std::uint64_t> target_;
  bool is_terminal_, has_colour_;
  double start_;
  std::optional<double> drawn_, after_first_;
  std::size_t columns_ = 0;
  bool line_open_ = false;
  std::vector<std::pair<std::string, double>> values_;
};

}  // namespace lockstep
