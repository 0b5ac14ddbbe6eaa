/// \file
/// The arguments of a collective operation, which all members compare before data is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The elements of an operation, by size and kind.
struct Elements {
  enum class Kind : std::uint32_t { bytes, floats, ints, uints };
  std::size_t n = 0, size = 1;
  Kind kind = Kind::bytes;

  std::size_t bytes() const { return n * size; }
};

template <class T>
constexpr Elements elements_of(std::size_t n) {
  return {n, sizeof(T),
          std::is_floating_point_v<T> ? Elements::Kind::floats
          : !std::is_integral_v<T>    ? Elements::Kind::bytes
          : std::is_signed_v<T>       ? Elements::Kind::ints
                                      : Elements::Kind::uints};
}

/// The arguments of an operation; all members' must be equal. Sent as it lies in memory.
struct CollectiveCall {
  enum class Operation : std::uint32_t { all_reduce, broadcast, all_gather, barrier };
  Operation operation = Operation::barrier;
  Elements::Kind kind = Elements::Kind::bytes;
  std::uint64_t n = 0, m = 0, root = 0, element = 0;

  bool operator==(const CollectiveCall&) const = default;
  /// The operation's name, for error messages.
  LOCKSTEP_COLD_DECL const char* name() const;
  /// "all_reduce of 5 elements of float32".
  LOCKSTEP_COLD_DECL std::string text() const;
  /// The same with the number of sums and the root.
  LOCKSTEP_COLD_DECL std::string description() const;
};
static_assert(std::has_unique_object_representations_v<CollectiveCall>);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/collective_call.ipp"
#endif
