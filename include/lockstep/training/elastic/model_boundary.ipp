#pragma once

#include "lockstep/training/elastic/model_boundary.hpp"

#include <utility>

#include "lockstep/training/step/any_model_state.hpp"

namespace lockstep::detail {

void ModelBoundary::mark(AnyModelState& replicas) {
  kept_.reset();
  has_averages_ = replicas.has_averages_in_weights();
  keeps_ = true;
}

void ModelBoundary::keep(AnyModelState& replicas) { replicas.save_own(kept_.emplace()); }

/// Keeps the own elements of `state`, which is about to go back to the boundary, for processes that
/// have passed the next one.
inline void keep_later(JobState& state) {
  if (!state.owned || state.owned->owned.size() == 0 || !state.owned->later.empty()) return;
  state.owned->later.push_back(state.weights);
  for (const auto& slot : state.slot_values) state.owned->later.push_back(slot.second);
  state.owned->later_state = state.state;
  state.owned->later_steps = state.steps;
}

void ModelBoundary::roll_back(JobState& state) {
  const bool swaps = has_averages_ && state.has_averages_in_weights != *has_averages_;
  if (kept_ || swaps) keep_later(state);
  if (std::optional<JobState> kept = std::exchange(kept_, std::nullopt)) {
    state.weights = std::move(kept->weights);
    state.state = std::move(kept->state);
    state.slot_values = std::move(kept->slot_values);
    state.steps = kept->steps;
    state.loss_scale = kept->loss_scale;
    state.has_averages_in_weights = kept->has_averages_in_weights;
    if (state.owned && kept->owned) {
      state.owned->owned = std::move(kept->owned->owned);
      state.owned->has_weights = kept->owned->has_weights;
    }
  }
  if (!has_averages_ || state.has_averages_in_weights == *has_averages_) return;
  const std::size_t size = state.weights.size();
  std::swap(state.weights, state.slot_values.back().second);  // the averages are the last slot
  state.has_averages_in_weights = *has_averages_;
  if (!state.owned) return;
  // A slot, which had the weights, has only the elements of this process.
  state.weights.resize(size);
  state.owned->has_weights = false;
  if (state.owned->owned.size() == 0) state.slot_values.back().second.clear();
}

void ModelBoundary::roll_back(AnyModelState& replicas) {
  keeps_ = false;
  if (const std::optional<JobState> kept = std::exchange(kept_, std::nullopt)) replicas.load(*kept);
  if (has_averages_ && replicas.has_averages_in_weights() != *has_averages_)
    replicas.swap_averages(*has_averages_);
  undoes_hooks_ = false;
}

}  // namespace lockstep::detail
