/// \file
/// Scaled dot-product attention on the CPU. One thread computes all query heads that share a head of
/// keys and values, in blocks of `block` queries by `block` keys:
///
///     pack      k', v, .. of the head in float, in rows padded to whole vectors
///     forward   for each block of queries, for each block of keys that it attends to
///                 s = q k'        p = exp(s - maximum so far)        o = o * factor + p v
///     backward  s = q k', dp = do v', p = exp(s - log_sum), ds = p (dp - do . o)
///                 dv += p' do     dk += ds' q                        dq += ds k
///
/// Invariants: memory is linear in the steps; the bits of an example depend neither on the number of
/// threads nor on the other examples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/attention/block_product.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/devices/host/attention/attention_draws.hpp"
#include "lockstep/devices/host/attention/rotation.hpp"
#include "lockstep/layers/attention/dot_product_attention.hpp"

namespace lockstep {
namespace detail {

/// A row of a block of scores: which keys of the block [0, count) it attends to.
struct AttentionRow {
  std::size_t first, last;  // of the block
  std::size_t count;        // keys of the block, a multiple of the floats of a vector
  const float* excluded;    // (count): not 0 for a key that a mask excludes; or null
};

/// Calls each(v, k) for the row's vectors of scores, with -infinity for what it does not attend to.
template <std::size_t Bytes, class Each>
[[gnu::always_inline, gnu::no_instrument_function]] inline void for_scores(const AttentionRow& row,
                                                                           const float* scores,
                                                                           const Each& each) {
  using V = Lanes<float, Bytes>;
  using I = IntegersOf<V>;
  constexpr std::size_t lanes = lanes_of<float, Bytes>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  I lane;
  std::int32_t numbers[lanes];
  for (std::size_t i = 0; i < lanes; ++i) numbers[i] = static_cast<std::int32_t>(i);
  load(lane, numbers);
  for (std::size_t k = 0; k < row.count; k += lanes) {
    V v;
    load(v, scores + k);
    if (k < row.first || k + lanes > row.last) {
      const I at = lane + static_cast<std::int32_t>(k);
      v = at >= static_cast<std::int32_t>(row.first) ? v : V{} + lowest;
      v = at < static_cast<std::int32_t>(row.last) ? v : V{} + lowest;
    }
    if (row.excluded != nullptr) {
      V excluded;
      load(excluded, row.excluded + k);
      v = excluded == V{} ? v : V{} + lowest;
    }
    each(v, k);
  }
}

/// Replaces scores by exp(score - maximum) and updates the row's maximum and sum. Returns the factor
/// of what was summed up with the maximum before.
[[gnu::noinline]] inline float exponentiate_row(const AttentionRow& row, float* scores,
                                                float& maximum, double& sum) {
  float factor = 1;
  run_with_any_vectors<float>(
      [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
        using V = Lanes<float, bytes.value>;
        constexpr std::size_t lanes = lanes_of<float, bytes.value>;
        V most = V{} + maximum;
        for_scores<bytes.value>(row, scores,
                                [&](const V& v, std::size_t k)
                                    __attribute__((always_inline, no_instrument_function)) {
                                      most = v > most ? v : most;
                                      store(scores + k, v);
                                    });
        float largest = most[0];
        for (std::size_t i = 1; i < lanes; ++i) largest = most[i] > largest ? most[i] : largest;
        // Without any key so far all exponentials are 0, but those of NaN.
        const float base = largest == -std::numeric_limits<float>::infinity() ? 0.0f : largest;
        V total{};
        for (std::size_t k = 0; k < row.count; k += lanes) {
          V v, e;
          load(v, scores + k);
          exp_of_negative(e, v - base);
          total += e;
          store(scores + k, e);
        }
        factor = std::exp(maximum - base);
        maximum = largest;
        double all = 0;
        for (std::size_t i = 0; i < lanes; ++i) all += static_cast<double>(total[i]);
        sum = sum * static_cast<double>(factor) + all;
      });
  return factor;
}

/// Replaces scores by p f, where p = exp(score - log_sum) and f are the factors of dropout (null: 1),
/// and d_probs by p (f d_probs - product).
[[gnu::noinline]] inline void differentiate_row(const AttentionRow& row, float log_sum,
                                                float product, const float* factors, float* scores,
                                                float* d_probs) {
  run_with_any_vectors<float>(
      [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
        using V = Lanes<float, bytes.value>;
        for_scores<bytes.value>(row, scores,
                                [&](const V& v, std::size_t k)
                                    __attribute__((always_inline, no_instrument_function)) {
                                      V p, d, f = V{} + 1.0f;
                                      exp_of_negative(p, v - log_sum);
                                      load(d, d_probs + k);
                                      if (factors != nullptr) load(f, factors + k);
                                      d = p * (f * d - product);
                                      p *= f;
                                      store(scores + k, p);
                                      store(d_probs + k, d);
                                    });
      });
}

/// The passes of one DotProductAttentionOp at one batch size.
template <class D>
class AttentionBlocks {
 public:
  using Op = DotProductAttentionOp;
  using A = ActivationOf<D>;
  using Operands = AttentionIo<D>;

