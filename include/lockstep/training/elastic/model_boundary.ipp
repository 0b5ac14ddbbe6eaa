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

void ModelBoundary::keep(AnyModelState& replicas) { replicas.save(kept_.emplace()); }

void ModelBoundary::roll_back(JobState& state) {
  if (std::optional<JobState> kept = std::exchange(kept_, std::nullopt)) {
    state.weights = std::move(kept->weights);
    state.state = std::move(kept->state);
    state.slot_values = std::move(kept->slot_values);
    state.steps = kept->steps;
    state.loss_scale = kept->loss_scale;
    state.has_averages_in_weights = kept->has_averages_in_weights;
  }
  if (!has_averages_ || state.has_averages_in_weights == *has_averages_) return;
  std::swap(state.weights, state.slot_values.back().second);  // the averages are the last slot
  state.has_averages_in_weights = *has_averages_;
}

void ModelBoundary::roll_back(AnyModelState& replicas) {
  keeps_ = false;
  if (const std::optional<JobState> kept = std::exchange(kept_, std::nullopt)) replicas.load(*kept);
  if (has_averages_ && replicas.has_averages_in_weights() != *has_averages_)
    replicas.swap_averages(*has_averages_);
}

}  // namespace lockstep::detail
