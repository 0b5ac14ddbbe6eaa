/// \file
/// The parts of an update shared by all optimizers: which parameters are updated in one call, and
/// the passes of UpdateOptions. Invariants: every pass sees the gradient of the global batch, which
/// is bit-identical in all replicas, so all make the same update without an exchange; without
/// options, the optimizer's pass is the only one over the buffers; a step allocates nothing.
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

/// The optimizer's options, or the defaults if its type has none.
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

/// Number of buffers: the optimizer's own slots, followed by those of its options (accumulated
/// gradients, then moving averages). Each has as many elements as the weights.
template <class O>
std::size_t slot_count(const O& optimizer) {
  const UpdateOptions& with = options_of(optimizer);
  return optimizer.slot_count() + (with.gradient_accumulation_steps > 1 ? 1 : 0) +
         (with.use_ema ? 1 : 0);
}
/// Name of the i-th buffer, for messages.
template <class O>
std::string_view slot_name(const O& optimizer, std::size_t i) {
  if (i < optimizer.slot_count()) return optimizer.slot_name(i);
  return i == optimizer.slot_count() && options_of(optimizer).gradient_accumulation_steps > 1
             ? "accumulated_gradient"
             : "moving_average";
}

/// A range of the flat weights that one call updates.
struct UpdateSegment {
  std::size_t begin = 0, end = 0;
  Penalty penalty;
  bool decays = true;  ///< weight decay applies
};

/// Divides the weights into segments: one for each trainable parameter if `each`, otherwise
/// neighbours with equal penalty and decay are joined. `result` must have room for as many segments
/// as there are parameters. \returns the number of segments. \throws UsageError if a text of
/// `no_decay` occurs in no parameter's name.
LOCKSTEP_COLD_DECL std::size_t update_segments(std::span<const NamedParameter> parameters,
                                               bool each, const NameList& no_decay,
                                               UpdateSegment* result);

/// The passes of one replica's UpdateOptions around the optimizer's own:
///
///     begin:  add the penalties' gradients, accumulate, sum squares; clip   (cold, with options)
///     optimizer's kernel, once per segment, with the arguments of io(i)
///     end:    clear the accumulated gradients; moving averages             (cold, with options)
template <class D>
class Updates {
 public:
  using T = typename D::real;
  using Context = typename D::Context;

  /// `segments` must outlive the object. `extra`: the buffers after the optimizer's own; see
  /// slot_count.
  [[gnu::cold]] Updates(Context& context, const UpdateOptions& with, double weight_decay,
                        std::span<const UpdateSegment> segments, const Buffer<Context, T>* extra);

  std::size_t segments() const { return segments_.size(); }
  const UpdateSegment& segment(std::size_t i) const { return segments_[i]; }
  /// Number of the update that a step makes or accumulates for; both are counted from 1.
  std::uint64_t number(std::uint64_t step) const { return (step - 1) / each_updates_ + 1; }

  /// Call before the update of a step. \returns false if the step only accumulates gradients.
  bool begin(std::uint64_t step, const T* w, T* g) {
    return is_by_parts() || pass_over_gradients(step, w, g);
  }

  /// Whether each element's update depends on its own gradient only, so that any range of the
  /// weights may be updated as soon as its gradients are final.
  bool is_by_parts() const { return sum_ == nullptr && !wants_squares(); }

  /// The optimizer kernel's arguments for segment i, without the slots.
  UpdateIo<D> io(std::size_t i, double rate, T* w, T* g) {
    const UpdateSegment& s = segments_[i];
    const bool penalised = sum_ != nullptr || wants_squares();  // begin() has added the gradient
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

  /// Call after the update of a step, or instead of an update if `begin` returned false.
  void end(std::uint64_t step, T* w) {
    if (sum_ != nullptr || average_ != nullptr) pass_over_weights(step, w);
  }
  /// Copies the moving averages over the weights, if there are any.
  void overwrite_with_average(T* w) {
    if (average_ != nullptr) average(1, true, w);
  }

 private:
  bool wants_squares() const { return clip_ > 0; }
  std::size_t size() const { return segments_.empty() ? 0 : segments_.back().end; }

  // Cold: nearly all time is spent in the kernels that they call.
  [[gnu::cold]] bool pass_over_gradients(std::uint64_t step, const T* w, T* g);
  [[gnu::cold]] void pass_over_weights(std::uint64_t step, T* w);
  void average(double momentum, bool overwrites, T* w);

  /// Turns sums of squares into factors of the gradients: clip min(1 / norm, 1 / clip). An infinite
  /// or NaN norm makes the whole gradient NaN, as Keras' global_clipnorm does; Keras' clipnorm
  /// instead zeroes the finite elements next to an infinite one.
  void clip();

  Context* context_;
  double clip_;
  bool clips_each_;
  double limit_, decay_, momentum_;
  std::uint64_t each_updates_, overwrites_each_;  // in steps; in updates, 0: never
  std::span<const UpdateSegment> segments_;
  T* sum_;
  T* average_;
  Buffer<Context, double> squares_;  // sum of squares of each segment's gradient
  std::vector<double> scale_;        // factor of each segment's gradient
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
  wait_for(*context_);  // does not throw a kernel's error: the other replicas make this update
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
