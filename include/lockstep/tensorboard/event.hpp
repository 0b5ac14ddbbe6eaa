/// \file
/// The messages of TensorBoard's event files, as bytes in Protocol Buffers' format. Invariants: the
/// functions depend on their arguments only; field numbers are those of tensorboard/compat/proto
/// and tensorboard/plugins/hparams; strings are UTF-8, with U+FFFD for bytes that are not.
///
/// A file is a sequence of events, each in a record; see record.hpp. An event has a summary of one
/// or more values, or one of the other contents:
///
///     Event { wall_time, step, Summary { Value { tag, number or tensor, plugin }, ... } }
///     Event { wall_time, file version }
///     Event { wall_time, step, SessionLog { start } }
///     Event { wall_time, GraphDef { NodeDef { name, op, inputs, attributes }, ... } }
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/tensorboard/graph_node.hpp"
#include "lockstep/tensorboard/histogram_buckets.hpp"
#include "lockstep/tensorboard/hparam.hpp"

namespace lockstep::detail {

/// Result of a run, in the tab "HPARAMS".
enum class SessionStatus { succeeded = 1, failed = 2 };

/// Append a value to a summary: a number, as float.
LOCKSTEP_DECL void append_scalar(std::string& summary, std::string_view tag, double value);
/// The same as a tensor of rank 0, which is what TensorFlow 2 writes.
LOCKSTEP_DECL void append_tensor_scalar(std::string& summary, std::string_view tag, double value);
LOCKSTEP_COLD_DECL void append_histogram(std::string& summary, std::string_view tag,
                                         std::span<const HistogramBucket> buckets);
/// Images of the shape (height, width, channels), each as a PNG file.
LOCKSTEP_COLD_DECL void append_images(std::string& summary, std::string_view tag,
                                      const Shape& image, std::span<const std::string> png);
LOCKSTEP_COLD_DECL void append_text(std::string& summary, std::string_view tag,
                                    std::string_view text);
/// The beginning and the end of a run in the tab "HPARAMS". Times in seconds since 1970.
LOCKSTEP_COLD_DECL void append_session_start(std::string& summary, std::span<const HParam> hparams,
                                             double time);
LOCKSTEP_COLD_DECL void append_session_end(std::string& summary, SessionStatus status, double time);

/// Events; `wall_time` in seconds since 1970.
LOCKSTEP_DECL std::string summary_event(double wall_time, std::int64_t step,
                                        std::string_view summary);
/// The first event of each file.
LOCKSTEP_COLD_DECL std::string version_event(double wall_time);
/// The run goes on at `step`: earlier values with this step or a later one are obsolete.
LOCKSTEP_COLD_DECL std::string restart_event(double wall_time, std::int64_t step);
LOCKSTEP_COLD_DECL std::string graph_event(double wall_time, std::span<const GraphNode> nodes);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/event.ipp"
#endif
