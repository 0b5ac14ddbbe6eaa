/// \file
/// The text of a progress bar. Invariants: a text is a function of what the bar was told, never of
/// a clock or a stream of its own; between two redraws of a bar lie at least 50 ms, and what comes
/// earlier costs two comparisons.
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
  automatic,  ///< keras on a terminal; plain elsewhere, and when CI is set
  keras,  ///< the bar of Keras 3, in colour unless NO_COLOR is set; on a pipe each redraw is a line
  classic,  ///< the bar of Keras 2: 70/70 [=====] - 3s 12ms/step - loss: 0.5432
  plain,    ///< one line an epoch, as Keras' verbose=2
  json,     ///< one JSON object a line
  none
};

namespace detail {
/// Whether an environment variable has a value.
LOCKSTEP_DECL bool is_set(const char* variable);
}  // namespace detail

/// `automatic` resolved for a stream; every other style as it is.
LOCKSTEP_DECL ProgressStyle resolve(ProgressStyle style, bool is_terminal);

/// The style of a name ("keras", "classic", "plain", "json", "none"), or nothing.
LOCKSTEP_DECL std::optional<ProgressStyle> progress_style(std::string_view name);

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
  LOCKSTEP_DECL ProgressBar(ProgressStyle style, std::optional<std::uint64_t> target,
                            bool is_terminal, double start, bool has_colour = true);

  /// Text after `current` steps, to be written at once; empty if it is not time yet.
  LOCKSTEP_DECL std::string update(std::uint64_t current, const Logs& logs, double now);
  /// The last text, with the time in all. A target that was unknown is now `current`.
  LOCKSTEP_DECL std::string finish(std::uint64_t current, const Logs& logs, double now);
  /// True while the last text did not end its line.
  bool is_line_open() const { return line_open_; }

 private:
  // The functions that draw are cold: they are called at most twenty times a second.

  /// A text and the columns that it takes on the screen.
  struct Line {
    std::string text;
    std::size_t columns = 0;
    LOCKSTEP_COLD_DECL void add(std::initializer_list<std::string_view> parts);
  };
  LOCKSTEP_COLD_DECL void add_coloured(Line& line, std::string_view code,
                                       std::string_view part) const;

  LOCKSTEP_COLD_DECL std::string draw(std::uint64_t current, const Logs& logs, double now,
                                      bool last);

  /// Mean time of a step; the first step, which pays for preparations, counts only when it is
  /// alone.
  LOCKSTEP_DECL double step_seconds(std::uint64_t current, double now);

  /// Keras 3 sorts the names of each call, Keras 2 takes them as they come; a new name goes last.
  LOCKSTEP_COLD_DECL void remember(const Logs& logs);

  LOCKSTEP_DECL bool has_target() const;
  /// " 5/70", as wide as "70/70".
  LOCKSTEP_COLD_DECL std::string count(std::uint64_t current) const;
  /// How many of `width` characters are done.
  LOCKSTEP_DECL std::size_t filled(std::uint64_t current, std::size_t width) const;
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
  std::optional<double> drawn_, after_first_;
  std::size_t columns_ = 0;
  bool line_open_ = false;
  std::vector<std::pair<std::string, double>> values_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/progress_bar.ipp"
#endif