  AttentionBlocks(const Op& op, std::size_t count, int threads, bool with_backward)
      : threads_(threads),
        lanes_(std::max<std::size_t>(longest_vectors(), 16) / sizeof(float)),
        keys_(padded(op.keys)),
        key_size_(padded(op.key_dim)),
        value_size_(padded(op.value_dim)),
        rotation_(op.rules.rotary, static_cast<std::size_t>(std::max(op.queries, op.keys)),
                  static_cast<std::size_t>(op.key_dim)) {
    if (count == 0) return;
    const auto size = static_cast<std::size_t>(op.key_dim),
               values = static_cast<std::size_t>(op.value_dim);
    k_turned_ = add(size * keys_);
    excluded_ = add(keys_);
    scores_ = add(block * block);
    factors_ = add(block);
    q_ = add(block * key_size_);
    o_ = add(block * value_size_);
    if (with_backward) {
      k_ = add(keys_ * key_size_);
      v_turned_ = add(values * keys_);
      dk_ = add(keys_ * key_size_);
      d_probs_ = add(block * block);
      dq_ = add(block * key_size_);
    }
    v_ = add(keys_ * value_size_);  // in backward its gradient
  }

  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(threads_) * floats_ * sizeof(float);
  }

  void forward(const Op& op, const Operands& io) const {
    for_heads(op, io, [&](const Head& head) { forward(op, io, head); });
  }
  void backward(const Op& op, const Operands& io) const {
    for_heads(op, io, [&](const Head& head) { backward(op, io, head); });
  }

 private:
  static constexpr std::size_t block = 64;

  /// One head of keys and values of an example, and a thread's scratch memory.
  struct Head {
    std::size_t example, number;
    float* scratch;
  };
  /// The queries of one head in a block.
  struct Queries {
    std::size_t head, first, count, padded;
  };

  std::size_t padded(std::size_t n) const { return (n + lanes_ - 1) / lanes_ * lanes_; }
  std::size_t padded(int n) const { return padded(static_cast<std::size_t>(n)); }
  std::size_t add(std::size_t floats) {
    const std::size_t offset = floats_;
    floats_ += (floats + 15) / 16 * 16;
    return offset;
  }

  template <class Each>
  void for_heads(const Op& op, const Operands& io, const Each& each) const {
    const auto heads = static_cast<std::size_t>(op.kv_heads);
    float* const scratch = reinterpret_cast<float*>(io.scratch);
    parallel_ranges(threads_, io.step.count * heads, 1, [&](Slice part, std::size_t thread) {
      for (std::size_t i = part.first; i < part.first + part.count; ++i)
        each(Head{i / heads, i % heads, scratch + thread * floats_});
    });
  }

  /// Row `step` of head `head` in a tensor (count, steps, heads, size).
  template <class Element>
  static Element* row(Element* tensor, std::size_t example, int steps, std::size_t step, int heads,
                      std::size_t head, int size) {
    return tensor +
           ((example * static_cast<std::size_t>(steps) + step) * static_cast<std::size_t>(heads) +
            head) *
               static_cast<std::size_t>(size);
  }
  /// Converts `size` elements, and writes zeros up to `whole`.
  template <class To, class From>
  static void convert(const From* from, To* to, std::size_t size, std::size_t whole) {
    for (std::size_t i = 0; i < size; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
    for (std::size_t i = size; i < whole; ++i) to[i] = To(0.0f);
  }

  /// The transpose (size, keys_) of rows of the head, padded with zeros.
  static void transpose(const float* from, std::size_t steps, std::size_t from_row, float* to,
                        std::size_t size, std::size_t to_row) {
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t t = 0; t < steps; ++t) to[i * to_row + t] = from[t * from_row + i];
      std::fill(to + i * to_row + steps, to + (i + 1) * to_row, 0.0f);
    }
  }

