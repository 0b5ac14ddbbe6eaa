/// \file
/// What of an update is not the optimizer's own: which parameters are updated together, and the
/// options of all optimizers. Invariants: all of it sees the gradient of the global batch, which is
/// the same in all replicas, so that all make the same update; without options there is no pass
/// over the buffers but the optimizer's; a step takes no memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/graph.hpp"
#include "lockstep/optimizers/update_options.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

template <class O>
concept HasUpdateOptions = requires(const O& optimizer) {
  optimizer.with;
  optimizer.weight_decay;
};

/// What an optimizer was told; nothing if it takes no options.
template <class O>
const UpdateOptions& options_of(const O& optimizer) {
  if constexpr (HasUpdateOptions<O>) {
    return optimizer.with;
  } else {
    static const UpdateOptions none;
    return none;
  }
}
template <class O>
double weight_decay_of(const O& optimizer) {
  if constexpr (HasUpdateOptions<O>)
    return optimizer.weight_decay;
  else
    return 0;
}

/// Buffers of an optimizer with those of its options after them: the sum of gradients, the
/// averages.
template <class O>
std::size_t slot_count(const O& optimizer) {
  const UpdateOptions& with = options_of(optimizer);
  return optimizer.slots() + (with.gradient_accumulation_steps > 1 ? 1 : 0) +
         (with.use_ema ? 1 : 0);
}
template <class O>
std::string_view slot_name(const O& optimizer, std::size_t i) {
  if (i < optimizer.slots()) return optimizer.slot_name(i);
  return i == optimizer.slots() && options_of(optimizer).gradient_accumulation_steps > 1
             ? "accumulated_gradient"
             : "moving_average";
}
/// A range of the flat weights that is updated in one call.
struct UpdateSegment {
  std::size_t begin = 0, end = 0;
  Penalty penalty;
  bool decays = true;
};

/// Each trainable parameter by itself, or neighbours joined that are treated alike; returns how
/// many. `result` has room for as many as there are parameters. \throws UsageError if a text of
/// `no_decay` is in no parameter's name.
LOCKSTEP_COLD_DECL std::size_t update_segments(std::span<const NamedParameter> parameters,
                                               bool each, const NameList& no_decay,
                                               UpdateSegment* result);

/// The options of one replica's updates.
template <class D>
class Updates {
 public:
  using T = typename D::real;
  using Context = typename D::Context;

  /// `segments` outlive it. `extra`: the buffers after the optimizer's own, see slot_count.
  [[gnu::cold]] Updates(Context& context, const UpdateOptions& with, double weight_decay,
                        std::span<const UpdateSegment> segments, const Buffer<Context, T>* extra);

  std::size_t segments() const { return segments_.size(); }
  const UpdateSegment& segment(std::size_t i) const { return segments_[i]; }
  /// Number of the update, from 1, that a step, counted from 1, makes or prepares.
  std::uint64_t number(std::uint64_t step) const { return (step - 1) / each_updates_ + 1; }

  /// Before the update of a step; false if this step makes none.
  bool begin(std::uint64_t step, const T* w, T* g) {
    return is_by_parts() || pass_over_gradients(step, w, g);
  }

  /// Whether an update sees nothing of a gradient but its own elements: each part of the weights
  /// may be updated by itself.
  bool is_by_parts() const { return sum_ == nullptr && !wants_squares(); }

  /// Of segment i, but for the slots.
  UpdateIo<D> io(std::size_t i, double rate, T* w, T* g) {
    const UpdateSegment& s = segments_[i];
    const bool penalised = sum_ != nullptr || wants_squares();  // by begin()
    return {*context_,
            s.end - s.begin,
            w + s.begin,
            (sum_ != nullptr ? sum_ : g) + s.begin,
            {},
            penalised ? Penalty{} : s.penalty,
            s.decays ? rate * decay_ : 0,
            scale_[i],
            limit_};
  }

  /// After the update of a step, or in the place of it.
  void end(std::uint64_t step, T* w) {
    if (sum_ != nullptr || average_ != nullptr) pass_over_weights(step, w);
  }
  /// The weights become their averages, if there are any.
  void overwrite_with_average(T* w) {
    if (average_ != nullptr) average(1, true, w);
  }

