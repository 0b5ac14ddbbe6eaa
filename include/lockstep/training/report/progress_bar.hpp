/// \file
/// The text of a progress bar. Invariants: the text depends only on the arguments, never on a clock
/// or a stream; redraws are at least 50 ms apart, and a call in between costs two comparisons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/logs.hpp"

namespace lockstep {

/// How a run is reported.
enum class ProgressStyle {
  automatic,  ///< keras on a terminal; plain otherwise, and if CI is set
  keras,      ///< Keras 3's bar, in colour unless NO_COLOR is set; on a pipe, one line per redraw
  classic,    ///< Keras 2's bar: 70/70 [=====] - 3s 12ms/step - loss: 0.5432
  plain,      ///< one line per epoch, as Keras' verbose=2
  json,       ///< one JSON object per line
  none        ///< no output
};

namespace detail {
/// Whether an environment variable is set and not empty.
LOCKSTEP_DECL bool is_set(const char* variable);
}  // namespace detail

/// Resolves `automatic` for a stream; returns any other style unchanged.
LOCKSTEP_DECL ProgressStyle resolve(ProgressStyle style, bool is_terminal);

/// The style of this name ("keras", "classic", "plain", "json", "none"); nullopt if unknown.
LOCKSTEP_DECL std::optional<ProgressStyle> progress_style(std::string_view name);

/// The progress bar of an epoch, an evaluation or a prediction; styles keras, classic and plain.
///
/// The output equals Keras' byte for byte (3.15: keras/src/utils/progbar.py; classic: 2.15,
/// keras/src/utils/generic_utils.py), with one exception: in the plain style a negative value keeps
/// its decimals, where Keras' verbose=2 switches to an exponent. Times are in seconds, from any
/// origin.
/// \code
///   lockstep::ProgressBar bar(lockstep::ProgressStyle::keras, 70, is_terminal, now());
///   std::string text = bar.update(step + 1, logs, now());    // empty: nothing to write yet
/// \endcode
class ProgressBar {
 public:
  static constexpr double interval = 0.05;  ///< minimum between redraws, in seconds

  /// `target`: number of steps; nullopt if not known yet. Without colour, the keras style draws the
  /// remaining part as a thin line.
  LOCKSTEP_DECL ProgressBar(ProgressStyle style, std::optional<std::uint64_t> target,
                            bool is_terminal, double start, bool has_colour = true);

  /// The text to write after `current` steps; empty if the last redraw was too recent.
  LOCKSTEP_DECL std::string update(std::uint64_t current, const Logs& logs, double now);
  /// The final text, with the total time. An unknown target becomes `current`.
  LOCKSTEP_DECL std::string finish(std::uint64_t current, const Logs& logs, double now);
  /// Whether the last text did not end with a newline.
  bool is_line_open() const { return line_open_; }

 private:
  // Drawing functions are cold: they are called at most twenty times a second.

  /// A text and its width on the screen.
  struct Line {
    std::string text;
    std::size_t columns = 0;
    LOCKSTEP_COLD_DECL void add(std::initializer_list<std::string_view> parts);
  };
  /// Adds `part` in the colour of an ANSI code, which takes no columns.
  LOCKSTEP_COLD_DECL void add_coloured(Line& line, std::string_view code,
                                       std::string_view part) const;

  /// The bar with the values in `logs`; empty if the last redraw was too recent.
  LOCKSTEP_COLD_DECL std::string draw(std::uint64_t current, const Logs& logs, double now,
                                      bool last);

  /// Mean time of a step. The first step, which includes one-time costs, counts only as long as
  /// there is no second.
  LOCKSTEP_DECL double step_seconds(std::uint64_t current, double now);

  /// Stores the values of the logs. New names are appended: sorted within one call in Keras 3, in
  /// the order of the logs in Keras 2.
  LOCKSTEP_COLD_DECL void remember(const Logs& logs);

  LOCKSTEP_DECL bool has_target() const;
  /// " 5/70", padded to the width of "70/70".
  LOCKSTEP_COLD_DECL std::string count(std::uint64_t current) const;
  /// How many of the bar's `width` characters to fill.
  LOCKSTEP_DECL std::size_t filled(std::uint64_t current, std::size_t width) const;
  /// "      5/Unknown", for a bar without a target.
  LOCKSTEP_COLD_DECL static std::string unknown(std::uint64_t current);
  LOCKSTEP_COLD_DECL std::string eta(std::uint64_t current, double step_time) const;
  LOCKSTEP_COLD_DECL static std::string repeat(std::string_view part, std::size_t times);

  LOCKSTEP_COLD_DECL void keras_line(Line& line, std::uint64_t current, double step_time,
                                     double now, bool last);

  LOCKSTEP_COLD_DECL void classic_line(Line& line, std::uint64_t current, double step_time,
                                       double now, bool last);

  LOCKSTEP_COLD_DECL std::string plain_line(std::uint64_t current, double step_time, double now);

  LOCKSTEP_COLD_DECL void add_values(Line& line) const;

  ProgressStyle style_;
  std::optional<std::uint64_t> target_;
  bool is_terminal_, has_colour_;
  double start_;
  std::optional<double> drawn_;        // time of the last redraw
  std::optional<double> after_first_;  // time after the first step
  std::size_t columns_ = 0;            // width of the last text, to be erased
  bool line_open_ = false;
  std::vector<std::pair<std::string, double>> values_;  // in the order of display
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/progress_bar.ipp"
#endif
