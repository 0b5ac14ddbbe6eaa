/// \file
/// The arguments of a collective operation, which all members compare before data is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "lockstep/core/config.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

enum class ElementKind : std::uint32_t { bytes, floats, ints, uints, bfloats };

template <class T>
inline constexpr ElementKind kind_of = std::is_floating_point_v<T> ? ElementKind::floats
                                       : !std::is_integral_v<T>    ? ElementKind::bytes
                                       : std::is_signed_v<T>       ? ElementKind::ints
                                                                   : ElementKind::uints;
template <>
inline constexpr ElementKind kind_of<bfloat16> = ElementKind::bfloats;

/// The arguments of an operation; all members' must be equal. Sent as it lies in memory.
struct CollectiveCall {
  enum class Operation : std::uint32_t {
    all_reduce,
    broadcast,
    all_gather,
    barrier,
    reduce_scatter,
    gather_ranges,
    message  ///< between two members
  };
  Operation operation = Operation::barrier;
  ElementKind kind = ElementKind::bytes;
  std::uint64_t n = 0;        ///< elements of each member
  std::uint64_t m = 0;        ///< sums, which are doubles
  std::uint64_t root = 0;     ///< of a broadcast or a message; a digest of the ranges, if any
  std::uint64_t element = 0;  ///< bytes of one

  template <class T>
  static constexpr CollectiveCall of(Operation operation, std::size_t n, std::size_t m = 0,
                                     std::size_t root = 0) {
    return {operation, kind_of<T>, n, m, root, sizeof(T)};
  }

  /// `from`: the members whose elements are used. \throws UsageError if the ranges are not one for
  /// each of `size` members in ascending order, or `from` are not some of them.
  template <class T>
  static CollectiveCall of(Operation operation, std::span<const Slice> ranges, std::size_t size,
                           Slice from) {
    return {operation, kind_of<T>, checked_elements(ranges, size, from), 0, digest_of(ranges, from),
            sizeof(T)};
  }

  bool operator==(const CollectiveCall&) const = default;
  std::size_t bytes() const { return n * element; }
  std::size_t sum_bytes() const { return m * sizeof(double); }
  /// The operation's name, for error messages.
  LOCKSTEP_COLD_DECL const char* name() const;
  /// "all_reduce of 5 elements of float32".
  LOCKSTEP_COLD_DECL std::string text() const;
  /// The same with the number of sums and the root.
  LOCKSTEP_COLD_DECL std::string description() const;

 private:
  LOCKSTEP_DECL static std::size_t checked_elements(std::span<const Slice> ranges, std::size_t size,
                                                    Slice from);
  LOCKSTEP_DECL static std::uint64_t digest_of(std::span<const Slice> ranges, Slice from);
};
static_assert(std::has_unique_object_representations_v<CollectiveCall>);

/// \throws UsageError: the root of a broadcast must be below `size`.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_bad_root(std::size_t root, std::size_t size);
/// \throws UsageError: messages are between two members, not `size`.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_no_pair(std::size_t size);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/algorithms/collective_call.ipp"
#endif
