/// \file
/// Scaled dot-product attention on the reference device, one row of scores at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/attention/attention_draws.hpp"
#include "lockstep/devices/host/attention/rotation.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/attention/dot_product_attention.hpp"

namespace lockstep {

template <class T>
struct Kernel<DotProductAttentionOp, Reference<T>> {
  using library_kernel = Kernel;
  using Op = DotProductAttentionOp;
  using Operands = AttentionIo<Reference<T>>;

  struct Prepared {
    detail::Rotation<T> rotation;
    std::vector<T> q, k, dq;                  // one rotated head of a step
    std::vector<T> scores, factors, d_probs;  // one row
    std::size_t scratch_bytes() const { return 0; }
  };
  static Prepared prepare(const Op& op, ReferenceContext<T>&, std::size_t,
                          [[maybe_unused]] auto... only) {
    const auto size = static_cast<std::size_t>(op.key_dim),
               keys = static_cast<std::size_t>(op.keys);
    const auto steps = static_cast<std::size_t>(std::max(op.queries, op.keys));
    const std::vector<T> head(size), row(keys, T(1));
    return {{op.rules.rotary, steps, size}, head, head, head, row, row, row};
  }

  static void forward(const Op& op, const Operands& io, Prepared& p) {
    for_rows(op, io, [&](const Row& row) {
      const T log_sum = scores(op, io, p, row);
      io.log_sums[row.number] = log_sum;
      draw(op, io, p, row);
      T* const o = io.o + row.o;  // (value_dim)
      std::fill_n(o, op.value_dim, T(0));
      for (std::size_t j = row.first; j < row.last; ++j) {
        const T weight = std::exp(p.scores[j] - log_sum) * p.factors[j];
        const T* const v = io.v + row.v(op, j);  // (value_dim)
        if (allows(io, row, op, j))
          for (int e = 0; e < op.value_dim; ++e) o[e] += weight * v[e];
      }
    });
  }

  /// With the probabilities p and the factors f of dropout: dv_j = sum of p f do, dp = f do . v,
  /// d_score = p (dp - sum of p dp), and dq = sum of d_score k, dk = sum of d_score q, times the
  /// scale.
  static void backward(const Op& op, const Operands& io, Prepared& p) {
    std::fill_n(io.dq, io.step.count * op.q_size(), T(0));
    std::fill_n(io.dk, io.step.count * op.k_size(), T(0));
    std::fill_n(io.dv, io.step.count * op.v_size(), T(0));
    const T scale = scale_of(op);
    for_rows(op, io, [&](const Row& row) {
      scores(op, io, p, row);
      draw(op, io, p, row);
      const T log_sum = io.log_sums[row.number];
      const T* const d_o = io.d_o + row.o;  // (value_dim)
      T sum = 0;
      for (std::size_t j = row.first; j < row.last; ++j) {
        if (!allows(io, row, op, j)) continue;
        const T* const v = io.v + row.v(op, j);  // (value_dim)
        T* const dv = io.dv + row.v(op, j);      // (value_dim)
        const T probability = std::exp(p.scores[j] - log_sum);
        T product = 0;
        for (int e = 0; e < op.value_dim; ++e) {
          dv[e] += probability * p.factors[j] * d_o[e];
          product += d_o[e] * v[e];
        }
        p.d_probs[j] = product * p.factors[j];
        sum += probability * p.d_probs[j];
      }
      turned(op, p, io.q + row.q, row.query, p.q);
      std::fill(p.dq.begin(), p.dq.end(), T(0));
      for (std::size_t j = row.first; j < row.last; ++j) {
        if (!allows(io, row, op, j)) continue;
        const T d_score = std::exp(p.scores[j] - log_sum) * (p.d_probs[j] - sum) * scale;
        turned(op, p, io.k + row.k(op, j), j, p.k);
        for (std::size_t e = 0; e < p.k.size(); ++e) {
          p.dq[e] += d_score * p.k[e];
          p.k[e] = d_score * p.q[e];
        }
        p.rotation.turn_back(p.k.data(), j);
        T* const dk = io.dk + row.k(op, j);  // (key_dim)
        for (std::size_t e = 0; e < p.k.size(); ++e) dk[e] += p.k[e];
      }
      p.rotation.turn_back(p.dq.data(), row.query);
      std::copy(p.dq.begin(), p.dq.end(), io.dq + row.q);
    });
  }

