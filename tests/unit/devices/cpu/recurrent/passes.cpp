/// \file
/// Recurrent layers on the Cpu compared with Reference<double>.
#include "lockstep/devices/cpu/recurrent/passes.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/layers/recurrent/lstm.hpp"
#include "lockstep/layers/recurrent/simple_rnn.hpp"
#include "unit/devices/cpu/compare.hpp"

namespace ls = lockstep;

namespace {

namespace rnn {

/// `shapes` random ops of one kind with random options, dropout and masks among them.
template <class O>
void agrees(int shapes) {
  ls::Philox g(ls::hash_name(ls::detail::class_name<O>()));
  const auto is = [&] { return testing::between(g, 0, 1) == 1; };
  for (int i = 0; i < shapes; ++i) {
    const int steps = testing::one_of(g, 1, 2, 5, 9), features = testing::between(g, 1, 40);
    const float dropped = is() ? 0.25f : 0.0f, of_state = testing::between(g, 0, 2) ? 0.0f : 0.5f;
    O op{{ls::shape(steps, features), testing::between(g, 1, 40), is(), is(), is(), dropped,
          of_state, is(), is(), is() ? 1 : -1}};
    if (is()) op.layer.results = 1 + O::states;
    if (is()) op.layer.operands = 1 + O::states;
    const auto count = static_cast<std::size_t>(testing::one_of(g, 1, 3, 7, 70));
    INFO("steps " << steps << ", features " << features << ", units " << op.layer.units);
    auto n = testing::numbers(op, op.layer.in.size(), op.weights(), count);
    for (float& w : n.w) w /= 4;  // otherwise the largest gradients grow with each step
    const auto add = [&](const std::vector<float>& operand) {
      if (n.x2.empty())
        n.x2 = operand;
      else
        n.more.push_back(operand);
    };
    for (int k = 1; k < op.layer.operands; ++k)
      add(testing::as<float>(testing::normal_values(count * op.layer.width(), g())));
    if (op.layer.masked) {
      std::vector<float> mask(count * op.layer.steps());
      for (float& m : mask) m = is() ? 1.0f : 0.0f;
      add(mask);
    }
    const bool want_dx = is();
    const auto expected = testing::run<ls::Reference<double>>(op, count, n, {}, want_dx);
    for (const int threads : {1, 2}) {
      const auto found = testing::run(op, count, n, ls::Cpu{.threads = threads}, want_dx);
      CHECK(testing::relative_error(found.y, expected.y) < testing::tolerance);
      CHECK(testing::relative_error(found.dx, expected.dx) < testing::tolerance);
      CHECK(testing::relative_error(found.dw, expected.dw) < testing::tolerance);
      if (op.layer.operands > 1)
        CHECK(testing::relative_error(found.dx2, expected.dx2) < testing::tolerance);
      if (op.layer.operands > 2)
        CHECK(testing::relative_error(found.more_dx[0], expected.more_dx[0]) < testing::tolerance);
    }
  }
}

template <class D>
auto run_part(const ls::LSTMOp<>& op, const testing::Numbers& n, std::size_t count,
              const D& device) {
  testing::Numbers part = n;
  part.x.resize(count * op.layer.in.size());
  part.dy.resize(count * op.out().size());
  return testing::run(op, count, part, device);
}

}  // namespace rnn
}  // namespace

TEST_CASE("recurrent layers of 50 shapes on the Cpu agree with the reference") {
  rnn::agrees<ls::LSTMOp<>>(15);
  rnn::agrees<ls::GRUOp<>>(15);
  rnn::agrees<ls::GRUOp<false>>(12);
  rnn::agrees<ls::SimpleRNNOp<ls::ReLU6Op>>(8);  // by the op's own functions
}

TEST_CASE("a recurrent layer has the same bits with one thread and two, and in parts of a batch") {
  const ls::LSTMOp<> op{{ls::shape(6, 21), 19, true, true, false, 0.25f, 0.5f}};
  constexpr std::size_t count = 70;
  const auto n = testing::numbers(op, op.layer.in.size(), op.weights(), count);
  const auto one = rnn::run_part(op, n, count, ls::Cpu{.threads = 1});
  const auto two = rnn::run_part(op, n, count, ls::Cpu{.threads = 2});
  CHECK((one.y == two.y && one.dx == two.dx && one.dw == two.dw));
  auto part = rnn::run_part(op, n, 3, ls::Cpu{.threads = 1});
  CHECK(std::equal(part.y.begin(), part.y.end(), one.y.begin()));
  CHECK(std::equal(part.dx.begin(), part.dx.end(), one.dx.begin()));
}

TEST_CASE("recurrent layers on CpuBFloat16 agree with the reference") {
  for (const bool sequences : {false, true}) {
    const ls::GRUOp<false> op{{ls::shape(5, 18), 33, true, sequences, true, 0.25f}};
    auto n = testing::numbers(op, op.layer.in.size(), op.weights(), 4);
    for (float& w : n.w) w /= 4;
    testing::check_in_bfloat16(op, 4, n);
  }
}