  /// Packs the keys, transposed, and in backward also as they are; and what the mask excludes.
  void pack_keys(const Op& op, const Operands& io, const Head& head, float* rows) const {
    const auto keys = static_cast<std::size_t>(op.keys),
               size = static_cast<std::size_t>(op.key_dim);
    float* const turned = head.scratch + k_turned_;
    for (std::size_t first = 0; first < keys; first += block) {
      const std::size_t count = std::min(block, keys - first);
      float* const to = rows != nullptr ? rows + first * key_size_ : head.scratch + q_;
      for (std::size_t j = 0; j < count; ++j) {
        convert(row(io.k, head.example, op.keys, first + j, op.kv_heads, head.number, op.key_dim),
                to + j * key_size_, size, key_size_);
        rotation_.turn(to + j * key_size_, first + j);
      }
      for (std::size_t i = 0; i < size; ++i)
        for (std::size_t j = 0; j < count; ++j)
          turned[i * keys_ + first + j] = to[j * key_size_ + i];
    }
    for (std::size_t i = 0; i < size; ++i)
      std::fill(turned + i * keys_ + keys, turned + (i + 1) * keys_, 0.0f);
    if (io.mask == nullptr) return;
    float* const excluded = head.scratch + excluded_;
    const A* const mask = io.mask + head.example * keys;
    for (std::size_t j = 0; j < keys_; ++j)
      excluded[j] = j < keys && static_cast<float>(mask[j]) != 0.0f ? 0.0f : 1.0f;
  }

  /// Packs the block's queries, times the scale.
  void pack_queries(const Op& op, const Operands& io, const Head& head, const Queries& q) const {
    const float scale = 1.0f / std::sqrt(static_cast<float>(op.key_dim));
    float* const to = head.scratch + q_;
    for (std::size_t i = 0; i < q.count; ++i) {
      float* const query = to + i * key_size_;
      convert(row(io.q, head.example, op.queries, q.first + i, op.heads, q.head, op.key_dim), query,
              static_cast<std::size_t>(op.key_dim), key_size_);
      rotation_.turn(query, q.first + i);
      for (std::size_t e = 0; e < key_size_; ++e) query[e] *= scale;
    }
    std::fill(to + q.count * key_size_, to + q.padded * key_size_, 0.0f);
  }

  /// The keys that a row of the block attends to, of `count` keys from `first`.
  AttentionRow row_of(const Op& op, const Operands& io, const Head& head, std::size_t query,
                      std::size_t first, std::size_t count) const {
    const Op::Keys keys = op.keys_of(static_cast<int>(query));
    const auto begin = static_cast<std::size_t>(keys.first),
               end = static_cast<std::size_t>(keys.last);
    return {std::clamp(begin, first, first + count) - first,
            std::clamp(end, first, first + count) - first, count,
            io.mask == nullptr ? nullptr : head.scratch + excluded_ + first};
  }

  /// Calls each(Queries) for the blocks of queries of all heads that read this one.
  template <class Each>
  void for_queries(const Op& op, const Head& head, const Each& each) const {
    const auto queries = static_cast<std::size_t>(op.queries),
               heads = static_cast<std::size_t>(op.heads_per_key());
    for (std::size_t h = head.number * heads; h < (head.number + 1) * heads; ++h)
      for (std::size_t first = 0; first < queries; first += block) {
        const std::size_t count = std::min(block, queries - first);
        each(Queries{h, first, count, padded(count)});
      }
  }
  /// Calls each(first, count) for the blocks of keys that some of the queries attend to; count is a
  /// multiple of the floats of a vector.
  template <class Each>
  void for_keys(const Op& op, const Queries& q, const Each& each) const {
    const auto first = static_cast<std::size_t>(op.keys_of(static_cast<int>(q.first)).first),
               last = static_cast<std::size_t>(
                   op.keys_of(static_cast<int>(q.first + q.count - 1)).last);
    for (std::size_t at = first / block * block; at < last; at += block)
      each(at, padded(std::min(block, last - at)));
  }

