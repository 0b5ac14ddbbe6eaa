/// \file
/// Recurrent layers on a GPU compared with Reference<double>.
#include "lockstep/devices/cuda/ops/recurrent/passes.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/devices/cuda/compare.hpp"

namespace ls = lockstep;

namespace {

namespace rnn {

template <class O>
testing::Numbers numbers_of(const O& op, std::size_t count, ls::Philox& g) {
  auto n = testing::numbers(op, op.layer.in.size(), op.weights(), count);
  for (float& w : n.w) w /= 4;  // otherwise the largest gradients grow with each step
  if (op.layer.masked)
    for (std::size_t k = 0; k < count * op.layer.steps(); ++k)
      n.x2.push_back(testing::between(g, 0, 1) == 1 ? 1.0f : 0.0f);
  return n;
}

/// `shapes` random ops of one kind with random options, dropout and masks among them.
template <class O>
void agrees(int shapes) {
  ls::Philox g(ls::hash_name(ls::detail::class_name<O>()));
  const auto is = [&] { return testing::between(g, 0, 1) == 1; };
  for (int i = 0; i < shapes; ++i) {
    const int steps = testing::one_of(g, 1, 2, 5, 9), features = testing::between(g, 1, 40);
    const float dropped = is() ? 0.25f : 0.0f, of_state = i % 3 == 2 ? 0.5f : 0.0f;
    const O op{{ls::shape(steps, features), testing::between(g, 1, 40), is(), is(), is(), dropped,
                of_state, is(), is(), is() ? 1 : -1}};
    const auto count = static_cast<std::size_t>(testing::one_of(g, 0, 1, 3, 7, 70));
    INFO("steps " << steps << ", features " << features << ", units " << op.layer.units
                  << ", dropout " << dropped << ", of the state " << of_state);
    testing::check_against_reference(op, count, numbers_of(op, count, g));
  }
}

/// One op in both mixed precisions. Sums z are rounded at each step, so errors add up.
template <class O>
void agrees_in_half(const O& op) {
  constexpr double bfloat16_error = 2e-2, float16_error = bfloat16_error / 8;
  ls::Philox g(5);
  const auto n = numbers_of(op, 4, g);
  testing::check_mixed<ls::CudaBFloat16>(op, 4, n, 0, 0, bfloat16_error, bfloat16_error);
  testing::check_mixed<ls::CudaFloat16>(op, 4, n, 0, 0, float16_error, float16_error);
}

}  // namespace rnn
}  // namespace

TEST_CASE("LSTMs of generated shapes agree with the reference on a GPU") {
  rnn::agrees<ls::LSTMOp<>>(4);
}
TEST_CASE("GRUs of generated shapes agree with the reference on a GPU") {
  rnn::agrees<ls::GRUOp<>>(4);
}
TEST_CASE("GRUs that reset before agree with the reference on a GPU") {
  rnn::agrees<ls::GRUOp<false>>(4);
}
TEST_CASE("simple recurrent layers agree with the reference on a GPU") {
  rnn::agrees<ls::SimpleRNNOp<ls::ReLU6Op>>(2);
  rnn::agrees<ls::SimpleRNNOp<ls::SiLUOp>>(2);  // the derivative reads x
}

TEST_CASE("recurrent layers in mixed precision agree with the reference") {
  rnn::agrees_in_half(ls::LSTMOp<>{{ls::shape(5, 18), 33, true, true, true, 0.25f, 0, true, true}});
  rnn::agrees_in_half(ls::GRUOp<>{{ls::shape(5, 16), 24, true, false, false, 0, 0.5f}});
  rnn::agrees_in_half(
      ls::GRUOp<false>{{ls::shape(5, 7), 12, true, true, false, 0, 0, false, true}});
  rnn::agrees_in_half(ls::SimpleRNNOp<>{{ls::shape(5, 7), 12, true}});
}

// cuDNN's recurrent layers write 0 instead.
TEST_CASE("a padded step repeats the state on a GPU") {
  testing::TestGpu gpu;
  const ls::LSTMOp<> op{{ls::shape(3, 2), 4, true, true, false, 0, 0, false, true}};
  ls::Philox g(3);
  auto n = rnn::numbers_of(op, 1, g);
  n.x2 = {1, 0, 0};
  const auto y = testing::run<ls::Cuda>(op, 1, n).y;
  CHECK(std::vector<float>(y.begin(), y.begin() + 4) == std::vector<float>(y.begin() + 8, y.end()));
  CHECK(y[0] != 0);
}

TEST_CASE("activations whose numbers share a name must be equal") {
  using O = ls::LSTMOp<ls::LeakyReLUOp, ls::LeakyReLUOp>;
  O op{{ls::shape(2, 3), 4, true}, {}, {}};
  op.activation.slope = op.recurrent_activation.slope = 0.2f;
  ls::Philox g(4);
  testing::check_against_reference(op, 2, rnn::numbers_of(op, 2, g));
  testing::TestGpu gpu;
  op.activation.slope = 0.1f;
  CHECK_THROWS_AS(testing::run<ls::Cuda>(op, 2, rnn::numbers_of(op, 2, g)), ls::UsageError);
}
