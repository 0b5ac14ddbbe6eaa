/// \file
/// The typed operations of a group whose own ones move bytes.
#pragma once

#include <cstddef>
#include <type_traits>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/collectives/sum_parts.hpp"

namespace lockstep::detail {

/// The base of `Group`, which befriends it and has
///
///     reduce(p, elements, sum, sums, m)     send(p, elements, root)     gather(p, elements, out)
template <class Group>
class TypedCollective {
 public:
  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  /// Replaces p[0..n) and sums[0..m) with their sums over all members.
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
                  "lockstep: all_reduce adds numbers; give it an arithmetic type");
    group().reduce(reinterpret_cast<std::byte*>(p), elements_of<T>(n), &sum_parts<T>, sums, m);
  }

  /// Replaces p[0..n) with the root's.
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    group().send(reinterpret_cast<std::byte*>(p), elements_of<T>(n), root);
  }

  /// out[r n..(r + 1) n) becomes p[0..n) of member r.
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    group().gather(reinterpret_cast<const std::byte*>(p), elements_of<T>(n),
                   reinterpret_cast<std::byte*>(out));
  }

 private:
  friend Group;
  TypedCollective() = default;
  Group& group() { return static_cast<Group&>(*this); }
};

}  // namespace lockstep::detail
