/// \file
/// The parts of an update shared by all optimizers: which parameters are updated in one call, with
/// which multiples of rate and decay, and the passes of UpdateOptions over the weights that a replica
/// owns. Invariants: every pass sees the gradient of the global batch, which is bit-identical in all
/// replicas that own the same weights, so these make the same update without an exchange; without
/// options, the optimizer's pass is the only one over the buffers; a step allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/model/graph.hpp"
#include "lockstep/optimizers/update_options.hpp"
#include "lockstep/training/layer_settings.hpp"
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
/// gradients, then moving averages). Together the replicas hold as many elements of each as weights.
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
  double decay = 1;       ///< multiplier of weight decay
  double rate = 1;        ///< multiplier of the learning rate
  bool is_held = false;   ///< not updated, by the program's setting
  Shape shape = {};       ///< of the parameter, if the segment is a single one; see ParameterRule
  std::size_t block = 0;  ///< then the first segment of its block, or of a layer outside of blocks
  /// Elements of each slot, at most all; see ParameterRule.
  std::array<std::size_t, max_slots> slot{all, all, all, all};
  bool is_by_elements = false;  ///< see ParameterRule

  static constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  std::size_t elements_of(std::size_t slot_number) const {
    return std::min(slot[slot_number], end - begin);
  }
};

/// Divides the weights into segments: one for each trainable parameter if `each`, otherwise
/// neighbours with equal penalty, decay and settings are joined. `result` must have room for as many
/// segments as there are parameters. \returns the number of segments. \throws UsageError if a text of
/// `no_decay` occurs in no parameter's name.
LOCKSTEP_COLD_DECL std::size_t update_segments(std::span<const NamedParameter> parameters,
                                               bool each, const NameList& no_decay,
                                               const LayerSettings& settings,
                                               std::span<const Node> nodes, UpdateSegment* result);

/// Sets slots, decay and shapes of the segments of single parameters by `rule_of`, the optimizer's.
LOCKSTEP_COLD_DECL void set_rules(
    std::span<const NamedParameter> parameters,
    FunctionRef<ParameterRule(std::string_view name, const Shape& shape)> rule_of,
    UpdateSegment* segments);

/// \throws UsageError if a text of `names`, the value of `option`, occurs in no parameter's name.
LOCKSTEP_COLD_DECL void check_names(std::string_view option, const NameList& names,
                                    std::span<const NamedParameter> parameters);

/// The penalties of all weights, without those of layers that are held, in `storage`.
LOCKSTEP_COLD_DECL std::span<const PenaltySegment> penalties_of(
    std::span<const NamedParameter> parameters, const LayerSettings& settings,
    std::span<const Node> nodes, std::unique_ptr<PenaltySegment[]>& storage);

/// The facts of an optimizer that the passes of an update need. The segments must outlive the replica.
struct UpdateFacts {
  std::size_t slot_count;  ///< buffers of the optimizer and of its options; see slot_count
  std::size_t own_slots;   ///< buffers of the optimizer alone
  const UpdateOptions& options;
  double weight_decay;  ///< 1 if the segments have the decay of their parameters
  bool is_by_elements;  ///< the optimizer updates each element from its own gradient only
  std::span<const UpdateSegment> segments;       ///< of all weights
  std::span<const NamedParameter> parameters{};  ///< in the order of the weights
  /// The workspace of an update of one segment; null: none.
  std::size_t (*scratch_bytes)(const UpdateSegment&) = nullptr;
};

/// Where a replica's update takes place: what the object of an update policy is made from. Device
/// and engine must outlive the object; `facts` ends with its constructor.
template <class D>
struct UpdateSite {
  typename D::Context& device;
  const PlanEngine<D>& engine;  ///< its weights and gradients
  const UpdateFacts& facts;
  std::size_t rank, replicas;
  ReplicaRoles roles;
  const void* policy = nullptr;  ///< the value of the strategy's policy; copy its options
  /// The weights that all replicas have, in ascending order; the others are their owners' only.
  /// Empty: all. Must outlive the object.
  std::span<const Slice> shared = {};
  bool has_final_gradients;  ///< backward's ranges of gradients are those of the whole batch
};

