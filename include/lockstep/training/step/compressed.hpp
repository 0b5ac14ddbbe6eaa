/// \file
/// The update policy ls::wire::Format: replicas exchange compressed gradients. Invariants: all replicas
/// get the same bits; what a replica sends and what it keeps are together its gradients, to rounding;
/// a step after the first one allocates nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/training/step/replicated.hpp"
#include "lockstep/training/step/thin_factors.hpp"
#include "lockstep/training/step/updates.hpp"
#include "lockstep/training/step/wire_format.hpp"

namespace lockstep::detail {

/// One replica's object of ls::wire::Format: that of ls::Replicated, except for what travels.
///
///     step without an update   kept += gradients; gradients = 0           nothing is sent
///     step with an update      gradients += kept; what is sent replaces
///                              them by its sum; kept = the rest
///
/// A parameter travels when all of its gradients are final, while backward continues if the exchange
/// has a thread. `kept` and the warm factors of PowerSGD belong to a checkpoint. Until `update` they are
/// those of before the step: one that fails, or whose gradients nobody applies, changes neither.
template <class D>
class CompressedUpdate : public ReplicatedUpdate<D>, private RangeExchange {
  using Base = ReplicatedUpdate<D>;
  using Kind = wire::Format::Kind;
  static constexpr bool is_on_host = HostDevice<D>;
  static_assert(
      is_on_host,
      "lockstep::wire: the replicas of this device exchange whole gradients only; use Cpu "
      "or Reference, or leave out ls::wire");

 public:
  using typename Base::Context;
  using typename Base::T;

  [[gnu::cold]] explicit CompressedUpdate(const UpdateSite<D>& site)
      : Base(site),
        format_(*static_cast<const wire::Format*>(site.policy)),
        replicas_(site.replicas),
        each_updates_(site.facts.options.gradient_accumulation_steps) {
    format_.check();
    const std::size_t n = site.engine.weights().size();
    for (const NamedParameter& p : site.facts.parameters)
      if (p.trainable) tensors_.push_back(tensor_of(p));
    const bool has_factors = std::any_of(tensors_.begin(), tensors_.end(),
                                         [](const Tensor& t) { return t.thin.rank > 0; });
    if (accumulates() || format_.kind == Kind::top_k || has_factors)
      for (auto* const buffer : {&kept_, &next_kept_}) *buffer = Buffer<Context, T>(site.device, n);
    if (!has_factors) return;
    factors_ = Buffer<Context, T>(site.device, n);
    std::size_t size = 0;
    for (Tensor& t : tensors_) {
      t.factor = size;
      size += t.thin.rank * t.thin.rows;
    }
    next_factors_.resize(size);
  }

  /// Call before the backward pass of a step, counted from 1.
  void begin_step(std::uint64_t step) {
    sends_ = step % each_updates_ == 0;
    update_ = this->number(step) - 1;
    left_ = tensors_.size();
    is_complete_ = false;
  }
  void ready(const ReplicaContext<D>& replica, Slice range) {
    if (sends_) replica.exchange.post(*this, range, replica.gradients);
  }
  void finish(const ReplicaContext<D>& replica, Slice last, double* sums, std::size_t n,
              std::size_t ordered) {
    if (last.count > 0 && sends_) {
      replica.exchange.finish(*this, last, replica.gradients, sums, n + ordered);
    } else {
      if (last.count > 0) keep({0, kept_.size()});
      replica.exchange.finish(this->gradients(), 0, sums, n + ordered);
    }
    if (last.count > 0) is_complete_ = true;
  }
  [[gnu::cold]] void update(const ReplicaContext<D>& replica, UpdateRule<D> rule, double rate,
                            std::uint64_t step, bool is_applied) {
    if (std::exchange(is_complete_, false)) {
      std::swap(kept_, next_kept_);
      if (sends_ && is_compressed())
        for (const Tensor& t : tensors_)
          if (!t.is_held)
            std::copy_n(next_factors_.data() + t.factor, t.thin.rank * t.thin.rows,
                        factors_.data() + t.begin);
    }
    Base::update(replica, rule, rate, step, is_applied);
  }
  static constexpr bool updates_in_backward() { return false; }

