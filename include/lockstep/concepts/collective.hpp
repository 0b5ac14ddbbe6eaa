/// \file
/// Collective operations of a group of replicas. Invariants: all members call the same operations
/// in the same order; each element is summed by exactly one owner, so all members receive the same
/// bits.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The operations common to all collectives; an object is one member's view of its group. `abort`
/// may be called from any thread, any number of times; it wakes all waiting members, which throw
/// CollectiveAborted.
template <class C>
concept Collective = requires(C& c) {
  { c.rank() } -> std::same_as<std::size_t>;
  { c.size() } -> std::same_as<std::size_t>;
  { c.abort() } -> std::same_as<void>;
};

/// `all_reduce(p, n)`: replaces p[0..n) by the sum over all members.
template <class C, class T>
concept AllReduces = Collective<C> && requires(C& c, T* p, std::size_t n) {
  { c.all_reduce(p, n) } -> std::same_as<void>;
};

/// `all_reduce(p, n, sums, m)`: reduces p[0..n) and sums[0..m) in one exchange.
template <class C, class T>
concept AllReducesWithSums =
    Collective<C> && requires(C& c, T* p, std::size_t n, double* sums, std::size_t m) {
      { c.all_reduce(p, n, sums, m) } -> std::same_as<void>;
    };

/// `all_reduce_bfloat16(p, n)`: the same for numbers of two bytes. The owner of an element adds in
/// float, in the group's order, and rounds the sum once; along a tree, and where processes have
/// several members, partial sums are rounded, too.
template <class C>
concept ReducesBfloat16 = Collective<C> && requires(C& c, bfloat16* p, std::size_t n) {
  { c.all_reduce_bfloat16(p, n) } -> std::same_as<void>;
};

/// `broadcast(p, n, root)`: replaces p[0..n) by the values of rank `root`.
template <class C, class T>
concept Broadcasts = Collective<C> && requires(C& c, T* p, std::size_t n) {
  { c.broadcast(p, n, n) } -> std::same_as<void>;
};

/// `all_gather(p, n, out)`: fills out[0..size() n) with the p[0..n) of all members, in rank order.
template <class C, class T>
concept AllGathers = Collective<C> && requires(C& c, const T* p, std::size_t n, T* out) {
  { c.all_gather(p, n, out) } -> std::same_as<void>;
};

/// `reduce_scatter(p, ranges, from)`: p[ranges[rank]] becomes the sum over the members `from`, or
/// over all. `ranges` has one for each member, in ascending order, the same in all; elements of
/// others' ranges are undefined afterwards, elements of none are not changed; members that share
/// memory or are connected directly, one in each process, change none but their own range. The bits
/// are those of an all-reduce of a group of the members `from` if these are all, or if the members
/// are threads, share memory or are connected directly; otherwise the others add zeros in the
/// group's order.
/// \code
///   group.reduce_scatter(gradients, owned);   // owned: {{0, 100}, {100, 0}, {100, 28}}
///   update(weights + owned[rank].first, gradients + owned[rank].first, owned[rank].count);
///   group.all_gather(weights, owned);
/// \endcode
template <class C, class T>
concept ReduceScatters =
    Collective<C> && requires(C& c, T* p, std::span<const Slice> ranges, Slice from) {
      { c.reduce_scatter(p, ranges) } -> std::same_as<void>;
      { c.reduce_scatter(p, ranges, from) } -> std::same_as<void>;
    };

/// `all_gather(p, ranges)`: p[ranges[r]] becomes that of member r, for each r. The same `ranges`.
template <class C, class T>
concept AllGathersRanges = Collective<C> && requires(C& c, T* p, std::span<const Slice> ranges) {
  { c.all_gather(p, ranges) } -> std::same_as<void>;
};

/// `barrier()`: returns when all members have called it.
template <class C>
concept Barriers = Collective<C> && requires(C& c) {
  { c.barrier() } -> std::same_as<void>;
};

/// `share_secret(p, n)`: broadcasts p[0..n) from rank 0 over the job's control connections, which
/// are encrypted if the job has a secret, instead of the data connections. For a few hundred bytes.
template <class C>
concept SharesSecrets = Collective<C> && requires(C& c, std::byte* p, std::size_t n) {
  { c.share_secret(p, n) } -> std::same_as<void>;
};