/// The optimizer's buffers for the weights that one replica owns, and the passes of its
/// UpdateOptions around the optimizer's own:
///
///     begin:  add the penalties' gradients, accumulate, sum squares; clip   (cold, with options)
///     apply:  the optimizer's rule, once per owned range, with the arguments of its segments
///     end:    clear the accumulated gradients; moving averages             (cold, with options)
///
/// A buffer holds the owned elements only, one range after the other, and a slot of the optimizer only
/// those that its rule for the parameter names. The objects of update policies are derived from this
/// class.
template <class D>
class Updates {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  /// Adds the sums of squares of the replicas that own other weights.
  using SumOverOwners = FunctionRef<void(std::span<double>)>;

  /// The buffers are filled with 0.
  [[gnu::cold]] Updates(const UpdateSite<D>& site, Ranges owned);
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;
  [[gnu::cold]] ~Updates();

  /// The weights that this replica updates.
  const Ranges& owned() const { return owned_; }
  /// Number of the update that a step makes or accumulates for; both are counted from 1.
  std::uint64_t number(std::uint64_t step) const { return (step - 1) / each_updates_ + 1; }

  /// The optimizer's buffers, followed by those of its options.
  std::span<const Buffer<Context, T>> slot_buffers() const { return slots_; }
  std::size_t slot_bytes() const { return slot_elements() * sizeof(T); }
  std::size_t slot_elements() const {
    std::size_t sum = 0;
    for (const Buffer<Context, T>& slot : slots_) sum += slot.size();
    return sum;
  }
  /// Those of all replicas that own other weights, too.
  std::size_t all_slot_elements() const {
    std::size_t sum = (slots_.size() - own_slots_) * engine_->weights().size();
    for (const UpdateSegment& s : segments_)
      for (std::size_t k = 0; k < own_slots_; ++k) sum += s.elements_of(k);
    return sum;
  }
  std::size_t scratch_bytes() const { return scratch_.bytes(); }
  /// The elements that a buffer holds. Read from a buffer, all others are 0.
  const Ranges& elements_of(std::size_t slot) const {
    return slot < held_.size() ? held_[slot] : owned_;
  }
  /// Fills all buffers with 0.
  [[gnu::cold]] void clear();
  /// Fills buffer `slot`; waits for the device.
  [[gnu::cold]] void fill(std::size_t slot, double value);
  /// Copies the elements of a buffer to their places among all elements on the host. May be
  /// called between steps, outside of the device's scope.
  [[gnu::cold]] void read(std::size_t slot, T* all) const;
  /// Sets the elements of a buffer from all elements on the host, which must stay until the
  /// device has been waited for.
  [[gnu::cold]] void load(std::size_t slot, const T* all) const;

  /// Replaces the segments, which must outlive this object.
  [[gnu::cold]] void set_segments(std::span<const UpdateSegment> segments);
  /// The arguments of the optimizer's kernel for the weights of `range`, one for each segment that
  /// it meets and that is not held. `range` must not extend beyond one owned range. Valid until the
  /// next call.
  std::span<const UpdateIo<D>> parts_of(double rate, Slice range);
  /// Calls the rule for the parts of `range`, once for all neighbours with one multiplier of the rate.
  void apply_to(Slice range, UpdateRule<D> rule, double rate);

