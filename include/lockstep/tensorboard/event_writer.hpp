/// \file
/// Writes event files for TensorBoard. Invariants: an event file contains complete records only,
/// even after a crash, except perhaps the last one; a full disk never ends a training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/tensorboard/event.hpp"
#include "lockstep/tensorboard/event_file.hpp"
#include "lockstep/tensorboard/graph_node.hpp"
#include "lockstep/tensorboard/hparam.hpp"

namespace lockstep {

/// When an EventWriter writes to its file, and in which form.
struct EventWriterOptions {
  double flush_seconds = 120;  ///< longest time between two flushes while events are added
  std::size_t max_queue = 10;  ///< number of pending events that causes a flush
  /// Write scalars as tensors, as TensorFlow 2 does. TensorBoard shows both forms alike; a tensor
  /// is 22 bytes longer.
  bool tensor_scalars = false;
};

/// A number and its name.
struct Scalar {
  std::string_view tag;
  double value;
};

/// Writes values that TensorBoard shows, to one new event file: the events of one run.
///
/// A run is a folder. TensorBoard reads the files of a folder in the order of their names, and does
/// not return to an earlier one: do not write to a folder in which another writer is still open,
/// such as those of the callback TensorBoard. Steps are numbers on the charts' x axis. Not
/// thread-safe.
/// \code
///   ls::EventWriter writer("logs/my_values");
///   writer.add_scalar("queue/length", 3.0, step);
///   writer.add_histogram("outputs", outputs.elements(), step);  // outputs = model.predict(x)
///   writer.flush();
/// \endcode
class EventWriter {
 public:
  /// Creates the folder if it does not exist, and a file in it. \throws FileError; UsageError if an
  /// option is invalid. No other function throws FileError: if the file cannot be written later,
  /// one warning is logged and events are lost.
  LOCKSTEP_COLD_DECL explicit EventWriter(const std::string& folder,
                                          const EventWriterOptions& options = {});

  /// Adds a number, rounded to float.
  LOCKSTEP_DECL void add_scalar(std::string_view tag, double value, std::int64_t step);
  /// Adds several numbers in one event, which is shorter and faster.
  LOCKSTEP_DECL void add_scalars(std::span<const Scalar> scalars, std::int64_t step);
  /// Adds the distribution of the finite values; see histogram_of.
  LOCKSTEP_COLD_DECL void add_histogram(std::string_view tag, std::span<const float> values,
                                        std::int64_t step);
  /// Adds one or more images of the shape (height, width, channels), with 1 (grey), 2 (grey and
  /// alpha), 3 (RGB) or 4 channels (RGBA). `pixels`: image by image, row by row. \throws UsageError
  /// if the shape is not that of an image, or `pixels` is not a whole number of images.
  LOCKSTEP_COLD_DECL void add_images(std::string_view tag, const Shape& image,
                                     std::span<const std::uint8_t> pixels, std::int64_t step);
  /// Adds a text; TensorBoard shows it as Markdown.
  LOCKSTEP_COLD_DECL void add_text(std::string_view tag, std::string_view text, std::int64_t step);
  /// Declares values of the folder's earlier files with this step or a later one obsolete: a run
  /// continues from a checkpoint.
  LOCKSTEP_COLD_DECL void add_restart(std::int64_t step);
  /// Adds the graph of a model; the last one counts.
  LOCKSTEP_COLD_DECL void add_graph(std::span<const GraphNode> nodes);
  void add_graph(std::initializer_list<GraphNode> nodes) {
    add_graph(std::span(nodes.begin(), nodes.size()));
  }
  /// Begins a session of the tab "HPARAMS". Its metrics are the scalars of this run and of the runs
  /// in its subfolders. A session that is not ended counts as running.
  LOCKSTEP_COLD_DECL void begin_session(std::span<const HParam> hparams);
  LOCKSTEP_COLD_DECL void end_session(bool has_succeeded);

  /// Writes all events added so far to the file. Also called by the destructor.
  void flush() { file_.flush(); }
  /// Path of the event file.
  const std::string& path() const { return file_.path(); }

 private:
  /// Appends the event with the values of summary_.
  LOCKSTEP_DECL void append_summary(std::int64_t step);

  EventWriterOptions options_;
  detail::EventFile file_;
  std::string summary_;  // kept, so that its memory is reused
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/event_writer.ipp"
#endif