/// Type-erased reference to a collective, through which kernels see their group, so that they do
/// not depend on the strategy. Two pointers; one indirect call per operation.
/// \code
///   io.step.group.all_reduce(sums, n);   // float or double; a group of one does nothing
/// \endcode
class CollectiveRef {
 public:
  /// `collective` must outlive the reference.
  template <class C>
    requires AllReduces<C, float> && AllReduces<C, double> && AllGathers<C, std::byte> &&
                 Broadcasts<C, std::byte>
  explicit CollectiveRef(C& collective) : self_(&collective), operations_(&operations_of<C>) {}

  void all_reduce(float* p, std::size_t n) const { operations_->sum_float(self_, p, n); }
  void all_reduce(double* p, std::size_t n) const { operations_->sum_double(self_, p, n); }
  void all_gather(const std::byte* p, std::size_t n, std::byte* out) const {
    operations_->gather(self_, p, n, out);
  }
  void broadcast(std::byte* p, std::size_t n, std::size_t root) const {
    operations_->broadcast(self_, p, n, root);
  }
  std::size_t rank() const { return operations_->rank(self_); }
  std::size_t size() const { return operations_->size(self_); }

  /// Whether the group has the operations by ranges; without them, do not call these.
  bool has_ranges() const { return operations_->gather_ranges != nullptr; }
  /// See ReduceScatters.
  void reduce_scatter(float* p, std::span<const Slice> ranges, Slice from) const {
    operations_->scatter_float(self_, p, ranges, from);
  }
  void reduce_scatter(double* p, std::span<const Slice> ranges, Slice from) const {
    operations_->scatter_double(self_, p, ranges, from);
  }
  template <class T>
  void reduce_scatter(T* p, std::span<const Slice> ranges) const {
    reduce_scatter(p, ranges, {0, size()});
  }
  /// See AllGathersRanges; `ranges` are in bytes.
  void all_gather(std::byte* p, std::span<const Slice> ranges) const {
    operations_->gather_ranges(self_, p, ranges);
  }

  /// Whether the group can add bfloat16; if not, do not call this all_reduce.
  bool has_bfloat16() const { return operations_->sum_bfloat16 != nullptr; }
  void all_reduce(bfloat16* p, std::size_t n) const { operations_->sum_bfloat16(self_, p, n); }

 private:
  struct Operations {
    void (*sum_float)(void*, float*, std::size_t);
    void (*sum_double)(void*, double*, std::size_t);
    void (*gather)(void*, const std::byte*, std::size_t, std::byte*);
    void (*broadcast)(void*, std::byte*, std::size_t, std::size_t);
    std::size_t (*rank)(void*);
    std::size_t (*size)(void*);
    // Null unless the group has them.
    void (*scatter_float)(void*, float*, std::span<const Slice>, Slice);
    void (*scatter_double)(void*, double*, std::span<const Slice>, Slice);
    void (*gather_ranges)(void*, std::byte*, std::span<const Slice>);
    void (*sum_bfloat16)(void*, bfloat16*, std::size_t);
  };
  template <class C>
  static constexpr bool by_ranges =
      ReduceScatters<C, float> && ReduceScatters<C, double> && AllGathersRanges<C, std::byte>;
  template <class C, class T>
  static void scatter(void* c, T* p, std::span<const Slice> ranges, Slice from) {
    if constexpr (by_ranges<C>) static_cast<C*>(c)->reduce_scatter(p, ranges, from);
  }
  template <class C>
  static void gather(void* c, std::byte* p, std::span<const Slice> ranges) {
    if constexpr (by_ranges<C>) static_cast<C*>(c)->all_gather(p, ranges);
  }
  template <class C>
  static void sum_rounded(void* c, bfloat16* p, std::size_t n) {
    if constexpr (ReducesBfloat16<C>) static_cast<C*>(c)->all_reduce_bfloat16(p, n);
  }
  template <class C>
  static constexpr Operations operations_of{
      [](void* c, float* p, std::size_t n) { static_cast<C*>(c)->all_reduce(p, n); },
      [](void* c, double* p, std::size_t n) { static_cast<C*>(c)->all_reduce(p, n); },
      [](void* c, const std::byte* p, std::size_t n, std::byte* out) {
        static_cast<C*>(c)->all_gather(p, n, out);
      },
      [](void* c, std::byte* p, std::size_t n, std::size_t root) {
        static_cast<C*>(c)->broadcast(p, n, root);
      },
      [](void* c) { return static_cast<C*>(c)->rank(); },
      [](void* c) { return static_cast<C*>(c)->size(); },
      by_ranges<C> ? &scatter<C, float> : nullptr,
      by_ranges<C> ? &scatter<C, double> : nullptr,
      by_ranges<C> ? &gather<C> : nullptr,
      ReducesBfloat16<C> ? &sum_rounded<C> : nullptr};