 protected:
  /// Call before the update of a step. \returns false if the step only accumulates gradients.
  bool begin(std::uint64_t step, SumOverOwners sum = {}) {
    return is_by_parts() || pass_over_gradients(step, sum);
  }
  void apply(UpdateRule<D> rule, double rate) {
    for (const Slice& range : owned_) apply_to(range, rule, rate);
  }
  /// Call after the update of a step, or instead of an update if `begin` returned false.
  void end(std::uint64_t step) {
    if (accumulates() || has_average_) pass_over_weights(step);
  }
  /// Copies the moving averages over the weights, if there are any.
  void overwrite_with_average() {
    if (has_average_) average(1, true);
  }
  /// Whether each element's update depends on its own gradient only, so that any range of the
  /// weights may be updated as soon as its gradients are final.
  bool is_by_parts() const { return !accumulates() && !wants_squares(); }
  std::span<const UpdateSegment> segments() const { return segments_; }
  /// The weights of segments that are not held.
  [[gnu::cold]] Ranges trained() const {
    Ranges result;
    for (const UpdateSegment& s : segments_)
      if (!s.is_held) result.add({s.begin, s.end - s.begin});
    return result;
  }
  T* weights() const { return engine_->weights().data(); }
  T* gradients() const { return engine_->gradients().data(); }

 private:
  // Every device with optimizers that have options must have both kernels; see Replica.
  static constexpr bool can = HasKernel<GradientPass, D> && HasKernel<MovingAverage, D>;

  // Not of the pointers below, which are null in a replica that owns nothing: all replicas must
  // exchange the same.
  bool wants_squares() const { return clip_ > 0; }
  bool accumulates() const { return each_updates_ > 1; }

  // Cold: nearly all time is spent in the kernels that they call.
  [[gnu::cold]] bool pass_over_gradients(std::uint64_t step, SumOverOwners sum);
  [[gnu::cold]] void pass_over_weights(std::uint64_t step);
  void average(double momentum, bool overwrites);
  /// The first element of `part` that the slot holds, null if it holds none. `place`: where the part
  /// is among the owned elements.
  T* in_slot(std::size_t slot, Slice part, std::size_t place) const {
    T* const all = slots_[slot].data();
    if (held_[slot].size() == owned_.size()) return all + place;
    T* found = nullptr;
    held_[slot].each_within(part, [&](Slice, std::size_t at) {
      if (found == nullptr) found = all + at;
    });
    return found;
  }

  /// Turns sums of squares into factors of the gradients: clip min(1 / norm, 1 / clip). An infinite
  /// or NaN norm makes the whole gradient NaN, as Keras' global_clipnorm does; Keras' clipnorm
  /// instead zeroes the finite elements next to an infinite one.
  void clip(SumOverOwners sum);

  Context* context_;
  const PlanEngine<D>* engine_;
  Ranges owned_;
  std::vector<Ranges> held_;  // elements of each of the optimizer's own slots
  std::vector<Buffer<Context, T>> slots_;
  std::size_t own_slots_;
  Buffer<Context, std::byte> scratch_;
  double clip_;
  bool clips_each_, clips_blocks_;
  double limit_, decay_, momentum_;
  std::uint64_t each_updates_, overwrites_each_;  // in steps; in updates, 0: never
  std::span<const UpdateSegment> segments_;
  bool has_average_;
  T* sum_ = nullptr;                 // null: not accumulated
  T* average_ = nullptr;             // null without averages
  Buffer<Context, double> squares_;  // sum of squares of each segment's gradient
  std::vector<double> scale_;        // factor of each segment's gradient
  std::vector<double> sums_;         // of squares, at the first segment of those with one norm
  std::vector<UpdateIo<D>> parts_;   // returned by parts_of; kept so that a step allocates nothing
};