 private:
  bool wants_squares() const { return clip_ > 0; }
  std::size_t size() const { return segments_.empty() ? 0 : segments_.back().end; }

  // Cold: their own work is little, whatever the kernels'.
  [[gnu::cold]] bool pass_over_gradients(std::uint64_t step, const T* w, T* g);
  [[gnu::cold]] void pass_over_weights(std::uint64_t step, T* w);
  void average(double momentum, bool overwrites, T* w);

  /// From the sums of squares to the factors of gradients. A norm that is infinite or no number
  /// makes the gradient no number, as Keras' global_clipnorm does; its clipnorm leaves zeros beside
  /// an infinite element.
  void clip();

  Context* context_;
  double clip_;
  bool clips_each_;
  double limit_, decay_, momentum_;
  std::uint64_t each_updates_, overwrites_each_;
  std::span<const UpdateSegment> segments_;
  T* sum_;
  T* average_;
  Buffer<Context, double> squares_;  // of each segment
  std::vector<double> scale_;        // of each segment's gradient
};

template <class D>
Updates<D>::Updates(Context& context, const UpdateOptions& with, double weight_decay,
                    std::span<const UpdateSegment> segments, const Buffer<Context, T>* extra)
    : context_(&context),
      clip_(with.clipnorm > 0 ? with.clipnorm : with.global_clipnorm),
      clips_each_(with.clipnorm > 0),
      limit_(with.clipvalue > 0 ? with.clipvalue : std::numeric_limits<double>::infinity()),
      decay_(weight_decay),
      momentum_(with.ema_momentum),
      each_updates_(with.gradient_accumulation_steps),
      overwrites_each_(with.ema_overwrite_frequency),
      segments_(segments),
      sum_(each_updates_ > 1 ? extra++->data() : nullptr),
      average_(with.use_ema ? extra->data() : nullptr),
      squares_(context, wants_squares() ? segments_.size() : 0),
      scale_(segments_.size(), 1.0 / static_cast<double>(each_updates_)) {}

template <class D>
bool Updates<D>::pass_over_gradients(std::uint64_t step, const T* w, T* g) {
  const bool updates = step % each_updates_ == 0, squares = wants_squares() && updates;
  if (squares) context_->clear(reinterpret_cast<std::byte*>(squares_.data()), squares_.bytes());
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const UpdateSegment& s = segments_[i];
    run_kernel<D>(GradientPass{},
                  GradientPassIo<D>{*context_, s.end - s.begin, w + s.begin, g + s.begin,
                                    sum_ != nullptr ? sum_ + s.begin : nullptr, s.penalty,
                                    squares ? squares_.data() + i : nullptr});
  }
  if (squares) clip();
  return updates;
}

template <class D>
void Updates<D>::pass_over_weights(std::uint64_t step, T* w) {
  if (sum_ != nullptr && step % each_updates_ == 0)
    context_->clear(reinterpret_cast<std::byte*>(sum_), size() * sizeof(T));
  if (average_ == nullptr) return;
  const std::uint64_t n = number(step);
  average(n == 1 ? 0 : momentum_, overwrites_each_ > 0 && n % overwrites_each_ == 0, w);
}

template <class D>
void Updates<D>::average(double momentum, bool overwrites, T* w) {
  run_kernel<D>(MovingAverage{momentum, overwrites},
                MovingAverageIo<D>{*context_, size(), w, average_});
}

template <class D>
void Updates<D>::clip() {
  squares_.download(scale_.data());
  wait_for(*context_);  // see there: it is between the exchange and the update
  double all = 0;
  for (const double s : scale_) all += s;
  const double part = 1 / static_cast<double>(each_updates_);
  for (double& s : scale_) {
    const double norm = part * std::sqrt(clips_each_ ? s : all);
    s = part * (clip_ * std::min(1 / norm, 1 / clip_) + (norm - norm));
  }
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/step/updates.ipp"
#endif