  void* self_;
  const Operations* operations_;
};

/// Exchanges the gradients of a replica while its backward pass still runs.
///
/// - `post(p, n)`: p[0..n) is final and may be all-reduced from now on; does not block. p must stay
///   valid until `finish` has returned or, after an error, until `Session::each` has.
/// - `finish(p, n, sums, m)`: posts the last range of the step and the step's sums, then waits
///   until every posted range holds its sum over the replicas.
template <class E, class T>
concept ExchangesGradients = requires(E& e, T* p, std::size_t n, double* sums, std::size_t m) {
  { e.post(p, n) } -> std::same_as<void>;
  { e.finish(p, n, sums, m) } -> std::same_as<void>;
};

/// The same for replicas that each need a part of the sums; optional.
///
/// - `post(all, part, shares)`: all[part] is final; member r needs its sums in shares[r] only, and
///   other elements are undefined after the exchange. `shares` has one range for each member, in
///   ascending order, or several such rounds, one after the other; it is the same in all, and must
///   stay valid as the gradients.
/// - `finish(all, part, shares, sums, m)`: the last range. Each member gets all sums.
template <class E, class T>
concept ScattersGradients =
    requires(E& e, T* all, Slice part, std::span<const Slice> shares, double* sums, std::size_t m) {
      { e.post(all, part, shares) } -> std::same_as<void>;
      { e.finish(all, part, shares, sums, m) } -> std::same_as<void>;
    };

/// Exchanges ranges of gradients in its own way, for example compressed.
class RangeExchange {
 public:
  /// Replaces this member's gradients in `range` by their sums over the members of `group`, or by
  /// what it has for them. Called in the thread of an exchange.
  virtual void exchange(const CollectiveRef& group, Slice range) = 0;

 protected:
  ~RangeExchange() = default;
};

/// An exchange that can leave ranges to a RangeExchange; optional.
///
/// - `post(by, part)`: calls by.exchange(group, part) with its group, for this range or for one that
///   joins it with the next ones. `by` must stay valid as the gradients.
/// - `finish(by, part, sums, m)`: the last range. Each member gets all sums.
template <class E>
concept ExchangesByOthers =
    requires(E& e, RangeExchange& by, Slice part, double* sums, std::size_t m) {
      { e.post(by, part) } -> std::same_as<void>;
      { e.finish(by, part, sums, m) } -> std::same_as<void>;
    };

/// Notified of an exchange's operations, by the thread that makes them; see GradientExchange.
class ExchangeListener {
 public:
  /// `what`: "bucket" for an all-reduce or a reduce-scatter of `bytes` of gradients, "sums" without
  /// gradients, "wait" for pending ones; with parameter servers "push" and "pull" of the bytes that
  /// a worker sends or receives, and a server receives or sends.
  virtual void begin_exchange(const char* what, std::size_t bytes) = 0;
  virtual void end_exchange() = 0;

 protected:
  ~ExchangeListener() = default;
};

/// Reports one operation during its lifetime; does nothing without a listener.
class ExchangeOperation {
 public:
  ExchangeOperation(ExchangeListener* listener, const char* what, std::size_t bytes)
      : listener_(listener) {
    if (listener_ != nullptr) listener_->begin_exchange(what, bytes);
  }
  ~ExchangeOperation() {
    if (listener_ != nullptr) listener_->end_exchange();
  }
  ExchangeOperation(const ExchangeOperation&) = delete;
  ExchangeOperation& operator=(const ExchangeOperation&) = delete;

 private:
  ExchangeListener* listener_;
};