template <class D>
Updates<D>::Updates(const UpdateSite<D>& site, Ranges owned)
    : context_(&site.device),
      engine_(&site.engine),
      owned_(std::move(owned)),
      slots_(site.facts.slot_count),
      own_slots_(site.facts.own_slots),
      clip_(std::max({site.facts.options.clipnorm, site.facts.options.block_clipnorm,
                      site.facts.options.global_clipnorm})),
      clips_each_(site.facts.options.clipnorm > 0),
      clips_blocks_(site.facts.options.block_clipnorm > 0),
      limit_(site.facts.options.clipvalue > 0 ? site.facts.options.clipvalue
                                              : std::numeric_limits<double>::infinity()),
      decay_(site.facts.weight_decay),
      momentum_(site.facts.options.ema_momentum),
      each_updates_(site.facts.options.gradient_accumulation_steps),
      overwrites_each_(site.facts.options.ema_overwrite_frequency),
      segments_(site.facts.segments),
      has_average_(site.facts.options.use_ema),
      squares_(site.device, wants_squares() ? segments_.size() : 0),
      scale_(segments_.size(), 1.0 / static_cast<double>(each_updates_)),
      sums_(segments_.size()) {
  std::size_t scratch = 0;
  held_.resize(own_slots_);
  for (const UpdateSegment& s : segments_) {
    for (std::size_t k = 0; k < own_slots_; ++k)
      owned_.each_within({s.begin, s.elements_of(k)},
                         [&](Slice part, std::size_t) { held_[k].add(part); });
    if (site.facts.scratch_bytes != nullptr)
      owned_.each_within({s.begin, s.end - s.begin}, [&](Slice, std::size_t) {
        scratch = std::max(scratch, site.facts.scratch_bytes(s));
      });
  }
  scratch_ = Buffer<Context, std::byte>(site.device, scratch);
  for (std::size_t i = 0; i < slots_.size(); ++i)
    slots_[i] = Buffer<Context, T>(site.device, elements_of(i).size());
  auto extra = slots_.begin() + static_cast<std::ptrdiff_t>(own_slots_);
  if (accumulates()) sum_ = (extra++)->data();
  if (has_average_) average_ = extra->data();
}

template <class D>
Updates<D>::~Updates() = default;

template <class D>
void Updates<D>::set_segments(std::span<const UpdateSegment> segments) {
  segments_ = segments;
  scale_.assign(segments.size(), 1.0 / static_cast<double>(each_updates_));
  sums_.resize(segments.size());
  if (wants_squares()) squares_ = Buffer<Context, double>(*context_, segments.size());
}

template <class D>
void Updates<D>::clear() {
  for (const Buffer<Context, T>& slot : slots_)
    if (slot.size() > 0) context_->clear(reinterpret_cast<std::byte*>(slot.data()), slot.bytes());
}

template <class D>
void Updates<D>::fill(std::size_t slot, double value) {
  const std::vector<T> values(slots_[slot].size(), static_cast<T>(value));
  slots_[slot].upload(values.data());
  context_->synchronize();
}

template <class D>
void Updates<D>::read(std::size_t slot, T* all) const {
  [[maybe_unused]] const auto scope = context_->scope();
  std::size_t place = 0;
  for (const Slice& range : elements_of(slot)) {
    context_->download(reinterpret_cast<std::byte*>(all + range.first),
                       reinterpret_cast<const std::byte*>(slots_[slot].data() + place),
                       range.count * sizeof(T));
    place += range.count;
  }
  context_->synchronize();
}

template <class D>
void Updates<D>::load(std::size_t slot, const T* all) const {
  std::size_t place = 0;
  for (const Slice& range : elements_of(slot)) {
    context_->upload(reinterpret_cast<std::byte*>(slots_[slot].data() + place),
                     reinterpret_cast<const std::byte*>(all + range.first),
                     range.count * sizeof(T));
    place += range.count;
  }
}

