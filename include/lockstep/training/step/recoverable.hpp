/// \file
/// Update policies whose owners can go back by one update, for jobs that go on after the loss of a
/// replica within it. Invariant: from the begin of an update until that of the next one, an owner has
/// its range as before it, and, once its update is made, also as after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep {

namespace detail {

/// One replica's object of ls::Recoverable. `U` has `update_owned`, and `complete`, which sends the
/// weights:
///
///     complete ── keep a copy ── begun ── update_owned ── made ── complete(weights) ── complete
///                                  |                       |
///       what this replica can give: the copy           copy, new range
///
/// While a step is not complete, the weights of other owners may be those before or after it.
template <class D, class U>
class RecoverableUpdate : public U {
 public:
  using typename U::T;

  [[gnu::cold]] explicit RecoverableUpdate(const UpdateSite<D>& site)
      : U(site), device_(&site.device), keeps_(site.roles.may_change) {
    if (!keeps_) return;
    before_.emplace_back(site.device, this->owned().size());
    for (const auto& slot : this->slot_buffers()) before_.emplace_back(site.device, slot.size());
    if (site.roles.copies > 1) after_ = Buffer<Context, T>(site.device, this->owned().size());
  }

  [[gnu::cold]] void update(const ReplicaContext<D>& replica, UpdateRule<D> rule, double rate,
                            std::uint64_t step, bool) {
    if (keeps_) keep();
    stage_ = Stage::begun;
    this->update_owned(replica, rule, rate, step);
    if (after_.size() > 0) keep_weights(after_);
    stage_ = Stage::made;
    this->complete(replica, this->weights());
    stage_ = Stage::complete;
  }
  /// The same for a step in a phase; it is within the update until `finish_update`.
  [[gnu::cold]] void update_alone(UpdateRule<D> rule, double rate, std::uint64_t step,
                                  typename U::SumOverOwners sum, std::span<const Slice> parts) {
    if (keeps_) keep();
    stage_ = Stage::begun;
    U::update_alone(rule, rate, step, sum, parts);
    if (after_.size() > 0) keep_weights(after_);
    stage_ = Stage::made;
  }
  /// All owners have made the last update. One that is only begun, since a peer was lost within it,
  /// stays so.
  void finish_update() {
    if (stage_ == Stage::made) stage_ = Stage::complete;
  }
  /// Sends the weights of all updates of a phase. Call it after `finish_update`.
  [[gnu::cold]] void complete_phase(const ReplicaContext<D>& replica) {
    if (after_.size() > 0) keep_weights(after_);
    stage_ = Stage::sent;
    this->complete(replica, this->weights());
    stage_ = Stage::complete;
  }
  /// Whether it has begun, and the weights have not all arrived.
  bool is_within_completion() const { return stage_ == Stage::sent; }
  /// Whether an update has begun whose weights have not all arrived.
  bool is_within_update() const { return stage_ == Stage::begun || stage_ == Stage::made; }
  /// Whether the owned range is that after this update.
  bool has_updated() const { return stage_ == Stage::made; }
  /// Copies the owned elements from before the last update to their places among all elements on the
  /// host: buffer 0 are the weights, the others the slots. Call it within an update.
  [[gnu::cold]] void read_before(std::size_t buffer, T* all) const {
    copy_out(before_[buffer], buffer == 0 ? this->owned() : this->elements_of(buffer - 1), all);
  }
  /// The same of the weights after it, or after the phase, whatever has arrived since.
  [[gnu::cold]] void read_updated_weights(T* all) const {
    if (after_.size() > 0) copy_out(after_, this->owned(), all);
  }

 private:
  using Context = typename D::Context;
  enum class Stage : std::uint8_t { complete, begun, made, sent };

  [[gnu::cold]] void copy_out(const Buffer<Context, T>& from, const Ranges& elements,
                              T* all) const {
    [[maybe_unused]] const auto scope = device_->scope();
    std::size_t place = 0;
    for (const Slice& range : elements) {
      device_->download(reinterpret_cast<std::byte*>(all + range.first),
                        reinterpret_cast<const std::byte*>(from.data() + place),
                        range.count * sizeof(T));
      place += range.count;
    }
    device_->synchronize();
  }
  [[gnu::cold]] void keep_weights(const Buffer<Context, T>& to) const {
    T* next = to.data();
    for (const Slice& range : this->owned()) {
      copy(next, this->weights() + range.first, range.count);
      next += range.count;
    }
  }
  [[gnu::cold]] void keep() const {
    keep_weights(before_[0]);
    const auto buffers = this->slot_buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i)
      copy(before_[i + 1].data(), buffers[i].data(), buffers[i].size());
  }
  void copy(T* to, const T* from, std::size_t count) const {
    device_->copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                  count * sizeof(T));
  }

  Context* device_;
  bool keeps_;
  std::vector<Buffer<Context, T>> before_;  // weights, then slots: the owned elements only
  Buffer<Context, T> after_;  // of the weights, since other owners' replace copies as they arrive
  Stage stage_ = Stage::complete;
};

}  // namespace detail

/// The update policy `Policy`, which divides the slots, for jobs with ls::Elastic.
template <class Policy>
struct Recoverable {
  template <class D>
  using Replica = detail::RecoverableUpdate<D, typename Policy::template Replica<D>>;
  static constexpr std::string_view name = Policy::name;
};

}  // namespace lockstep