  /// The gradients that this replica has not sent; empty if the format keeps nothing.
  const Buffer<Context, T>& kept() const { return kept_; }
  /// PowerSGD's Q of each matrix, where its weights begin; the same in all replicas. 0: not drawn yet.
  const Buffer<Context, T>& factors() const { return factors_; }
  /// Changes with the layout of the factors.
  std::size_t factors_layout() const { return format_.power_sgd.rank; }
  /// The optimizer's buffers, and the two above with the first one's copy of the current step.
  std::size_t slot_bytes() const {
    return Base::slot_bytes() + 2 * kept_.bytes() + factors_.bytes();
  }
  /// Sets both, from the host.
  [[gnu::cold]] void set_kept(const T* kept, const T* factors) {
    is_complete_ = false;
    kept_.upload(kept);
    factors_.upload(factors);
  }
  /// Parameters that are held do not travel; their kept gradients stay until they train again.
  [[gnu::cold]] void set_segments(std::span<const UpdateSegment> segments) {
    Base::set_segments(segments);
    is_complete_ = false;
    std::copy_n(kept_.data(), kept_.size(), next_kept_.data());
    for (Tensor& t : tensors_)
      for (const UpdateSegment& s : segments)
        if (s.begin <= t.begin && t.begin < s.end) t.is_held = s.is_held;
  }
  [[gnu::cold]] void clear() {
    Base::clear();
    is_complete_ = false;
    std::fill_n(kept_.data(), kept_.size(), T{0});
    std::fill_n(factors_.data(), factors_.size(), T{0});
  }

 private:
  /// A parameter.
  struct Tensor {
    std::size_t begin, size;
    std::size_t most;        ///< elements that top-k sends after its warm-up
    ThinShape thin;          ///< of PowerSGD; rank 0: travels whole
    std::size_t factor = 0;  ///< where its Q begins in next_factors_
    bool is_held = false;    ///< does not travel; see set_segments
  };

  Tensor tensor_of(const NamedParameter& p) const {
    Tensor t{p.offset, p.shape.size(), 0, {}, 0};
    if (format_.kind == Kind::top_k) {
      const auto n = static_cast<double>(t.size);
      const std::size_t most =
          format_.top_k.count > 0
              ? format_.top_k.count
              : static_cast<std::size_t>(std::llround(format_.top_k.fraction * n));
      t.most = std::clamp<std::size_t>(most, 1, t.size);
      if (t.size > std::numeric_limits<std::uint32_t>::max())
        throw UsageError("top_k: a parameter has {} elements, more than 2^32; use another format",
                         t.size);
    }
    if (format_.kind == Kind::power_sgd && p.shape.rank > 1) {
      const auto columns = static_cast<std::size_t>(p.shape.channels());
      const std::size_t rows = t.size / columns;
      const std::size_t rank = std::min({format_.power_sgd.rank, rows, columns});
      if (static_cast<double>((rows + columns) * rank) * format_.power_sgd.min_compression_rate <
          static_cast<double>(t.size))
        t.thin = {rows, columns, rank};
    }
    return t;
  }
  /// The elements that top-k sends in this update.
  std::size_t most(const Tensor& t) const {
    const wire::TopK& options = format_.top_k;
    if (update_ >= options.warm_up) return t.most;
    const double done = static_cast<double>(update_) / static_cast<double>(options.warm_up);
    const double n = static_cast<double>(t.size), k = static_cast<double>(t.most);
    return static_cast<std::size_t>(std::llround(n * std::pow(k / n, done)));
  }
  bool accumulates() const { return each_updates_ > 1; }
  /// Whether this update is.
  bool is_compressed() const {
    return format_.kind != Kind::power_sgd || update_ >= format_.power_sgd.start;
  }

  /// Calls f(first, count) for blocks of a range, whose loops compilers vectorize.
  template <class F>
  static void in_blocks(Slice range, const F& f) {
    for (std::size_t at = 0; at < range.count; at += sum_block)
      f(range.first + at, std::min(sum_block, range.count - at));
  }
  /// Keeps the gradients of a range instead of sending them.
  void keep(Slice range) {
    in_blocks(range, [&](std::size_t first, std::size_t count) {
      std::copy_n(kept_.data() + first, count, next_kept_.data() + first);
      add_to(next_kept_.data() + first, this->gradients() + first, count);
    });
    std::fill_n(this->gradients() + range.first, range.count, T{0});
  }
  /// Moves what was kept to the gradients.
  void take_kept(Slice range) {
    if (kept_.size() == 0) return;
    in_blocks(range, [&](std::size_t first, std::size_t count) {
      add_to(this->gradients() + first, kept_.data() + first, count);
    });
    std::fill_n(next_kept_.data() + range.first, range.count, T{0});
  }