  void forward(const Op& op, const Operands& io, const Head& head) const {
    const auto keys = static_cast<std::size_t>(op.keys),
               values = static_cast<std::size_t>(op.value_dim),
               size = static_cast<std::size_t>(op.key_dim);
    float *const turned = head.scratch + k_turned_, *const v = head.scratch + v_,
                 *const scores = head.scratch + scores_, *const q = head.scratch + q_,
                 *const o = head.scratch + o_, *const factors = head.scratch + factors_;
    pack_keys(op, io, head, nullptr);
    for (std::size_t j = 0; j < keys; ++j)
      convert(row(io.v, head.example, op.keys, j, op.kv_heads, head.number, op.value_dim),
              v + j * value_size_, values, value_size_);
    const AttentionDraws draws(op, io.step, io.key, head.example);
    for_queries(op, head, [&](const Queries& b) {
      pack_queries(op, io, head, b);
      std::fill(o, o + b.padded * value_size_, 0.0f);
      float maximum[block];
      double sum[block] = {};
      std::fill_n(maximum, b.count, -std::numeric_limits<float>::infinity());
      for_keys(op, b, [&](std::size_t first, std::size_t count) {
        multiply_blocks<false>(
            {b.padded, count, size, q, key_size_, 1, turned + first, keys_, scores, block});
        for (std::size_t i = 0; i < b.count; ++i) {
          float* const p = scores + i * block;
          const float factor = exponentiate_row(row_of(op, io, head, b.first + i, first, count), p,
                                                maximum[i], sum[i]);
          if (factor != 1)
            for (std::size_t e = 0; e < value_size_; ++e) o[i * value_size_ + e] *= factor;
          if (draws) {
            draws.factors(b.head * static_cast<std::size_t>(op.queries) + b.first + i, first, count,
                          factors);
            for (std::size_t j = 0; j < count; ++j) p[j] *= factors[j];
          }
        }
        // The rows of padding hold finite scores, whose products nothing reads.
        multiply_blocks<true>({b.padded, value_size_, std::min(count, keys - first), scores, block,
                               1, v + first * value_size_, value_size_, o, value_size_});
      });
      for (std::size_t i = 0; i < b.count; ++i) {
        const bool has_keys = !(sum[i] == 0);  // also for NaN
        const float factor = has_keys ? static_cast<float>(1 / sum[i]) : 0.0f;
        for (std::size_t e = 0; e < value_size_; ++e) o[i * value_size_ + e] *= factor;
        convert(o + i * value_size_,
                row(io.o, head.example, op.queries, b.first + i, op.heads, b.head, op.value_dim),
                values, values);
        io.log_sums[(head.example * static_cast<std::size_t>(op.heads) + b.head) *
                        static_cast<std::size_t>(op.queries) +
                    b.first + i] =
            has_keys ? static_cast<float>(static_cast<double>(maximum[i]) + std::log(sum[i]))
                     : std::numeric_limits<float>::infinity();
      }
    });
  }

