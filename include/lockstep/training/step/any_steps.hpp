/// \file
/// The results of a model's steps, whatever its type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/training/report/running_logs.hpp"
#include "lockstep/training/step/run_requests.hpp"

namespace lockstep::detail {

class StepTrace;

/// Sums and requests that the steps of all replicas exchange. Implemented by Replicas only.
class AnySteps {
 public:
  /// Requests of all processes, as of the last exchange.
  virtual RunRequests agreed_requests() const = 0;
  /// Exchanges requests between steps, without gradients. Collective.
  virtual void exchange_requests(RunRequests requests) = 0;
  /// Steps that replicas make alone before `end_round`; 0: each step is an exchange.
  virtual std::uint64_t steps_of_round() const { return 0; }
  /// Ends a round, if it has steps: afterwards all replicas hold the same weights, and the sums of
  /// its steps are pending. Collective.
  virtual void end_round(const RunRequests& /*requests*/) {}
  /// Ends a round that an exception has interrupted, without an exchange: the weights, the state of
  /// layers and the step count of this process are those of its beginning.
  virtual void discard_round() {}
  /// Drops the requests that the last exchange left.
  virtual void clear_requests() = 0;
  /// Drops the sums of steps that no read_sums has read, as after an exception.
  virtual void discard_pending_steps() = 0;
  /// Waits for the devices; \throws errors that kernels reported meanwhile.
  virtual void wait_for_steps() = 0;
  /// Empty logs with the names of the loss and the metrics.
  virtual RunningLogs begin_logs() const = 0;
  /// Adds the sums of all pending steps to `running`, and clears them.
  virtual void read_sums(RunningLogs& running) = 0;
  /// Adds those of the first pending step that no call has read; there must be one.
  virtual void read_step(RunningLogs& running) = 0;
  /// Makes step i of the last round the one whose losses `not_finite` reads.
  virtual void point_to(std::size_t i) = 0;
  /// Records the work of this process' replicas in `trace`, with memory for `steps` steps; null ends
  /// it.
  virtual void record(std::shared_ptr<StepTrace> trace, std::uint64_t steps) = 0;

 protected:
  AnySteps() = default;
  AnySteps(const AnySteps&) = default;
  AnySteps& operator=(const AnySteps&) = default;
  ~AnySteps() = default;
};

}  // namespace lockstep::detail