  void exchange(const CollectiveRef& group, Slice range) override {
    std::size_t end = left_;
    while (left_ > 0 && tensors_[left_ - 1].begin >= range.first) --left_;
    for (std::size_t i = end; i > left_; --i) {  // neighbours that train, in one message
      if (!tensors_[i - 1].is_held) continue;
      exchange_neighbours(group, {tensors_.data() + i, end - i});
      end = i - 1;
    }
    exchange_neighbours(group, {tensors_.data() + left_, end - left_});
  }
  void exchange_neighbours(const CollectiveRef& group, std::span<const Tensor> complete) {
    if (complete.empty()) return;
    const Slice all{complete.front().begin,
                    complete.back().begin + complete.back().size - complete.front().begin};
    if (format_.kind == Kind::uncompressed || !is_compressed()) {
      take_kept(all);
      group.all_reduce(this->gradients() + all.first, all.count);
    } else if (format_.kind == Kind::bfloat16) {
      exchange_rounded(group, all);
    } else if (format_.kind == Kind::top_k) {
      exchange_largest(group, complete, all);
    } else {
      exchange_factors(group, complete);
    }
  }

  void exchange_rounded(const CollectiveRef& group, Slice all) {
    if (!group.has_bfloat16())
      throw UsageError(
          "wire: the group of the strategy's replicas has no all_reduce_bfloat16; add it to its "
          "members (lockstep/concepts/collective.hpp), or leave out ls::wire::bfloat16");
    take_kept(all);
    T* const g = this->gradients() + all.first;
    rounded_.resize(std::max(rounded_.size(), all.count));
    in_blocks({0, all.count}, [&](std::size_t first, std::size_t count) {
      convert(rounded_.data() + first, g + first, count);
    });
    group.all_reduce(rounded_.data(), all.count);
    in_blocks({0, all.count}, [&](std::size_t first, std::size_t count) {
      convert(g + first, rounded_.data() + first, count);
    });
  }

  /// A message: the values of all tensors, then their indices.
  void exchange_largest(const CollectiveRef& group, std::span<const Tensor> tensors, Slice all) {
    std::size_t count = 0;
    for (const Tensor& t : tensors) count += most(t);
    const std::size_t bytes = count * (sizeof(T) + sizeof(std::uint32_t));
    own_.resize(std::max(own_.size(), bytes));
    gathered_.resize(std::max(gathered_.size(), bytes * group.size()));
    keep(all);
    std::size_t at = 0;
    for (const Tensor& t : tensors) {
      T* const e = next_kept_.data() + t.begin;
      choose_largest(e, t, [&](std::size_t i) {
        const auto index = static_cast<std::uint32_t>(i);
        std::memcpy(own_.data() + at * sizeof(T), e + i, sizeof(T));
        std::memcpy(own_.data() + count * sizeof(T) + at * sizeof index, &index, sizeof index);
        e[i] = 0;
        ++at;
      });
    }
    group.all_gather(own_.data(), bytes, gathered_.data());
    for (std::size_t r = 0; r < group.size(); ++r) {
      const std::byte* values = gathered_.data() + r * bytes;
      const std::byte* indices = values + count * sizeof(T);
      for (const Tensor& t : tensors)
        for (std::size_t k = most(t); k > 0; --k) {
          T value;
          std::uint32_t index;
          std::memcpy(&value, values, sizeof value);
          std::memcpy(&index, indices, sizeof index);
          this->gradients()[t.begin + index] += value;
          values += sizeof value;
          indices += sizeof index;
        }
    }
  }
  /// Calls f(i) for the indices of the most(t) elements of largest magnitude, ascending; of equal ones
  /// the first are taken, and NaN is above all.
  template <class F>
  void choose_largest(const T* e, const Tensor& t, const F& f) {
    magnitudes_.resize(std::max(magnitudes_.size(), t.size));
    const auto magnitude = [&](std::size_t i) {
      return is_nan(e[i]) ? std::numeric_limits<T>::infinity() : std::abs(e[i]);
    };
    for (std::size_t i = 0; i < t.size; ++i) magnitudes_[i] = magnitude(i);
    std::size_t of_least = most(t);  // that are equal to it
    T* const kth = magnitudes_.data() + of_least - 1;
    std::nth_element(magnitudes_.data(), kth, magnitudes_.data() + t.size, std::greater<>());
    const T least = *kth;
    for (std::size_t i = 0; i < t.size; ++i) of_least -= magnitude(i) > least ? 1 : 0;
    for (std::size_t i = 0; i < t.size; ++i) {
      const T m = magnitude(i);
      if (m > least || (m == least && of_least > 0)) {
        of_least -= m == least ? 1 : 0;
        f(i);
      }
    }
  }