  void backward(const Op& op, const Operands& io, const Head& head) const {
    const auto keys = static_cast<std::size_t>(op.keys),
               values = static_cast<std::size_t>(op.value_dim),
               size = static_cast<std::size_t>(op.key_dim);
    const float scale = 1.0f / std::sqrt(static_cast<float>(op.key_dim));
    float *const turned = head.scratch + k_turned_, *const k = head.scratch + k_,
                 *const v_turned = head.scratch + v_turned_, *const dk = head.scratch + dk_,
                 *const dv = head.scratch + v_, *const scores = head.scratch + scores_,
                 *const d_probs = head.scratch + d_probs_, *const q = head.scratch + q_,
                 *const dq = head.scratch + dq_, *const d_o = head.scratch + o_,
                 *const factors = head.scratch + factors_;
    pack_keys(op, io, head, k);
    for (std::size_t j = 0; j < keys; ++j)
      convert(row(io.v, head.example, op.keys, j, op.kv_heads, head.number, op.value_dim),
              dv + j * value_size_, values, value_size_);
    transpose(dv, keys, value_size_, v_turned, values, keys_);
    std::fill(dk, dk + keys_ * key_size_, 0.0f);
    std::fill(dv, dv + keys_ * value_size_, 0.0f);
    const AttentionDraws draws(op, io.step, io.key, head.example);
    for_queries(op, head, [&](const Queries& b) {
      pack_queries(op, io, head, b);
      std::fill(dq, dq + b.padded * key_size_, 0.0f);
      float product[block], log_sum[block];
      for (std::size_t i = 0; i < b.count; ++i) {
        float* const slope = d_o + i * value_size_;
        convert(row(io.d_o, head.example, op.queries, b.first + i, op.heads, b.head, op.value_dim),
                slope, values, value_size_);
        const A* const o =
            row(io.o, head.example, op.queries, b.first + i, op.heads, b.head, op.value_dim);
        double total = 0;
        for (std::size_t e = 0; e < values; ++e)
          total += static_cast<double>(slope[e]) * static_cast<double>(static_cast<float>(o[e]));
        product[i] = static_cast<float>(total);
        log_sum[i] = io.log_sums[(head.example * static_cast<std::size_t>(op.heads) + b.head) *
                                     static_cast<std::size_t>(op.queries) +
                                 b.first + i];
      }
      std::fill(d_o + b.count * value_size_, d_o + b.padded * value_size_, 0.0f);
      for_keys(op, b, [&](std::size_t first, std::size_t count) {
        multiply_blocks<false>(
            {b.padded, count, size, q, key_size_, 1, turned + first, keys_, scores, block});
        multiply_blocks<false>({b.padded, count, values, d_o, value_size_, 1, v_turned + first,
                                keys_, d_probs, block});
        for (std::size_t i = 0; i < b.count; ++i) {
          if (draws)
            draws.factors(b.head * static_cast<std::size_t>(op.queries) + b.first + i, first, count,
                          factors);
          differentiate_row(row_of(op, io, head, b.first + i, first, count), log_sum[i], product[i],
                            draws ? factors : nullptr, scores + i * block, d_probs + i * block);
        }
        multiply_blocks<true>({count, value_size_, b.count, scores, 1, block, d_o, value_size_,
                               dv + first * value_size_, value_size_});
        multiply_blocks<true>({count, key_size_, b.count, d_probs, 1, block, q, key_size_,
                               dk + first * key_size_, key_size_});
        multiply_blocks<true>({b.padded, key_size_, std::min(count, keys - first), d_probs, block,
                               1, k + first * key_size_, key_size_, dq, key_size_});
      });
      for (std::size_t i = 0; i < b.count; ++i) {
        float* const slope = dq + i * key_size_;
        for (std::size_t e = 0; e < key_size_; ++e) slope[e] *= scale;
        rotation_.turn_back(slope, b.first + i);
        convert(slope,
                row(io.dq, head.example, op.queries, b.first + i, op.heads, b.head, op.key_dim),
                size, size);
      }
    });
    for (std::size_t j = 0; j < keys; ++j) {
      rotation_.turn_back(dk + j * key_size_, j);
      convert(dk + j * key_size_,
              row(io.dk, head.example, op.keys, j, op.kv_heads, head.number, op.key_dim), size,
              size);
      convert(dv + j * value_size_,
              row(io.dv, head.example, op.keys, j, op.kv_heads, head.number, op.value_dim), values,
              values);
    }
  }

  int threads_;
  std::size_t lanes_;                         // floats of a vector
  std::size_t keys_, key_size_, value_size_;  // padded to whole vectors
  Rotation<float> rotation_;
  std::size_t floats_ = 0;  // of each thread's scratch memory, in which these are offsets
  std::size_t k_turned_ = 0, k_ = 0, v_turned_ = 0, v_ = 0, dk_ = 0, excluded_ = 0, scores_ = 0,
              d_probs_ = 0, factors_ = 0, q_ = 0, dq_ = 0, o_ = 0;
};

}  // namespace detail

template <class P>
struct Kernel<DotProductAttentionOp, BasicCpu<P>> {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Op = DotProductAttentionOp;
  using Prepared = detail::AttentionBlocks<D>;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const Op& op, typename D::Context& context, std::size_t count, Only...) {
    return Prepared(op, count, context.threads(), sizeof...(Only) == 0);
  }
  static void forward(const Op& op, const AttentionIo<D>& io, Prepared& p) { p.forward(op, io); }
  static void backward(const Op& op, const AttentionIo<D>& io, Prepared& p) { p.backward(op, io); }
};

static_assert(HasKernel<DotProductAttentionOp, Cpu> &&
              HasKernel<DotProductAttentionOp, CpuBFloat16>);

}  // namespace lockstep