template <class D>
auto Updates<D>::parts_of(double rate, Slice range) -> std::span<const UpdateIo<D>> {
  const bool penalised = !is_by_parts();  // begin() has added the penalty's gradient
  parts_.clear();
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const UpdateSegment& s = segments_[i];
    if (s.is_held) continue;
    const std::size_t first = std::max(s.begin, range.first);
    const std::size_t end = std::min(s.end, range.first + range.count);
    if (first >= end) continue;
    owned_.each_within({first, end - first}, [&](Slice part, std::size_t place) {
      UpdateIo<D> io{*context_,
                     part.count,
                     weights() + part.first,
                     sum_ != nullptr ? sum_ + place : gradients() + part.first,
                     {},
                     penalised ? Penalty{} : s.penalty,
                     rate * s.rate * decay_ * s.decay,
                     scale_[i],
                     limit_};
      io.rate = s.rate;
      io.shape = s.shape;
      io.scratch = scratch_.data();
      for (std::size_t k = 0; k < own_slots_; ++k) io.slot[k] = in_slot(k, part, place);
      parts_.push_back(io);
    });
  }
  return parts_;
}

template <class D>
void Updates<D>::apply_to(Slice range, UpdateRule<D> rule, double rate) {
  for (std::span<const UpdateIo<D>> parts = parts_of(rate, range); !parts.empty();) {
    std::size_t equal = 1;
    while (equal < parts.size() && parts[equal].rate == parts[0].rate) ++equal;
    rule(parts.first(equal));
    parts = parts.subspan(equal);
  }
}

template <class D>
bool Updates<D>::pass_over_gradients(std::uint64_t step, SumOverOwners sum) {
  const bool updates = step % each_updates_ == 0, squares = wants_squares() && updates;
  if (squares) context_->clear(reinterpret_cast<std::byte*>(squares_.data()), squares_.bytes());
  if constexpr (can)
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const UpdateSegment& s = segments_[i];
      if (s.is_held) continue;
      owned_.each_within({s.begin, s.end - s.begin}, [&](Slice part, std::size_t place) {
        run_kernel<D>(
            GradientPass{},
            GradientPassIo<D>{*context_, part.count, weights() + part.first,
                              gradients() + part.first, sum_ != nullptr ? sum_ + place : nullptr,
                              s.penalty, squares ? squares_.data() + i : nullptr});
      });
    }
  if (squares) clip(sum);
  return updates;
}

template <class D>
void Updates<D>::pass_over_weights(std::uint64_t step) {
  if (sum_ != nullptr && step % each_updates_ == 0)
    context_->clear(reinterpret_cast<std::byte*>(sum_), owned_.size() * sizeof(T));
  if (!has_average_) return;
  const std::uint64_t n = number(step);
  average(n == 1 ? 0 : momentum_, overwrites_each_ > 0 && n % overwrites_each_ == 0);
}

template <class D>
void Updates<D>::average(double momentum, bool overwrites) {
  for (std::size_t i = 0; i < segments_.size();) {
    const std::size_t begin = segments_[i].begin;
    const bool is_held = segments_[i].is_held;
    while (i < segments_.size() && segments_[i].is_held == is_held) ++i;
    if constexpr (can)
      if (!is_held)
        owned_.each_within(
            {begin, segments_[i - 1].end - begin}, [&](Slice part, std::size_t place) {
              run_kernel<D>(MovingAverage{momentum, overwrites},
                            MovingAverageIo<D>{*context_, part.count, weights() + part.first,
                                               average_ + place});
            });
  }
}

template <class D>
void Updates<D>::clip(SumOverOwners sum) {
  squares_.download(scale_.data());
  wait_for(*context_);  // does not throw a kernel's error: the other replicas make this update
  if (sum) sum(scale_);
  const auto of_norm = [this](std::size_t i) {
    return clips_each_ ? i : clips_blocks_ ? segments_[i].block : 0;
  };
  std::fill(sums_.begin(), sums_.end(), 0.0);
  for (std::size_t i = 0; i < scale_.size(); ++i) sums_[of_norm(i)] += scale_[i];
  const double part = 1 / static_cast<double>(each_updates_);
  for (std::size_t i = 0; i < scale_.size(); ++i) {
    const double norm = part * std::sqrt(sums_[of_norm(i)]);
    scale_[i] = part * (clip_ * std::min(1 / norm, 1 / clip_) + (norm - norm));
  }
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/step/updates.ipp"
#endif
