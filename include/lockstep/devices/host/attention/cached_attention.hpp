/// \file
/// CachedDotProductOp on every device over host memory, one query of a head at a time. Scores are
/// computed in blocks of keys, with their running maximum and sum. Invariants: memory does not grow
/// with the context; the bits of a step do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/attention/rotation.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/attention/cached_attention.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<CachedDotProductOp, D> {
  using Op = CachedDotProductOp;
  using Operands = AttentionIo<D>;
  using T = typename D::real;
  using A = ActivationOf<D>;

  struct Prepared {
    detail::Rotation<T> rotation;
    std::size_t bytes;  // a query and a result in T, for each row
    std::size_t scratch_bytes() const { return bytes; }
  };
  static Prepared prepare(const Op& op, typename D::Context&, std::size_t count,
                          [[maybe_unused]] auto... only) {
    return {{op.whole.rules.rotary, op.context(), static_cast<std::size_t>(op.whole.key_dim)},
            count * (op.q_size() + op.o_size()) * sizeof(T)};
  }

  /// io.k and io.v are those of the call's steps; those of the steps before precede them.
  static void forward(const Op& op, const Operands& io, const Prepared& p) {
    const DotProductAttentionOp& whole = op.whole;
    const auto heads = static_cast<std::size_t>(whole.heads);
    if (whole.rules.rotary.on()) turn_keys(op, io, p);
    detail::for_ranges(io.device, io.step.count * heads, 1, [&](Slice part) {
      for (std::size_t row = part.first; row < part.first + part.count; ++row)
        attend(op, io, p, row / heads, row % heads);
    });
  }

 private:
  static constexpr std::size_t block = 64;  // keys

  static std::size_t position(const Operands& io) { return io.step.first_ordinal; }
  static T* query_of(const Op& op, const Operands& io, std::size_t row) {
    return reinterpret_cast<T*>(io.scratch) + row * static_cast<std::size_t>(op.whole.key_dim);
  }
  static T* result_of(const Op& op, const Operands& io, std::size_t row) {
    return reinterpret_cast<T*>(io.scratch) + io.step.count * op.q_size() +
           row * static_cast<std::size_t>(op.whole.value_dim);
  }

  /// Rotates the keys of the call's steps in the cache, through the memory of a query.
  static void turn_keys(const Op& op, const Operands& io, const Prepared& p) {
    const auto size = static_cast<std::size_t>(op.whole.key_dim),
               heads = static_cast<std::size_t>(op.whole.kv_heads);
    T* const head = query_of(op, io, 0);
    A* const keys = const_cast<A*>(io.k);  // ours: this layer has just written them
    for (std::size_t i = 0; i < io.step.count * heads; ++i) {
      A* const key = keys + i * size;
      for (std::size_t e = 0; e < size; ++e) head[e] = T(key[e]);
      p.rotation.turn(head, position(io) + i / heads);
      for (std::size_t e = 0; e < size; ++e) key[e] = A(head[e]);
    }
  }

  /// Step i of the call, head h.
  static void attend(const Op& op, const Operands& io, const Prepared& p, std::size_t i,
                     std::size_t h) {
    const DotProductAttentionOp& whole = op.whole;
    const auto key_dim = static_cast<std::size_t>(whole.key_dim),
               value_dim = static_cast<std::size_t>(whole.value_dim),
               heads = static_cast<std::size_t>(whole.heads),
               group = h / static_cast<std::size_t>(whole.heads_per_key());
    const std::size_t row = i * heads + h, key_size = op.key_size(), value_size = op.value_size();
    const T scale = T(1) / std::sqrt(static_cast<T>(key_dim));
    T *const q = query_of(op, io, row), *const o = result_of(op, io, row);
    for (std::size_t e = 0; e < key_dim; ++e) q[e] = T(io.q[row * key_dim + e]) * scale;
    p.rotation.turn(q, position(io) + i);
    std::fill_n(o, value_dim, T(0));

    const DotProductAttentionOp::Keys keys = whole.keys_of(static_cast<int>(position(io) + i));
    const auto last = static_cast<std::size_t>(keys.last);
    const A* const k = io.k - position(io) * key_size + group * key_dim;
    const A* const v = io.v - position(io) * value_size + group * value_dim;
    T most = -std::numeric_limits<T>::infinity(), sum = 0;
    T scores[block];
    for (auto first = static_cast<std::size_t>(keys.first); first < last; first += block) {
      const std::size_t count = std::min(block, last - first);
      T now = most;
      for (std::size_t j = 0; j < count; ++j) {
        scores[j] = dot(q, k + (first + j) * key_size, key_dim);
        now = std::max(now, scores[j]);
      }
      const T change = std::exp(most - now);  // 0 in the first block
      most = now;
      sum *= change;
      for (std::size_t e = 0; e < value_dim; ++e) o[e] *= change;
      for (std::size_t j = 0; j < count; ++j) {
        const T weight = std::exp(scores[j] - most);
        const A* const value = v + (first + j) * value_size;  // (value_dim)
        sum += weight;
        for (std::size_t e = 0; e < value_dim; ++e) o[e] += weight * T(value[e]);
      }
    }
    for (std::size_t e = 0; e < value_dim; ++e) io.o[row * value_dim + e] = A(o[e] / sum);
  }

  /// Several sums, so that the compiler may use vectors.
  static T dot(const T* q, const A* k, std::size_t size) {
    constexpr std::size_t parts = 16;
    T part[parts] = {};
    std::size_t e = 0;
    for (; e + parts <= size; e += parts)
      for (std::size_t i = 0; i < parts; ++i) part[i] += q[e + i] * T(k[e + i]);
    T sum = 0;
    for (; e < size; ++e) sum += q[e] * T(k[e]);
    for (const T each : part) sum += each;
    return sum;
  }
};

}  // namespace lockstep
