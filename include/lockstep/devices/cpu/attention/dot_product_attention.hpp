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
#include "lockstep/devices/cpu/attention/packed_rows.hpp"
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

  // The vectors of `lanes` keys that have some of them.
  std::size_t begin(std::size_t lanes) const { return first / lanes * lanes; }
  std::size_t end(std::size_t lanes) const {
    return first < last ? (last + lanes - 1) / lanes * lanes : begin(lanes);
  }
};

inline constexpr std::int32_t lane_numbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                8, 9, 10, 11, 12, 13, 14, 15};

/// Calls each(v, k) for the vectors of scores that have a key of the row, with -infinity for other keys.
template <std::size_t Bytes, class Each>
[[gnu::always_inline, gnu::no_instrument_function]] inline void for_scores(const AttentionRow& row,
                                                                           const float* scores,
                                                                           const Each& each) {
  using V = Lanes<float, Bytes>;
  using I = IntegersOf<V>;
  constexpr std::size_t lanes = lanes_of<float, Bytes>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  for (std::size_t k = row.begin(lanes); k < row.end(lanes); k += lanes) {
    V v;
    load(v, scores + k);
    if (k < row.first || k + lanes > row.last) {
      I at;
      load(at, lane_numbers);
      at += static_cast<std::int32_t>(k);
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
/// Writes zeros to the vectors that for_scores leaves out.
template <std::size_t Bytes>
[[gnu::always_inline, gnu::no_instrument_function]] inline void clear_others(
    const AttentionRow& row, float* values) {
  constexpr std::size_t lanes = lanes_of<float, Bytes>;
  const Lanes<float, Bytes> zero{};
  for (std::size_t k = 0; k < row.begin(lanes); k += lanes) store(values + k, zero);
  for (std::size_t k = row.end(lanes); k < row.count; k += lanes) store(values + k, zero);
}

/// A block of scores, whose rows are `stride` floats apart, and what its rows attend to.
struct AttentionScores {
  const AttentionRow* row;
  std::size_t rows;
  float* scores;
  std::size_t stride;
};

/// Replaces scores by exp(score - maximum) and updates the rows' maxima and sums. Multiplies the rows of
/// o (rows, size), which were summed up with the maximum before, by the change of the exponentials.
[[gnu::noinline]] inline void exponentiate_rows(const AttentionScores& block, float* maxima,
                                                double* sums, float* o, std::size_t size) {
  run_with_any_vectors<float>(
      [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
        using V = Lanes<float, bytes.value>;
        constexpr std::size_t lanes = lanes_of<float, bytes.value>;
        for (std::size_t i = 0; i < block.rows; ++i) {
          const AttentionRow& row = block.row[i];
          float* const scores = block.scores + i * block.stride;
          V most = V{} + maxima[i];
          for_scores<bytes.value>(row, scores,
                                  [&](const V& v, std::size_t k)
                                      __attribute__((always_inline, no_instrument_function)) {
                                        most = v > most ? v : most;
                                        store(scores + k, v);
                                      });
          float largest = most[0];
          for (std::size_t l = 1; l < lanes; ++l) largest = most[l] > largest ? most[l] : largest;
          // Without any key so far all exponentials are 0, but those of NaN.
          const float base = largest == -std::numeric_limits<float>::infinity() ? 0.0f : largest;
          V total{};
          clear_others<bytes.value>(row, scores);
          for (std::size_t k = row.begin(lanes); k < row.end(lanes); k += lanes) {
            V v, e;
            load(v, scores + k);
            exp_of_negative(e, v - base);
            total += e;
            store(scores + k, e);
          }
          double all = 0;
          for (std::size_t l = 0; l < lanes; ++l) all += static_cast<double>(total[l]);
          if (maxima[i] != largest) {
            const float factor = std::exp(maxima[i] - base);
            for (std::size_t k = 0; k < size; k += lanes) {
              V v;
              load(v, o + i * size + k);
              v *= factor;
              store(o + i * size + k, v);
            }
            sums[i] *= static_cast<double>(factor);
            maxima[i] = largest;
          }
          sums[i] += all;
        }
      });
}

/// Replaces scores by p f, where p = exp(score - log_sum) and f are the factors of dropout (null: 1),
/// and d_probs by p (f d_probs - product). The three arrays have the rows of the scores.
[[gnu::noinline]] inline void differentiate_rows(const AttentionScores& block,
                                                 const float* log_sums, const float* products,
                                                 const float* factors, float* d_probs) {
  run_with_any_vectors<float>(
      [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
        using V = Lanes<float, bytes.value>;
        for (std::size_t i = 0; i < block.rows; ++i) {
          const std::size_t at = i * block.stride;
          clear_others<bytes.value>(block.row[i], block.scores + at);
          clear_others<bytes.value>(block.row[i], d_probs + at);
          for_scores<bytes.value>(block.row[i], block.scores + at,
                                  [&](const V& v, std::size_t k)
                                      __attribute__((always_inline, no_instrument_function)) {
                                        V p, d, f = V{} + 1.0f;
                                        exp_of_negative(p, v - log_sums[i]);
                                        load(d, d_probs + at + k);
                                        if (factors != nullptr) load(f, factors + at + k);
                                        d = p * (f * d - products[i]);
                                        p *= f;
                                        store(block.scores + at + k, p);
                                        store(d_probs + at + k, d);
                                      });
        }
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
    k_turned_ = add(key_size_ * keys_);
    excluded_ = add(keys_);
    scores_ = add(block * block);
    excluded_pairs_ = add(op.masks_pairs ? block * block : 0);
    factors_ = add(op.rules.dropout > 0 ? block * block : 0);
    packed_ = add(block * std::max(key_size_, value_size_));
    q_ = add(block * key_size_);
    o_ = add(block * value_size_);
    if (with_backward) {
      k_ = add(keys_ * key_size_);
      v_turned_ = add(value_size_ * keys_);
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

  /// `count` steps, from `first`, of one head of a tensor (examples, steps, heads, size).
  template <class Element>
  static HeadRows<Element> rows_of(Element* tensor, std::size_t example, int steps, int heads,
                                   std::size_t head, int size, std::size_t first,
                                   std::size_t count) {
    const auto h = static_cast<std::size_t>(heads), n = static_cast<std::size_t>(size);
    return {tensor + ((example * static_cast<std::size_t>(steps) + first) * h + head) * n, h * n,
            count, n};
  }
  template <class Element>
  static HeadRows<Element> queries_of(const Op& op, Element* tensor, const Head& head,
                                      const Queries& q, int size) {
    return rows_of(tensor, head.example, op.queries, op.heads, q.head, size, q.first, q.count);
  }
  template <class Element>
  static HeadRows<Element> keys_of(const Op& op, Element* tensor, const Head& head, int size,
                                   std::size_t first, std::size_t count) {
    return rows_of(tensor, head.example, op.keys, op.kv_heads, head.number, size, first, count);
  }

  /// Calls each(first, count) for the blocks of keys.
  template <class Each>
  void for_key_blocks(const Op& op, const Each& each) const {
    const auto keys = static_cast<std::size_t>(op.keys);
    for (std::size_t first = 0; first < keys; first += block)
      each(first, std::min(block, keys - first));
  }
  /// Packs `count` rows into a block of whole vectors of rows, and its transpose into columns
  /// [first, ..) of `turned`.
  template <class Each>
  void turn_block(const HeadRows<const A>& from, float* packed, std::size_t size, float* turned,
                  std::size_t first, const Each& change) const {
    pack_rows(from, 1.0f, packed, size);
    change(packed);
    std::fill(packed + from.count * size, packed + padded(from.count) * size, 0.0f);
    transpose_rows(packed, padded(from.count), size, turned + first, keys_);
  }

  /// Packs the keys, transposed, and in backward also as they are; and what the mask excludes.
  void pack_keys(const Op& op, const Operands& io, const Head& head, float* rows) const {
    for_key_blocks(op, [&](std::size_t first, std::size_t count) {
      float* const to = rows != nullptr ? rows + first * key_size_ : head.scratch + packed_;
      turn_block(keys_of(op, io.k, head, op.key_dim, first, count), to, key_size_,
                 head.scratch + k_turned_, first, [&](float* packed) {
                   for (std::size_t j = 0; j < count; ++j)
                     rotation_.turn(packed + j * key_size_, first + j);
                 });
    });
    if (io.mask == nullptr) return;
    const auto keys = static_cast<std::size_t>(op.keys);
    float* const excluded = head.scratch + excluded_;
    const A* const mask = io.mask + head.example * keys;
    for (std::size_t j = 0; j < keys_; ++j)
      excluded[j] = j < keys && static_cast<float>(mask[j]) != 0.0f ? 0.0f : 1.0f;
  }

  /// Packs the block's queries, times the scale.
  void pack_queries(const Op& op, const Operands& io, const Head& head, const Queries& q) const {
    float* const to = head.scratch + q_;
    pack_rows(queries_of(op, io.q, head, q, op.key_dim), scale_of(op), to, key_size_);
    for (std::size_t i = 0; i < q.count; ++i) rotation_.turn(to + i * key_size_, q.first + i);
    std::fill(to + q.count * key_size_, to + q.padded * key_size_, 0.0f);
  }
  static float scale_of(const Op& op) { return 1.0f / std::sqrt(static_cast<float>(op.key_dim)); }

  /// Writes what each row of the block attends to, of `count` keys from `first`, and its factors of
  /// dropout.
  void prepare_rows(const Op& op, const Operands& io, const Head& head, const Queries& q,
                    std::size_t first, std::size_t count, const AttentionDraws& draws,
                    AttentionRow* rows) const {
    for (std::size_t i = 0; i < q.count; ++i) {
      rows[i] = row_of(op, io, head, q.first + i, first, count);
      if (draws)
        draws.factors(q.head * static_cast<std::size_t>(op.queries) + q.first + i, first, count,
                      head.scratch + factors_ + i * block);
    }
  }

  /// The keys that a row of the block attends to, of `count` keys from `first`.
  AttentionRow row_of(const Op& op, const Operands& io, const Head& head, std::size_t query,
                      std::size_t first, std::size_t count) const {
    const bool masked =
        io.query_mask != nullptr &&
        static_cast<float>(
            io.query_mask[head.example * static_cast<std::size_t>(op.queries) + query]) == 0.0f;
    const Op::Keys keys = masked ? Op::Keys{0, 0} : op.keys_of(static_cast<int>(query));
    const auto begin = static_cast<std::size_t>(keys.first),
               end = static_cast<std::size_t>(keys.last);
    return {std::clamp(begin, first, first + count) - first,
            std::clamp(end, first, first + count) - first, count,
            op.masks_pairs       ? excluded_pairs(op, io, head, query, first, count)
            : io.mask == nullptr ? nullptr
                                 : head.scratch + excluded_ + first};
  }
  /// Writes which of `count` keys from `first` a mask excludes for the query, and returns it. Floats
  /// after the last key stay as they are.
  const float* excluded_pairs(const Op& op, const Operands& io, const Head& head, std::size_t query,
                              std::size_t first, std::size_t count) const {
    const auto keys = static_cast<std::size_t>(op.keys),
               queries = static_cast<std::size_t>(op.queries);
    const A* const mask = io.pair_mask + (head.example * queries + query) * keys + first;
    const float* const excluded = head.scratch + excluded_ + first;
    float* const to = head.scratch + excluded_pairs_ + query % block * block;
    for (std::size_t j = 0; j < std::min(count, keys - first); ++j)
      to[j] = static_cast<float>(mask[j]) == 0.0f || (io.mask != nullptr && excluded[j] != 0.0f)
                  ? 1.0f
                  : 0.0f;
    return to;
  }
  /// Whether the query attends to any key.
  bool has_keys(const Op& op, const Operands& io, const Head& head, std::size_t query) const {
    for (std::size_t first = 0; first < static_cast<std::size_t>(op.keys); first += block) {
      const AttentionRow row = row_of(op, io, head, query, first,
                                      std::min(block, static_cast<std::size_t>(op.keys) - first));
      for (std::size_t j = row.first; j < row.last; ++j)
        if (row.excluded == nullptr || row.excluded[j] == 0.0f) return true;
    }
    return false;
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

  /// Where the logarithms of the block's sums are.
  static float* log_sums_of(const Op& op, const Operands& io, const Head& head, const Queries& q) {
    return io.log_sums +
           (head.example * static_cast<std::size_t>(op.heads) + q.head) *
               static_cast<std::size_t>(op.queries) +
           q.first;
  }

  void forward(const Op& op, const Operands& io, const Head& head) const {
    const auto keys = static_cast<std::size_t>(op.keys);
    float *const turned = head.scratch + k_turned_, *const v = head.scratch + v_,
                 *const scores = head.scratch + scores_, *const q = head.scratch + q_,
                 *const o = head.scratch + o_, *const factors = head.scratch + factors_;
    pack_keys(op, io, head, nullptr);
    pack_rows(keys_of(op, io.v, head, op.value_dim, 0, keys), 1.0f, v, value_size_);
    const AttentionDraws draws(op, io.step, io.key, head.example);
    for_queries(op, head, [&](const Queries& b) {
      pack_queries(op, io, head, b);
      std::fill(o, o + b.padded * value_size_, 0.0f);
      AttentionRow rows[block];
      float maximum[block];
      double sum[block] = {};
      std::fill_n(maximum, b.count, -std::numeric_limits<float>::infinity());
      for_keys(op, b, [&](std::size_t first, std::size_t count) {
        multiply_blocks<false>({b.padded, count, static_cast<std::size_t>(op.key_dim), q, key_size_,
                                1, turned + first, keys_, scores, block});
        prepare_rows(op, io, head, b, first, count, draws, rows);
        exponentiate_rows({rows, b.count, scores, block}, maximum, sum, o, value_size_);
        if (draws)
          for (std::size_t i = 0; i < b.count; ++i)
            for (std::size_t j = 0; j < count; ++j) scores[i * block + j] *= factors[i * block + j];
        // The rows of padding hold finite scores, whose products nothing reads.
        multiply_blocks<true>({b.padded, value_size_, std::min(count, keys - first), scores, block,
                               1, v + first * value_size_, value_size_, o, value_size_});
      });
      float* const log_sums = log_sums_of(op, io, head, b);
      for (std::size_t i = 0; i < b.count; ++i) {
        // The sum is NaN if a score is, and 0 for scores of -infinity alone, whose softmax is NaN.
        const bool attends = !(sum[i] == 0) || has_keys(op, io, head, b.first + i);
        log_sums[i] = attends
                          ? static_cast<float>(static_cast<double>(maximum[i]) + std::log(sum[i]))
                          : std::numeric_limits<float>::infinity();
        HeadRows<A> to = queries_of(op, io.o, head, b, op.value_dim);
        to.at += i * to.row;
        to.count = 1;
        unpack_rows(o + i * value_size_, value_size_,
                    attends ? static_cast<float>(1 / sum[i]) : 0.0f, to);
      }
    });
  }

  void backward(const Op& op, const Operands& io, const Head& head) const {
    const auto keys = static_cast<std::size_t>(op.keys);
    float *const turned = head.scratch + k_turned_, *const k = head.scratch + k_,
                 *const v_turned = head.scratch + v_turned_, *const dk = head.scratch + dk_,
                 *const dv = head.scratch + v_, *const scores = head.scratch + scores_,
                 *const d_probs = head.scratch + d_probs_, *const q = head.scratch + q_,
                 *const dq = head.scratch + dq_, *const d_o = head.scratch + o_,
                 *const packed = head.scratch + packed_, *const factors = head.scratch + factors_;
    pack_keys(op, io, head, k);
    for_key_blocks(op, [&](std::size_t first, std::size_t count) {
      turn_block(keys_of(op, io.v, head, op.value_dim, first, count), packed, value_size_, v_turned,
                 first, [](float*) {});
    });
    std::fill(dk, dk + keys_ * key_size_, 0.0f);
    std::fill(dv, dv + keys_ * value_size_, 0.0f);
    const AttentionDraws draws(op, io.step, io.key, head.example);
    for_queries(op, head, [&](const Queries& b) {
      pack_queries(op, io, head, b);
      std::fill(dq, dq + b.padded * key_size_, 0.0f);
      pack_rows(queries_of(op, io.d_o, head, b, op.value_dim), 1.0f, d_o, value_size_);
      pack_rows(queries_of(op, static_cast<const A*>(io.o), head, b, op.value_dim), 1.0f, packed,
                value_size_);
      std::fill(d_o + b.count * value_size_, d_o + b.padded * value_size_, 0.0f);
      AttentionRow rows[block];
      float products[block];
      multiply_rows(d_o, packed, b.count, value_size_, products);
      const float* const log_sums = log_sums_of(op, io, head, b);
      for_keys(op, b, [&](std::size_t first, std::size_t count) {
        multiply_blocks<false>({b.padded, count, static_cast<std::size_t>(op.key_dim), q, key_size_,
                                1, turned + first, keys_, scores, block});
        multiply_blocks<false>({b.padded, count, static_cast<std::size_t>(op.value_dim), d_o,
                                value_size_, 1, v_turned + first, keys_, d_probs, block});
        prepare_rows(op, io, head, b, first, count, draws, rows);
        differentiate_rows({rows, b.count, scores, block}, log_sums, products,
                           draws ? factors : nullptr, d_probs);
        multiply_blocks<true>({count, value_size_, b.count, scores, 1, block, d_o, value_size_,
                               dv + first * value_size_, value_size_});
        multiply_blocks<true>({count, key_size_, b.count, d_probs, 1, block, q, key_size_,
                               dk + first * key_size_, key_size_});
        multiply_blocks<true>({b.padded, key_size_, std::min(count, keys - first), d_probs, block,
                               1, k + first * key_size_, key_size_, dq, key_size_});
      });
      for (std::size_t i = 0; i < b.count; ++i)
        rotation_.turn_back(dq + i * key_size_, b.first + i);
      unpack_rows(dq, key_size_, scale_of(op), queries_of(op, io.dq, head, b, op.key_dim));
    });
    for (std::size_t j = 0; j < keys; ++j) rotation_.turn_back(dk + j * key_size_, j);
    unpack_rows(dk, key_size_, 1.0f, keys_of(op, io.dk, head, op.key_dim, 0, keys));
    unpack_rows(dv, value_size_, 1.0f, keys_of(op, io.dv, head, op.value_dim, 0, keys));
  }

  int threads_;
  std::size_t lanes_;                         // floats of a vector
  std::size_t keys_, key_size_, value_size_;  // padded to whole vectors
  Rotation<float> rotation_;
  std::size_t floats_ = 0;  // of each thread's scratch memory, in which these are offsets
  std::size_t k_turned_ = 0, k_ = 0, v_turned_ = 0, v_ = 0, dk_ = 0, excluded_ = 0,
              excluded_pairs_ = 0, scores_ = 0, d_probs_ = 0, factors_ = 0, packed_ = 0, q_ = 0,
              dq_ = 0, o_ = 0;
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
