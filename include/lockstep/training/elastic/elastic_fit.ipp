#pragma once

#include "lockstep/training/elastic/elastic_fit.hpp"

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/training/fit_loop.hpp"

namespace lockstep::detail {

void ElasticFit::run(const std::stop_token& stop) {
  const ElasticRuns::Scope scope(runs_, stop);
  const ElasticRuns::Nesting none(&runs_, false);
  ElasticRuns::Entry entry = runs_.enter(replicas_, kept_);
  if (entry.skip) return;
  loop_.set_driver(*this);
  std::optional<Recovered> at = std::move(entry.at);
  if (!at) loop_.change_place();  // `enter` may have joined a generation
  for (;;) {
    std::string why;
    try {
      if (at) go_to(std::move(*std::exchange(at, std::nullopt)));
      if (!loop_.has_begun()) {  // again, or with the state of a job that it has joined
        runs_.boundary().clear();
        loop_.begin_again();
      }
      loop_.run_epochs();
      is_complete_ = true;
      return ElasticRuns::finish(replicas_);
    } catch (const PeerLost& e) {
      why = e.what();
    } catch (const FitLoop::Admission&) {
      why = "a worker joins";
    }
    try {
      at = runs_.recover(replicas_, why, standing(), state());
    } catch (const Error& e) {
      return end_with(e);
    }
    if (at->has_returned) return;
  }
}

void ElasticFit::end_with(const Error& error) {
  if (!is_complete_) throw;
  if (runs_.has_rolled_back()) {
    loop_.current_run().callbacks.load_states(boundary_.state.callbacks);
    loop_.end_run();
  }
  log(LogLevel::warning, error.what());  // the result is complete; the next call throws
}

void ElasticFit::pass_boundary() {
  const Run& run = loop_.current_run();
  boundary_ = {
      .number = loop_.boundaries(), .unsent_rate = kept_.unsent_rate, .stopped = run.stopped};
  loop_.save(boundary_.state);
  runs_.boundary().mark(replicas_);
}

RunStanding ElasticFit::standing() const {
  return {.call = runs_.call(),
          .has_begun = loop_.has_begun() ? 1U : 0U,
          .boundaries = loop_.boundaries()};
}

JobState ElasticFit::state() {
  if (!loop_.has_begun()) return loop_.own_state();
  if (boundary_.number != loop_.boundaries()) {  // within an execution, so no hook has been called
    loop_.read_sums();
    pass_boundary();
  }
  JobState state = boundary_.state;
  replicas_.save_own(state);
  state.signature = loop_.signature();  // all of it, for processes that join
  return state;
}

void ElasticFit::go_to(Recovered at) {
  Run& run = loop_.current_run();
  const bool was_chief = run.place.is_chief;
  is_complete_ = false;
  replicas_.discard_pending_steps();
  loop_.change_place();
  if (at.at.has_begun == 0) {  // as in this process: a donor is at least as far
    if (at.is_behind && at.at.call == runs_.call()) kept_.restore(at.state);
    return;
  }
  ModelBoundary& model = runs_.boundary();
  model.mark_for_hooks(replicas_);
  const bool is_new = loop_.move_to(at.state, at.at.boundaries);
  loop_.restore(at.state);
  model.roll_back(replicas_);  // the hooks may have set weights
  if (!at.is_behind) {
    kept_.unsent_rate = boundary_.unsent_rate;
    run.stopped = boundary_.stopped;
  }
  if (!is_new) loop_.report_change(was_chief);
  pass_boundary();
}

}  // namespace lockstep::detail