/// An exchange that reports its operations: those in the replica's thread to `own`, those of a
/// background thread to `background`, until it gets null pointers. Optional.
template <class E>
concept ObservableExchange = requires(E& e, ExchangeListener* listener) {
  { e.observe(listener, listener) } -> std::same_as<void>;
};

/// Type-erased reference to the gradient exchange of any strategy.
template <class T>
class GradientExchange {
 public:
  /// `exchange` must outlive the reference.
  template <class E>
    requires ExchangesGradients<E, T>
  explicit GradientExchange(E& exchange)
      : self_(&exchange),
        post_([](void* e, T* p, std::size_t n) { static_cast<E*>(e)->post(p, n); }),
        finish_([](void* e, T* p, std::size_t n, double* sums, std::size_t m) {
          static_cast<E*>(e)->finish(p, n, sums, m);
        }),
        post_part_([](void* e, T* all, Slice part, std::span<const Slice> shares) {
          if constexpr (ScattersGradients<E, T>)
            static_cast<E*>(e)->post(all, part, shares);
          else
            static_cast<E*>(e)->post(all + part.first, part.count);
        }),
        finish_part_([](void* e, T* all, Slice part, std::span<const Slice> shares, double* sums,
                        std::size_t m) {
          if constexpr (ScattersGradients<E, T>)
            static_cast<E*>(e)->finish(all, part, shares, sums, m);
          else
            static_cast<E*>(e)->finish(all + part.first, part.count, sums, m);
        }),
        post_by_([](void* e, RangeExchange& by, Slice part, const CollectiveRef& group) {
          if constexpr (ExchangesByOthers<E>)
            static_cast<E*>(e)->post(by, part);
          else
            by.exchange(group, part);
        }),
        finish_by_([](void* e, RangeExchange& by, Slice part, const CollectiveRef& group,
                      double* sums, std::size_t m) {
          if constexpr (ExchangesByOthers<E>) {
            static_cast<E*>(e)->finish(by, part, sums, m);
          } else {
            by.exchange(group, part);
            static_cast<E*>(e)->finish(static_cast<T*>(nullptr), 0, sums, m);
          }
        }),
        observe_([]([[maybe_unused]] void* e, [[maybe_unused]] ExchangeListener* own,
                    [[maybe_unused]] ExchangeListener* background) {
          if constexpr (ObservableExchange<E>) static_cast<E*>(e)->observe(own, background);
        }) {}

  void post(T* p, std::size_t n) const { post_(self_, p, n); }
  void finish(T* p, std::size_t n, double* sums, std::size_t m) const {
    finish_(self_, p, n, sums, m);
  }
  /// See ScattersGradients. An exchange without these operations all-reduces the ranges.
  void post(T* all, Slice part, std::span<const Slice> shares) const {
    post_part_(self_, all, part, shares);
  }
  void finish(T* all, Slice part, std::span<const Slice> shares, double* sums,
              std::size_t m) const {
    finish_part_(self_, all, part, shares, sums, m);
  }
  /// See ExchangesByOthers. Without these operations a range is exchanged at once, in `group`, the
  /// channel of this exchange.
  void post(RangeExchange& by, Slice part, const CollectiveRef& group) const {
    post_by_(self_, by, part, group);
  }
  void finish(RangeExchange& by, Slice part, const CollectiveRef& group, double* sums,
              std::size_t m) const {
    finish_by_(self_, by, part, group, sums, m);
  }
  /// Call it in the replica's thread while no range is pending. Does nothing for an exchange that
  /// does not report.
  void observe(ExchangeListener* own, ExchangeListener* background) const {
    observe_(self_, own, background);
  }

 private:
  void* self_;
  void (*post_)(void*, T*, std::size_t);
  void (*finish_)(void*, T*, std::size_t, double*, std::size_t);
  void (*post_part_)(void*, T*, Slice, std::span<const Slice>);
  void (*finish_part_)(void*, T*, Slice, std::span<const Slice>, double*, std::size_t);
  void (*post_by_)(void*, RangeExchange&, Slice, const CollectiveRef&);
  void (*finish_by_)(void*, RangeExchange&, Slice, const CollectiveRef&, double*, std::size_t);
  void (*observe_)(void*, ExchangeListener*, ExchangeListener*);
};

}  // namespace lockstep
