#pragma once

#include "lockstep/training/evaluation.hpp"

#include "lockstep/core/process/threads.hpp"

namespace lockstep::detail {

Evaluated evaluate_over(Run& run, Steps& steps, std::optional<std::uint64_t> most) {
  AnyReplicas& replicas = run.replicas;
  RunningLogs running = replicas.begin_logs();
  run.callbacks.on_test_begin({});
  steps.begin({replicas.seed(), 0}, 0);
  bool stops = run.stops_without_peers();
  for (std::uint64_t b = 0; (!most || b < *most) && !stops && steps.next(); ++b) {
    CancellationDeferred::point();
    run.callbacks.on_test_batch_begin(static_cast<std::size_t>(b), {});
    const RunRequests mine = run.requests();
    steps.run_step(mine, 0, true);
    const RunRequests agreed = run.agreed_requests(mine);
    replicas.read_sums(running);
    run.callbacks.on_test_batch_end(static_cast<std::size_t>(b), running.logs());
    run.leave_if_evicted();
    stops = run.effective(agreed).stop_now;
  }
  run.kept.totals = running.totals();
  run.callbacks.on_test_end(running.logs());
  return {running.logs(), !stops};
}

void predict_over(Run& run, Steps& steps, std::optional<std::uint64_t> most) {
  run.callbacks.on_predict_begin({});
  steps.begin(Pass{}, 0);  // as `collect` does
  bool stops = run.stops_without_peers();
  for (std::uint64_t b = 0; (!most || b < *most) && !stops && steps.next(); ++b) {
    CancellationDeferred::point();
    run.callbacks.on_predict_batch_begin(static_cast<std::size_t>(b), {});
    const RunRequests mine = run.requests();
    steps.run_step(mine, 0, true);
    const RunRequests agreed = run.agreed_requests(mine);
    run.callbacks.on_predict_batch_end(static_cast<std::size_t>(b), {});
    run.leave_if_evicted();
    stops = run.effective(agreed).stop_now;
  }
  run.callbacks.on_predict_end({});
}

}  // namespace lockstep::detail
