/// \file
/// Options of recurrent layers that Keras' numbers (golden/recurrent.hpp) do not cover.
#include "lockstep/layers/recurrent/recurrent_options.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace {

namespace ls = lockstep;
using Double = ls::Reference<double>;

constexpr std::size_t rnn_features = 3, rnn_units = 4;

/// The values of a parameter at the start.
template <class L>
std::vector<double> initial(std::size_t parameter) {
  const auto all = L::parameters(ls::shape(2, rnn_features));
  std::vector<double> values(all.at(parameter).shape.size(), 7);
  ls::Philox g(1);
  all[parameter].initializer(g, all[parameter].shape, all[parameter].fans, values);
  return values;
}

/// Whether a layer with dropout computes what the one without does with each row of its kernels
/// multiplied by the mask, drawn by Dropout's rule from (seed, pass, layer, example).
template <class L, class Plain>
bool drops_rows() {
  const ls::Shape in = ls::shape(5, rnn_features);
  const auto op = L::op(in);
  const auto plain = Plain::op(in);
  constexpr std::size_t count = 2, gates = std::size_t{decltype(op)::gates};
  const auto x = testing::normal_values(count * in.size(), 1),
             w = testing::normal_values(op.weights(), 2);
  testing::RunOptions<double> options;
  options.training = true;
  options.seed = 5, options.pass = 2, options.key = 9, options.first_ordinal = 40;
  const std::vector<double> dy(count * op.out().size());
  const auto y = testing::run_layer<Double>(op, count, x, w, dy, options).y;
  bool same = true;
  const std::size_t size = op.out().size();
  for (std::size_t n = 0; n < count; ++n) {
    ls::Philox words(ls::mix(ls::mix(5, 9), 2), 40 + n);
    const auto factor = [&](float rate) {
      return words() < static_cast<double>(rate) * 0x1p32 ? 0.0
                                                          : 1 / (1 - static_cast<double>(rate));
    };
    auto dropped = w;
    const auto drop = [&](std::size_t first, std::size_t rows, float rate) {
      const bool by_gate = op.layer.recurrent_dropout > 0;
      for (std::size_t g = 0; g < (by_gate ? gates : 1); ++g)
        for (std::size_t i = 0; i < rows; ++i) {
          const double f = factor(rate);
          const std::size_t width = by_gate ? rnn_units : gates * rnn_units;
          for (std::size_t j = 0; j < width; ++j)
            dropped[((first + i) * gates + g) * rnn_units + j] *= f;
        }
    };
    drop(0, rnn_features, op.layer.dropout);
    if (op.layer.recurrent_dropout > 0) drop(rnn_features, rnn_units, op.layer.recurrent_dropout);
    const std::vector<double> example(x.begin() + static_cast<std::ptrdiff_t>(n * in.size()),
                                      x.begin() + static_cast<std::ptrdiff_t>((n + 1) * in.size()));
    const auto expected =
        testing::run_layer<Double>(plain, 1, example, dropped, {}, {.training = false}).y;
    const std::vector<double> mine(y.begin() + static_cast<std::ptrdiff_t>(n * size),
                                   y.begin() + static_cast<std::ptrdiff_t>((n + 1) * size));
    same = same && testing::relative_error(mine, expected) < 1e-12;
  }
  const auto whole = testing::run_layer<Double>(op, count, x, w, {}, {.training = false}).y;
  return same && whole == testing::run_layer<Double>(plain, count, x, w, {}, {.training = false}).y;
}

}  // namespace

TEST_CASE("recurrent layers have Keras' parameters and initial values") {
  using Ordinary = ls::LSTM<4>;
  const std::vector<double> forget{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  CHECK(initial<Ordinary>(2) == forget);
  CHECK(initial<ls::LSTM<4, ls::unit_forget_bias(false)>>(2) == std::vector<double>(16, 0));
  CHECK(initial<ls::LSTM<4, ls::unit_forget_bias(false), ls::bias_initializer(ls::ones)>>(2) ==
        std::vector<double>(16, 1));
  CHECK(initial<ls::GRU<4, ls::recurrent_initializer(ls::ones)>>(1) == std::vector<double>(48, 1));
  const auto rows = initial<Ordinary>(1);  // (4, 16), orthonormal
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < 4; ++b) {
      double dot = 0;
      for (std::size_t j = 0; j < 16; ++j) dot += rows[a * 16 + j] * rows[b * 16 + j];
      CHECK(std::abs(dot - (a == b ? 1 : 0)) < 1e-12);
    }
  constexpr auto of =
      ls::GRU<4, ls::recurrent_regularizer(ls::L2{0.5})>::parameters(ls::shape(2, 3));
  CHECK(of[0].name == "kernel");
  CHECK(of[0].shape == ls::shape(3, 12));
  CHECK(of[1].name == "recurrent_kernel");
  CHECK(of[1].shape == ls::shape(4, 12));
  CHECK(of[1].penalty.l2 == 0.5);
  CHECK(of[2].shape == ls::shape(2, 12));
}

TEST_CASE("dropout of recurrent layers keeps one mask for all steps, or one for each gate") {
  CHECK(drops_rows<ls::LSTM<4, ls::dropout(0.5)>, ls::LSTM<4>>());
  CHECK(drops_rows<ls::LSTM<4, ls::dropout(0.25), ls::recurrent_dropout(0.5)>, ls::LSTM<4>>());
  CHECK(drops_rows<ls::GRU<4, ls::recurrent_dropout(0.5), ls::return_sequences>,
                   ls::GRU<4, ls::return_sequences>>());
  CHECK(drops_rows<ls::GRU<4, ls::reset_after(false), ls::recurrent_dropout(0.5)>,
                   ls::GRU<4, ls::reset_after(false)>>());
}

TEST_CASE("the activations of recurrent layers have the options of their layers") {
  constexpr ls::Shape in = ls::shape(5, 3);
  constexpr auto lstm =
      ls::LSTM<4, ls::leaky_relu, ls::recurrent_activation(ls::activation<ls::LeakyReLU<0.1>>)>::op(
          in);
  STATIC_CHECK(lstm.activation.slope == 0.2f);
  STATIC_CHECK(lstm.recurrent_activation.slope == 0.1f);
  constexpr auto gru = ls::GRU<4, ls::recurrent_activation(ls::leaky_relu)>::op(in, ls::shape(5));
  STATIC_CHECK(gru.recurrent_activation.slope == 0.2f);
  STATIC_CHECK(ls::SimpleRNN<4, ls::leaky_relu>::op(in).activation.slope == 0.2f);
}

TEST_CASE("a recurrent layer in a model's architecture has Keras' arguments") {
  struct Net : ls::Sequential<ls::Input<5, 3>, ls::GRU<4, ls::relu, ls::dropout(0.5), ls::no_bias,
                                                       ls::go_backwards, ls::reset_after(false)>> {
  };
  const ls::LayerNode layer = ls::architecture<Net>().layers.at(0);
  CHECK(layer.class_name == "GRU");
  CHECK(layer.name == "gru");
  const auto is = [&](const char* name, const auto& value) {
    const auto* option = layer.option(name);
    return option != nullptr && *option == ls::LayerOption::Value(value);
  };
  CHECK(is("units", std::int64_t{4}));
  CHECK(is("activation", std::string("relu")));
  CHECK(is("recurrent_activation", std::string("sigmoid")));
  CHECK(is("go_backwards", true));
  CHECK(is("use_bias", false));
  CHECK(is("return_sequences", false));
  CHECK(is("reset_after", false));
  CHECK(is("dropout", 0.5));
  CHECK(is("recurrent_dropout", 0.0));
}