  /// First message: the tensors that travel whole, then P of the others. Second one: Q of the others.
  void exchange_factors(const CollectiveRef& group, std::span<const Tensor> tensors) {
    std::size_t whole = 0, of_p = 0, of_q = 0, columns = 0;
    for (const Tensor& t : tensors) {
      if (t.thin.rank == 0) whole += t.size;
      of_p += t.thin.rank * t.thin.columns;
      of_q += t.thin.rank * t.thin.rows;
      columns = std::max(columns, t.thin.columns);
    }
    sent_.resize(std::max(sent_.size(), whole + of_p + of_q));
    sums_.resize(std::max(sums_.size(), columns));
    T *next = sent_.data(), *const first_p = next + whole, *const first_q = first_p + of_p;
    T* p = first_p;
    for (const Tensor& t : tensors) {
      T *const g = this->gradients() + t.begin, *const q = next_factors_.data() + t.factor;
      if (t.thin.rank == 0) {
        take_kept({t.begin, t.size});
        next = std::copy_n(g, t.size, next);
        continue;
      }
      keep({t.begin, t.size});
      std::copy_n(factors_.data() + t.begin, t.thin.rank * t.thin.rows, q);
      start_factor(t, q);
      multiply_transposed(t.thin, next_kept_.data() + t.begin, q, p, sums_.data());
      p += t.thin.rank * t.thin.columns;
    }
    group.all_reduce(sent_.data(), whole + of_p);
    next = sent_.data();
    p = first_p;
    T* q = first_q;
    for (const Tensor& t : tensors) {
      if (t.thin.rank == 0) {
        std::copy_n(next, t.size, this->gradients() + t.begin);
        next += t.size;
        continue;
      }
      orthonormalize(p, t.thin.rank, t.thin.columns);
      multiply(t.thin, next_kept_.data() + t.begin, p, q);
      p += t.thin.rank * t.thin.columns;
      q += t.thin.rank * t.thin.rows;
    }
    if (of_q == 0) return;
    group.all_reduce(first_q, of_q);
    p = first_p;
    q = first_q;
    const double part = 1 / static_cast<double>(replicas_);
    for (const Tensor& t : tensors) {
      if (t.thin.rank == 0) continue;
      T* const g = this->gradients() + t.begin;
      multiply_factors(t.thin, q, p, g);
      add_scaled(next_kept_.data() + t.begin, g, -part, t.size);
      std::copy_n(q, t.thin.rank * t.thin.rows, next_factors_.data() + t.factor);
      p += t.thin.rank * t.thin.columns;
      q += t.thin.rank * t.thin.rows;
    }
  }
  /// Orthonormalizes the last update's Q, whose columns of 0 are drawn.
  void start_factor(const Tensor& t, T* q) const {
    const wire::PowerSgd& options = format_.power_sgd;
    for (std::size_t c = 0; c < t.thin.rank; ++c) {
      T* const column = q + c * t.thin.rows;
      if (dot(column, column, t.thin.rows) != 0) continue;
      Philox random(mix(options.seed, t.begin), update_ * options.rank + c);
      for (std::size_t i = 0; i < t.thin.rows; ++i) column[i] = static_cast<T>(random.normal());
    }
    orthonormalize(q, t.thin.rank, t.thin.rows);
  }

  wire::Format format_;
  std::size_t replicas_;
  std::uint64_t each_updates_;
  std::vector<Tensor> tensors_;  // in the order of the weights
  Buffer<Context, T> kept_, factors_;
  Buffer<Context, T> next_kept_;   // after the current step, if an update follows
  std::vector<T> next_factors_{};  // the same; one after the other
  bool is_complete_ = false;       // they are there
  std::uint64_t update_ = 0;       // of the current step, counted from 0
  bool sends_ = true;
  std::size_t left_ = 0;  // tensors that the current step has not sent: the first ones
  // Kept so that a step allocates nothing.
  std::vector<bfloat16> rounded_;
  std::vector<std::byte> own_, gathered_;
  std::vector<T> magnitudes_, sent_;
  std::vector<double> sums_;
};

}  // namespace lockstep::detail
