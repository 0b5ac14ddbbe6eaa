/// \file
/// Groups of replicas that exchange numbers. Invariants: every member calls the same operations in
/// the same order; each element is summed in rank order, so all members get the same bits.
#pragma once

#include <concepts>
#include <cstddef>

namespace lockstep {

/// The core of every collective. `abort` wakes every waiting member, from any thread, any number of
/// times.
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

/// `broadcast(p, n, root)`: replaces p[0..n) by the root's.
template <class C, class T>
concept Broadcasts = Collective<C> && requires(C& c, T* p, std::size_t n) {
  { c.broadcast(p, n, n) } -> std::same_as<void>;
};

/// All that a kernel sees of its group: two words for each element type, so that kernels do not
/// depend on the strategy. \code
///   io.step.group.all_reduce(sums, n);   // float or double; a group of one does nothing
/// \endcode
class CollectiveRef {
 public:
  /// `collective` must outlive the reference.
  template <class C>
  requires AllReduces<C, float> && AllReduces<C, double>
  explicit CollectiveRef(C& collective) : self_(&collective), operations_(&operations_of<C>) {}

  void all_reduce(float* p, std::size_t n) const { operations_->sum_float(self_, p, n); }
  void all_reduce(double* p, std::size_t n) const { operations_->sum_double(self_, p, n); }
  std::size_t rank() const { return operations_->rank(self_); }
  std::size_t size() const { return operations_->size(self_); }

 private:
  struct Operations {
    void (*sum_float)(void*, float*, std::size_t);
    void (*sum_double)(void*, double*, std::size_t);
    std::size_t (*rank)(void*);
    std::size_t (*size)(void*);
  };
  template <class C>
  static constexpr Operations operations_of{
      [](void* c, float* p, std::size_t n) { static_cast<C*>(c)->all_reduce(p, n); },
      [](void* c, double* p, std::size_t n) { static_cast<C*>(c)->all_reduce(p, n); },
      [](void* c) { return static_cast<C*>(c)->rank(); },
      [](void* c) { return static_cast<C*>(c)->size(); }};

  void* self_;
  const Operations* operations_;
};

}  // namespace lockstep
