/// \file
/// The model at the last boundary of a run, from before the hooks that followed. Invariant: hooks
/// that only exchange weights and averages cost no copy.
#pragma once

#include <optional>

#include "lockstep/core/config.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"

namespace lockstep::detail {

class AnyModelState;

/// Undoes what hooks do to a model.
/// \code
///   boundary.mark(replicas);       // hooks follow
///   ...                            // a hook calls set_weights: before_change copies the model
///   boundary.roll_back(state);     // a peer is lost
/// \endcode
class ModelBoundary {
 public:
  /// The model is at a boundary now; keeps what hooks change from here on.
  LOCKSTEP_COLD_DECL void mark(AnyModelState& replicas);
  /// The same, and `roll_back` follows: also of hooks that this process calls alone, within which an
  /// exchange would wait for the others.
  void mark_for_hooks(AnyModelState& replicas) {
    mark(replicas);
    undoes_hooks_ = true;
  }
  bool undoes_hooks() const { return undoes_hooks_; }
  /// The run itself changes the model; what hooks changed before is still known.
  void pause() { keeps_ = false; }
  /// Forgets everything.
  void clear() {
    keeps_ = undoes_hooks_ = false;
    kept_.reset();
    has_averages_.reset();
  }
  /// Called before each change of the model except an exchange of weights and averages.
  void before_change(AnyModelState& replicas) {
    if (keeps_ && !kept_) keep(replicas);
  }
  /// `state`: the model's current state, which becomes that at the boundary.
  LOCKSTEP_COLD_DECL void roll_back(JobState& state);
  LOCKSTEP_COLD_DECL void roll_back(AnyModelState& replicas);

 private:
  LOCKSTEP_COLD_DECL void keep(AnyModelState& replicas);

  bool keeps_ = false, undoes_hooks_ = false;
  std::optional<bool> has_averages_{};  // in the weights, at the boundary; empty: there is none
  std::optional<JobState> kept_{};      // before the first change
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/elastic/model_boundary.ipp"
#endif
