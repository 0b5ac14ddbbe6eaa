/// \file
/// Reports the progress of a run. Invariants: only the chief writes, except that in the json style
/// every rank writes train_begin and train_end; each write is flushed; an unfinished line is ended
/// even if an exception ends the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/report/progress_bar.hpp"

namespace lockstep {

/// Keras' ProgbarLogger with a choice of styles.
///
/// An epoch that is stopped early shows the number of steps done. In the json style, `step` counts
/// over the whole run from TrainingParams::first_step; a `step` event has the values of that step
/// only, an `epoch_end` event those of the epoch.
/// \code
///   lockstep::Progress to_stdout(lockstep::ProgressStyle::automatic);
///   lockstep::Progress to_text(lockstep::ProgressStyle::plain,
///                              [&](std::string_view part) { text += part; });
/// \endcode
class Progress : public Callback {
 public:
  using Sink = std::function<void(std::string_view)>;  ///< writes a part of the output
  using Clock = std::function<double()>;               ///< seconds from any origin

  /// Writes to a stream, which must stay open.
  LOCKSTEP_DECL explicit Progress(ProgressStyle style = ProgressStyle::automatic,
                                  std::FILE* stream = stdout);
  LOCKSTEP_DECL Progress(ProgressStyle style, Sink sink, bool is_terminal = false,
                         Clock clock = &seconds);
  /// Ends an unfinished line.
  LOCKSTEP_COLD_DECL ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The style in use, never `automatic`.
  ProgressStyle style() const { return style_; }

  LOCKSTEP_COLD_DECL void on_train_begin(const Logs&) override;
  LOCKSTEP_COLD_DECL void on_train_end(const Logs&) override;
  LOCKSTEP_COLD_DECL void on_workers_change(const WorkersChange& change) override;
  LOCKSTEP_COLD_DECL void on_epoch_begin(int epoch, const Logs&) override;
  LOCKSTEP_COLD_DECL void on_epoch_end(int epoch, const Logs& logs) override;
  LOCKSTEP_DECL void on_train_batch_begin(std::size_t batch, const Logs&) override;
  LOCKSTEP_DECL void on_train_batch_end(std::size_t batch, const Logs& logs) override;

  LOCKSTEP_COLD_DECL void on_test_begin(const Logs&) override;
  LOCKSTEP_DECL void on_test_batch_end(std::size_t batch, const Logs& logs) override;
  LOCKSTEP_COLD_DECL void on_test_end(const Logs& logs) override;
  bool may_log(std::string_view) const override { return false; }
  LOCKSTEP_COLD_DECL void on_predict_begin(const Logs&) override;
  LOCKSTEP_DECL void on_predict_batch_end(std::size_t batch, const Logs&) override;
  LOCKSTEP_COLD_DECL void on_predict_end(const Logs&) override;

 private:
  LOCKSTEP_DECL static double seconds();
  LOCKSTEP_COLD_DECL static void add_json(std::string& line, std::string_view name, double value);
  LOCKSTEP_DECL void write_json(std::string& line);
  LOCKSTEP_DECL bool is_json_chief() const;
  LOCKSTEP_DECL bool has_bar() const;

  /// Begins the bar of an evaluation or a prediction outside of fit; inside there is none.
  LOCKSTEP_DECL void begin_alone();
  LOCKSTEP_DECL void begin_bar();
  LOCKSTEP_DECL void move_bar(std::size_t batch, const Logs& logs);
  LOCKSTEP_DECL void end_bar(const Logs& logs);
  LOCKSTEP_DECL void write(const std::string& drawn);
  LOCKSTEP_DECL void end_line();

  ProgressStyle style_;
  bool is_terminal_, has_colour_ = !detail::is_set("NO_COLOR");
  Sink sink_;
  Clock clock_;
  std::optional<ProgressBar> bar_;
  std::optional<std::uint64_t> target_;  // steps of an epoch, once known
  std::uint64_t seen_ = 0, step_ = 0;    // steps of the epoch; number of the next step of the run
  std::optional<std::uint64_t> epoch_step_{};  // number of the epoch's first step
  // An elastic job calls hooks again after a loss; these have been reported, also by another chief.
  std::uint64_t reported_ = 0;  // steps of the run
  std::optional<int> reported_epoch_{};
  int epoch_ = 0;
  bool in_fit_ = false;
  const Logs nothing_;  // a prediction has no logs
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/progress.ipp"
#endif