 private:
  /// A query of a head: where its operands are.
  struct Row {
    std::size_t example, head, query, number;
    std::size_t q, o;         // offsets
    std::size_t first, last;  // keys

    std::size_t k(const Op& op, std::size_t j) const { return kv(op, j, op.key_dim); }
    std::size_t v(const Op& op, std::size_t j) const { return kv(op, j, op.value_dim); }

   private:
    std::size_t kv(const Op& op, std::size_t j, int size) const {
      const auto heads = static_cast<std::size_t>(op.kv_heads);
      return ((example * static_cast<std::size_t>(op.keys) + j) * heads +
              head / static_cast<std::size_t>(op.heads_per_key())) *
             static_cast<std::size_t>(size);
    }
  };

  static T scale_of(const Op& op) { return T(1) / std::sqrt(static_cast<T>(op.key_dim)); }

  template <class Each>
  static void for_rows(const Op& op, const Operands& io, const Each& each) {
    const auto queries = static_cast<std::size_t>(op.queries),
               heads = static_cast<std::size_t>(op.heads);
    for (std::size_t n = 0; n < io.step.count; ++n)
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t i = 0; i < queries; ++i) {
          const bool masked = io.query_mask != nullptr && io.query_mask[n * queries + i] == T(0);
          const Op::Keys keys = masked ? Op::Keys{0, 0} : op.keys_of(static_cast<int>(i));
          const std::size_t place = (n * queries + i) * heads + h;
          each(Row{n, h, i, (n * heads + h) * queries + i,
                   place * static_cast<std::size_t>(op.key_dim),
                   place * static_cast<std::size_t>(op.value_dim),
                   static_cast<std::size_t>(keys.first), static_cast<std::size_t>(keys.last)});
        }
  }

  static bool allows(const Operands& io, const Row& row, const Op& op, std::size_t j) {
    const auto keys = static_cast<std::size_t>(op.keys),
               queries = static_cast<std::size_t>(op.queries);
    return (io.mask == nullptr || io.mask[row.example * keys + j] != T(0)) &&
           (!op.masks_pairs ||
            io.pair_mask[(row.example * queries + row.query) * keys + j] != T(0));
  }
  static void draw(const Op& op, const Operands& io, Prepared& p, const Row& row) {
    const detail::AttentionDraws draws(op, io.step, io.key, row.example);
    if (draws)
      draws.factors(row.head * static_cast<std::size_t>(op.queries) + row.query, row.first,
                    row.last - row.first, p.factors.data() + row.first);
    else
      std::fill(p.factors.begin(), p.factors.end(), T(1));
  }
  static void turned(const Op& op, Prepared& p, const T* head, std::size_t step,
                     std::vector<T>& to) {
    std::copy_n(head, op.key_dim, to.data());
    p.rotation.turn(to.data(), step);
  }

  /// Writes the row's scores and returns log(sum of exp(score)), infinite for a row without keys.
  static T scores(const Op& op, const Operands& io, Prepared& p, const Row& row) {
    turned(op, p, io.q + row.q, row.query, p.q);
    for (T& q : p.q) q *= scale_of(op);
    T most = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::size_t j = row.first; j < row.last; ++j) {
      turned(op, p, io.k + row.k(op, j), j, p.k);
      T score = 0;
      for (std::size_t e = 0; e < p.q.size(); ++e) score += p.q[e] * p.k[e];
      p.scores[j] = score;
      if (allows(io, row, op, j)) most = std::max(most, score);
    }
    bool any = false;
    for (std::size_t j = row.first; j < row.last; ++j)
      if (allows(io, row, op, j)) {
        any = true;
        sum += std::exp(p.scores[j] - most);
      }
    return any ? most + std::log(sum) : std::numeric_limits<T>::infinity();
  }
};

static_assert(HasKernel<DotProductAttentionOp, Reference<double>>);

}  // namespace lockstep
