/// \file
/// Scaled dot-product attention on any device, compared with its formula in double.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "lockstep/core/rng.hpp"
#include "lockstep/layers/attention/dot_product_attention.hpp"
#include "support/kernel_numbers.hpp"

namespace testing::attention {

using Numbers = std::vector<double>;

/// One call: the op and its operands. An empty mask is none.
struct Call {
  lockstep::DotProductAttentionOp op;
  std::size_t count = 1;
  Numbers q, k, v, mask, query_mask, d_o, pair_mask{};
  bool training = true;
  std::uint64_t seed = 3, pass = 5, key = 7, first_ordinal = 11;
};
struct Result {
  Numbers o, dq, dk, dv;
};

inline Numbers rounded_normal(std::size_t n, std::uint64_t key) {
  return as<double>(as<float>(normal_values(n, key)));
}
inline Call call_of(const lockstep::DotProductAttentionOp& op, std::size_t count) {
  return {op,
          count,
          rounded_normal(count * op.q_size(), 1),
          rounded_normal(count * op.k_size(), 2),
          rounded_normal(count * op.v_size(), 3),
          {},
          {},
          rounded_normal(count * op.o_size(), 4)};
}
/// A random call: lengths around blocks and vectors, several heads, masks, dropout, rotation.
inline Call generated(lockstep::Philox& g, int longest) {
  lockstep::DotProductAttentionOp op;
  const auto steps = [&] {
    return std::min(longest, one_of(g, 1, 2, 3, 7, 16, 17, 33, 63, 64, 65, 130));
  };
  op.queries = steps();
  op.keys = one_of(g, 0, 1) == 0 ? op.queries : steps();
  op.kv_heads = between(g, 1, 2);
  op.heads = op.kv_heads * between(g, 1, 3);
  op.key_dim = one_of(g, 1, 2, 3, 8, 15, 16, 34);
  op.value_dim = one_of(g, 1, 4, 16, 17, 40);
  op.rules.causal = one_of(g, 0, 1) == 1;
  op.rules.window = one_of(g, 0, 0, 1, 5, 70);
  if (one_of(g, 0, 0, 1) == 1) op.rules.dropout = 0.3f;
  if (op.key_dim % 2 == 0 && one_of(g, 0, 1) == 1)
    op.rules.rotary =
        one_of(g, 0, 1) == 0 ? lockstep::rotary(100) : lockstep::rotary_pairs(10'000, 4);
  const auto count = static_cast<std::size_t>(between(g, 0, 3));
  Call call = call_of(op, count);
  if (one_of(g, 0, 1) == 1) {
    call.mask.resize(count * static_cast<std::size_t>(op.keys));
    for (double& m : call.mask) m = one_of(g, 0, 1);
    if (count > 0) std::fill_n(call.mask.begin(), op.keys, 0.0);  // the first example: no key
  }
  lockstep::Philox apart = g;  // so that masks of queries change no shapes
  if (one_of(apart, 0, 0, 1) == 1) {
    call.query_mask.resize(count * static_cast<std::size_t>(op.queries));
    for (double& m : call.query_mask) m = one_of(apart, 0, 1);
  }
  if (one_of(apart, 0, 1) == 1) {
    call.op.masks_pairs = true;
    call.pair_mask.resize(count * static_cast<std::size_t>(op.queries) *
                          static_cast<std::size_t>(op.keys));
    for (double& m : call.pair_mask) m = one_of(apart, 0, 0, 1, 2);
  }
  return call;
}

/// The pairs of a head turned by the angles of a step, or back.
inline Numbers turned(const lockstep::DotProductAttentionOp& op, const double* head, int step,
                      double direction = 1) {
  const int size = op.key_dim;
  Numbers result(head, head + size);
  const lockstep::Rotary& rule = op.rules.rotary;
  if (rule.max_wavelength == 0) return result;
  for (int i = 0; i < size / 2; ++i) {
    const auto a = static_cast<std::size_t>(rule.pairs ? 2 * i : i),
               b = static_cast<std::size_t>(rule.pairs ? 2 * i + 1 : i + size / 2);
    const double frequency = 1 / std::pow(double{rule.max_wavelength}, 2.0 * i / size),
                 angle = direction * step / double{rule.scaling_factor} * frequency;
    result[a] = head[a] * std::cos(angle) - head[b] * std::sin(angle);
    result[b] = head[b] * std::cos(angle) + head[a] * std::sin(angle);
  }
  return result;
}

/// Whether query i of example n attends to key j.
inline bool attends(const Call& c, std::size_t n, int i, int j) {
  if (c.op.rules.causal && j > i) return false;
  if (c.op.rules.window > 0 && std::abs(i - j) >= c.op.rules.window) return false;
  if (!c.query_mask.empty() &&
      c.query_mask[n * static_cast<std::size_t>(c.op.queries) + static_cast<std::size_t>(i)] == 0)
    return false;
  if (c.op.masks_pairs &&
      c.pair_mask[(n * static_cast<std::size_t>(c.op.queries) + static_cast<std::size_t>(i)) *
                      static_cast<std::size_t>(c.op.keys) +
                  static_cast<std::size_t>(j)] == 0)
    return false;
  return c.mask.empty() ||
         c.mask[n * static_cast<std::size_t>(c.op.keys) + static_cast<std::size_t>(j)] != 0;
}

/// 0 or 1 / (1 - rate): see DotProductAttentionOp.
inline double factor(const Call& c, std::size_t n, int row, int j) {
  const double rate = c.training ? static_cast<double>(c.op.rules.dropout) : 0;
  const std::uint64_t key = lockstep::mix(lockstep::mix(c.seed, c.key), c.pass);
  const auto words = lockstep::philox4x32(
      {static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(row),
       static_cast<std::uint32_t>(c.first_ordinal + n), 0},
      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  return words[static_cast<std::size_t>(j % 4)] / 0x1p32 < rate ? 0 : 1 / (1 - rate);
}

inline double dot(const Numbers& a, const Numbers& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
inline void add(double* to, const Numbers& x, double times) {
  for (const double v : x) *to++ += times * v;
}

/// All probabilities of a row at once, and the gradients by the formulas of softmax.
inline Result formula(const Call& c) {
  const lockstep::DotProductAttentionOp& op = c.op;
  Result r{Numbers(c.d_o.size()), Numbers(c.q.size()), Numbers(c.k.size()), Numbers(c.v.size())};
  const double scale = 1 / std::sqrt(op.key_dim);
  for (std::size_t n = 0; n < c.count; ++n)
    for (int h = 0; h < op.heads; ++h)
      for (int i = 0; i < op.queries; ++i) {
        const int g = h * op.kv_heads / op.heads;
        const auto place = [&](int steps, int step, int heads, int head, int size) {
          return static_cast<std::ptrdiff_t>(n) * steps * heads * size +
                 (static_cast<std::ptrdiff_t>(step) * heads + head) * size;
        };
        const std::ptrdiff_t at_q = place(op.queries, i, op.heads, h, op.key_dim),
                             at_o = place(op.queries, i, op.heads, h, op.value_dim);
        const Numbers q = turned(op, c.q.data() + at_q, i),
                      d_o(c.d_o.data() + at_o, c.d_o.data() + at_o + op.value_dim);
        struct Key {
          int j;
          Numbers k, v;
          double p, f;
        };
        std::vector<Key> keys;
        double most = -1e300, sum = 0, along = 0;
        for (int j = 0; j < op.keys; ++j) {
          if (!attends(c, n, i, j)) continue;
          const double* const v = c.v.data() + place(op.keys, j, op.kv_heads, g, op.value_dim);
          Key key{j,
                  turned(op, c.k.data() + place(op.keys, j, op.kv_heads, g, op.key_dim), j),
                  {v, v + op.value_dim},
                  0,
                  factor(c, n, h * op.queries + i, j)};
          key.p = dot(q, key.k) * scale;
          most = std::max(most, key.p);
          keys.push_back(key);
        }
        for (Key& key : keys) sum += key.p = std::exp(key.p - most);
        for (Key& key : keys) {
          key.p /= sum;
          add(r.o.data() + at_o, key.v, key.p * key.f);
          add(r.dv.data() + place(op.keys, key.j, op.kv_heads, g, op.value_dim), d_o,
              key.p * key.f);
          along += key.p * key.f * dot(d_o, key.v);
        }
        Numbers dq(q.size());
        for (const Key& key : keys) {
          const double d_score = scale * key.p * (key.f * dot(d_o, key.v) - along);
          add(dq.data(), key.k, d_score);
          add(r.dk.data() + place(op.keys, key.j, op.kv_heads, g, op.key_dim),
              turned(op, q.data(), key.j, -1), d_score);
        }
        add(r.dq.data() + at_q, turned(op, dq.data(), i, -1), 1);
      }
  return r;
}

/// Runs the kernel of the device. In backward everything that forward alone reads is poisoned.
template <class D>
Result run(const D& device, const Call& c) {
  using T = typename D::real;
  using A = lockstep::ActivationOf<D>;
  using K = lockstep::Kernel<lockstep::DotProductAttentionOp, D>;
  auto context = device.open(1, 0);
  [[maybe_unused]] const auto scope = context.scope();
  DeviceArray<D, A> q(context, as<A>(c.q)), k(context, as<A>(c.k)), v(context, as<A>(c.v)),
      mask(context, as<A>(c.mask)), query_mask(context, as<A>(c.query_mask)),
      pair_mask(context, as<A>(c.pair_mask)), d_o(context, as<A>(c.d_o)), o(context, c.d_o.size()),
      dq(context, c.q.size()), dk(context, c.k.size()), dv(context, c.v.size());
  DeviceArray<D, T> log_sums(context, c.count * c.op.rows());
  auto prepared = K::prepare(c.op, context, c.count);
  GroupOfOne group;
  const lockstep::StepContext step{lockstep::whole_batch(c.count, c.pass, c.first_ordinal),
                                   c.training, c.seed, 0, lockstep::CollectiveRef(group)};
  lockstep::AttentionIo<D> io{step,
                              context,
                              c.key,
                              q.data(),
                              k.data(),
                              v.data(),
                              c.mask.empty() ? nullptr : mask.data(),
                              c.query_mask.empty() ? nullptr : query_mask.data(),
                              c.op.masks_pairs ? pair_mask.data() : nullptr,
                              o.data(),
                              log_sums.data(),
                              nullptr,
                              d_o.data(),
                              dq.data(),
                              dk.data(),
                              dv.data()};
  DeviceArray<D, std::byte> forward(context, prepared.scratch_bytes()),
      backward(context, prepared.scratch_bytes());
  io.scratch = forward.data();
  K::forward(c.op, io, prepared);
  io.scratch = backward.data();
  K::backward(c.op, io, prepared);
  context.synchronize();
  return {as<double>(o.download()), as<double>(dq.download()), as<double>(dk.download()),
          as<double>(dv.download())};
}

/// Error relative to the norm of the gradient or, if that is smaller, of `least` per element.
inline double error(const Numbers& a, const Numbers& b, double least) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  size = std::max(std::sqrt(size), least * std::sqrt(static_cast<double>(b.size())));
  return b.empty() ? 0 : std::sqrt(difference) / size;
}

/// Compares a call on the device with the formula.
template <class D>
void check(const D& device, const Call& c, double allowed) {
  INFO("examples " << c.count << ", queries " << c.op.queries << ", keys " << c.op.keys
                   << ", heads " << c.op.heads << " of " << c.op.kv_heads << ", sizes "
                   << c.op.key_dim << " and " << c.op.value_dim << ", causal " << c.op.rules.causal
                   << ", window " << c.op.rules.window << ", dropout " << c.op.rules.dropout
                   << ", masked " << !c.mask.empty() << ", queries masked " << !c.query_mask.empty()
                   << ", pairs masked " << c.op.masks_pairs << ", wavelength "
                   << c.op.rules.rotary.max_wavelength);
  const Result expected = formula(c), result = run(device, c);
  CHECK(error(result.o, expected.o, 0.1) < allowed);
  CHECK(error(result.dq, expected.dq, 0.1) < allowed);
  CHECK(error(result.dk, expected.dk, 0.1) < allowed);
  CHECK(error(result.dv, expected.dv, 0.1) < allowed);
  if (c.mask.empty()) return;
  const auto none = static_cast<std::ptrdiff_t>(std::min<std::size_t>(c.count, 1) * c.op.o_size());
  CHECK(std::all_of(result.o.begin(), result.o.begin() + none, [](double v) { return v == 0; }));
}

/// Attention of generated shapes agrees with the formula.
template <class D>
void check_generated(const D& device, int shapes, int longest, double allowed) {
  lockstep::Philox g(41);
  for (int i = 0; i < shapes; ++i) check(device, generated(g, longest), allowed);
}

/// A query whose scores are all -infinity has NaN as result, as in Keras; one without any key has 0.
template <class D>
void check_infinite_scores(const D& device) {
  Call c = call_of({3, 3, 1, 1, 1, 2}, 1);
  c.op.masks_pairs = true;
  c.q = {-1, -1, -1};
  c.k = {INFINITY, INFINITY, 1};
  c.v = {1, 2, 3, 4, 5, 6};
  c.pair_mask = {1, 1, 0, 0, 0, 0, 1, 1, 1};
  const Numbers o = run(device, c).o;
  CHECK((std::isnan(o[0]) && std::isnan(o[1])));
  CHECK(Numbers(o.begin() + 2, o.end()) == Numbers{0, 0, 5, 6});
}

/// Dropout does nothing in evaluation, also with a causal mask.
template <class D>
void check_evaluation(const D& device) {
  Call c = call_of({9, 9, 2, 2, 4, 4, {.causal = true}}, 2);
  const Result without = run(device, c);
  c.op.rules.dropout = 0.5f;
  CHECK(run(device, c).o != without.o);
  c.training = false;
  CHECK(run(device, c).o == without.o);
}

}  // namespace testing::attention
