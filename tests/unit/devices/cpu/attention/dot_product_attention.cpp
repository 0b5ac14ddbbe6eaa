/// \file
/// Attention on the Cpu.
#include "lockstep/devices/cpu/attention/dot_product_attention.hpp"

#include "lockstep/layers/attention/grouped_query_attention.hpp"
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "unit/devices/attention.hpp"
#include "unit/devices/cpu/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Inputs of an attention layer whose scores are of size 1.
template <class O>
Numbers attention_inputs(const O& op, std::size_t count) {
  Numbers n = numbers(op, op.in.size(), op.weights(), count);
  for (float& w : n.w) w /= std::sqrt(static_cast<float>(op.in[1]));
  return n;
}

}  // namespace

TEST_CASE(
    "attention of generated shapes has the result and the gradients of its formula on the CPU") {
  attention::check_generated(Cpu{.threads = 2}, 50, 130, 1e-5);
}
TEST_CASE("attention in bfloat16 has the result and the gradients of its formula on the CPU") {
  need_bfloat16();
  Philox g(42);
  for (int i = 0; i < 10; ++i) {
    attention::Call c = attention::generated(g, 130);
    for (std::vector<double>* const each : {&c.q, &c.k, &c.v, &c.d_o})
      *each = as<double>(as<bfloat16>(*each));
    attention::check(CpuBFloat16{.threads = 2}, c, 1.2e-2);
  }
}
TEST_CASE("dropout of attention does nothing in evaluation on the CPU") {
  attention::check_evaluation(Cpu{.threads = 1});
}

TEST_CASE("scores of -infinity give NaN on the CPU, no key gives 0") {
  attention::check_infinite_scores(Cpu{.threads = 1});
}

TEST_CASE("attention gives each example the same bits in any slice and on any number of threads") {
  attention::Call all = attention::call_of({70, 70, 4, 2, 24, 24, {0.2f, true}}, 5);
  const attention::Result whole = attention::run(Cpu{.threads = 2}, all);
  const attention::Result one = attention::run(Cpu{.threads = 1}, all);
  CHECK((whole.o == one.o && whole.dq == one.dq && whole.dk == one.dk && whole.dv == one.dv));
  attention::Call part = all;
  part.first_ordinal += 2;
  part.count = 3;
  for (std::vector<double>* const each : {&part.q, &part.k, &part.v, &part.d_o})
    each->erase(each->begin(), each->begin() + static_cast<std::ptrdiff_t>(each->size() / 5 * 2));
  const attention::Result slice = attention::run(Cpu{.threads = 1}, part);
  const auto ends_with = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::equal(b.begin(), b.end(), a.end() - static_cast<std::ptrdiff_t>(b.size()));
  };
  CHECK(ends_with(whole.o, slice.o));
  CHECK(ends_with(whole.dq, slice.dq));
  CHECK(ends_with(whole.dk, slice.dk));
  CHECK(ends_with(whole.dv, slice.dv));
}

TEST_CASE("attention layers agree with the reference") {
  const auto many =
      MultiHeadAttention<3, 5, value_dim(4), output_shape(7), causal>::op(shape(9, 6));
  const auto grouped = GroupedQueryAttention<4, 2, 8, no_bias, rotary()>::op(shape(17, 8));
  for (const std::size_t count : {0u, 1u, 3u})
    for (const bool want_dx : {true, false}) {
      check_against_reference(many, count, attention_inputs(many, count), want_dx);
      check_against_reference(grouped, count, attention_inputs(grouped, count), want_dx);
    }
}

TEST_CASE("attention of a value to another one agrees with the reference") {
  const auto op = MultiHeadAttention<2, 3, causal>::op(shape(5, 6), shape(8, 4));
  Numbers n = attention_inputs(op, 3);
  n.x2 = numbers(op, 8 * 4, 0, 3).x;
  check_against_reference(op, 3, n);
}

TEST_CASE("attention with a mask of pairs agrees with the reference") {
  const auto op = GroupedQueryAttention<4, 2, 3, attention_mask, causal>::op(
      shape(5, 6), shape(8, 6), shape(5, 8));
  Numbers n = attention_inputs(op, 3);
  n.x2 = numbers(op, 8 * 6, 0, 3).x;
  n.more = {numbers(op, 5 * 8, 0, 3).x};
  for (float& allowed : n.more[0]) allowed = allowed > 0 ? 1.0f : 0.0f;
  check_against_reference(op, 3, n);
}

TEST_CASE("the memory of attention is linear in the steps") {
  const auto check = []<class Layer>(Layer, auto... mask) {
    const auto bytes = [&](int steps) {
      auto context = Cpu{.threads = 1}.open(1, 0);
      const auto scope = context.scope();
      const auto op = Layer::op(shape(steps, 64), mask(steps)...);
      using K = Kernel<MultiHeadAttentionOp, Cpu>;
      return K::saved(op) + K::prepare(op, context, 1).scratch_bytes();
    };
    CHECK(bytes(4096) - bytes(2048) == 2 * (bytes(2048) - bytes(1024)));
  };
  check(MultiHeadAttention<4, 16>{});
  check(MultiHeadAttention<4, 16, attention_mask>{}, [](int steps) { return shape(steps, steps); });
}
