/// \file
/// Writes a trace of some training steps. Invariants: only the chief writes; the file is complete
/// or absent; without this callback a step records nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/report/step_recorder.hpp"

namespace lockstep {

/// Writes what each replica does in `steps` steps of a fit: each layer's forward and backward, the
/// loss, the buckets that are exchanged and the waits for them, the update, data, callbacks,
/// checkpoints. The file is for https://ui.perfetto.dev, chrome://tracing, and the command
/// `./dev plot --timeline`.
///
/// With ls::ParameterServer a step has "push" and "pull" instead of buckets, with their bytes: all that
/// a worker sends or receives, and what a server receives from or sends to all others.
///
/// Each process of a job is a process of the trace, each replica a thread, as is the thread that
/// exchanges its gradients. Times are those of the chief's clock: the clocks are compared at the end
/// of the trace, and `otherData` in the file has each rank's offset and the most by which it may be
/// wrong. The times of a GPU are those of its events, and a traced step waits for each of its parts.
///
/// In a job of several processes all must have the callback, with the same steps, or `fit` throws
/// before the first one. An elastic job is refused. With `steps_per_execution` the trace begins and
/// ends between two executions. If it is the first of the callbacks, the others' hooks at the end of
/// the last step are not in the trace.
/// Format: Trace Event Format, Google, 2016.
/// \code
///   model.fit(train, {.callbacks = {ls::Trace{.filename = "trace.json", .steps = 5}}});
/// \endcode
struct Trace {
  std::string filename = "trace.json";
  /// Steps of this fit before the first one of the trace. Default: 20, or half of the fit if it has
  /// fewer than 40 steps.
  std::optional<std::uint64_t> first_step{};
  std::uint64_t steps = 10;  ///< at most; a fit may end before

  /// The callback for `fit`. \throws UsageError if an option is invalid. `fit` throws FileError if
  /// the file cannot be written, before the first step.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/trace_callback.ipp"
#endif
