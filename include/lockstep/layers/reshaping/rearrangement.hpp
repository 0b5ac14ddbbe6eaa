/// \file
/// Ops that copy the elements of x to other places of y, as plain numbers. One kernel per device
/// computes all of them, and their gradients, which are rearrangements again.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// An axis of a Rearrangement: step i of the target is step i + begin of the source.
struct RearrangedAxis {
  int extent = 1;  ///< steps of the target
  int from = 1;    ///< steps of the source; the target is 0 where i + begin is not one of them
  int begin = 0;
  int stride = 0;  ///< elements of the source per step; 0: each step reads the same elements
  bool operator==(const RearrangedAxis&) const = default;
};

/// to[i_1, ..., i_m] = sum over r < repeats of from[r repeat_stride + sum over k of (i_k + begin_k)
/// stride_k], and 0 where i_k + begin_k is not in [0, from_k) for some k. Without repeats it is a
/// copy. The axes of the target are in its order in memory, and can be parts of the axes of a
/// shape: a pixel's channels as (row, column, channel) of a block, for example. In
/// the order of their strides, the axes of the source must be all of its elements, once each.
/// \code
///   // y = x[1:3] of a vector of 5
///   Rearrangement::of({{2, 5, 1, 1}})
/// \endcode
struct Rearrangement {
  static constexpr std::size_t most_axes = 5;
  using Axes = std::array<RearrangedAxis, most_axes>;

  Axes axis = unused();  ///< outermost first; those that are not needed have a single step
  int repeats = 1, repeat_stride = 0;

  /// `given`, at most five axes, with as few as possible, which are the last ones of `axis`.
  static constexpr Rearrangement of(std::initializer_list<RearrangedAxis> given) {
    Axes all = unused();
    std::copy(given.begin(), given.end(), all.begin());
    return joined(all);
  }

  /// Elements of the target, of one example.
  constexpr std::size_t size() const {
    std::size_t n = 1;
    for (const RearrangedAxis& a : axis) n *= static_cast<std::size_t>(a.extent);
    return n;
  }

  /// The rearrangement with which backward computes dx from dy: the transpose of this one, as
  /// matrices. At most one axis may have stride 0.
  constexpr Rearrangement transposed() const {
    Rearrangement result;
    Axes other = unused();
    int stride = 1;
    for (std::size_t k = most_axes; k-- > 0;) {
      const RearrangedAxis& a = axis[k];
      if (a.stride > 0) {
        other[k] = {a.from, a.extent, -a.begin, stride};
      } else if (a.extent > 1) {
        result.repeats = a.extent;
        result.repeat_stride = stride;
      }
      stride *= a.extent;
    }
    // In the order of x. An insertion sort: std::sort of GCC 12 is slow in constant expressions.
    std::array<int, most_axes> key{};
    for (std::size_t k = 0; k < most_axes; ++k) key[k] = axis[k].stride;
    for (std::size_t i = 1; i < most_axes; ++i)
      for (std::size_t k = i; k > 0 && key[k - 1] < key[k]; --k) {
        std::swap(key[k - 1], key[k]);
        std::swap(other[k - 1], other[k]);
      }
    return joined(other, result.repeats, result.repeat_stride);
  }

  bool operator==(const Rearrangement&) const = default;

 private:
  // Written out: g++ 12 ignores the members' initializers in elements that a list omits.
  static constexpr Axes unused() {
    Axes all;
    all.fill({1, 1, 0, 0});
    return all;
  }
  static constexpr Rearrangement joined(const Axes& given, int repeats = 1, int repeat_stride = 0) {
    Rearrangement result{unused(), repeats, repeat_stride};
    std::size_t first = most_axes;
    for (std::size_t k = most_axes; k-- > 0;) {
      const RearrangedAxis& a = given[k];
      if (a.extent == 1 && a.from == 1 && a.begin == 0) continue;
      if (first < most_axes && continues(a, result.axis[first])) {
        RearrangedAxis& inner = result.axis[first];
        inner = {a.extent * inner.extent, a.from * inner.extent, a.begin * inner.extent,
                 inner.stride};
      } else {
        result.axis[--first] = a;
      }
    }
    return result;
  }
  /// Whether `outer` and `inner` together are one axis.
  static constexpr bool continues(const RearrangedAxis& outer, const RearrangedAxis& inner) {
    return inner.stride > 0 && inner.extent == inner.from && inner.begin == 0 &&
           outer.stride == inner.stride * inner.extent;
  }
};

/// An op whose result is a rearrangement of its input. It needs no kernel of its own.
/// \code
///   struct EverySecondOp {                  // y = x[::2] of a vector of even size
///     Shape in;
///     constexpr Shape out() const { return shape(in[0] / 2); }
///     constexpr Rearrangement rearrangement() const {
///       return Rearrangement::of({{in[0] / 2, in[0] / 2, 0, 2}, {1, 2, 0, 1}});
///     }
///     bool operator==(const EverySecondOp&) const = default;
///   };
/// \endcode
template <class O>
concept Rearranges = Op<O> && requires(const O& op) {
  op.in;
  { op.rearrangement() } -> std::same_as<Rearrangement>;
};

static_assert(Rearrangement::of({{3, 5, 1, 4}, {4, 4, 0, 1}}) ==
              Rearrangement::of({{12, 20, 4, 1}}));
static_assert(Rearrangement::of({{2, 2, 0, 1}, {3, 3, 0, 2}}).transposed() ==
              Rearrangement::of({{3, 3, 0, 1}, {2, 2, 0, 3}}));

}  // namespace lockstep
