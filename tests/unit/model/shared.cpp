#include "lockstep/model/shared.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/model/frozen.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/statement_graph.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/report/summary.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Oracle = ls::Reference<double>;

template <class Net>
void gradients_are_right(toy::Machine<Net, Oracle>& machine) {
  const auto gradients = machine.gradients();
  CHECK(testing::relative_error(gradients, machine.numeric_gradients()) < 1e-7);
}

// --8<-- [start:pair]
struct Tower : ls::Sequential<ls::Dense<4, ls::tanh>, ls::Dense<3>> {};

struct Pair : ls::Graph<ls::In<"left", 5>, ls::In<"right", 5>,
                        ls::Let<"a", ls::From<"left">, ls::Shared<"tower", Tower>>,
                        ls::Let<"b", ls::From<"right">, ls::Shared<"tower", Tower>>,
                        ls::Let<"h", ls::From<"a", "b">, ls::Concatenate, ls::Dense<3>>,
                        ls::Out<"y", ls::From<"h", "b">, ls::Multiply>> {};
// --8<-- [end:pair]
struct Apart
    : ls::Graph<ls::In<"left", 5>, ls::In<"right", 5>, ls::Let<"a", ls::From<"left">, Tower>,
                ls::Let<"b", ls::From<"right">, Tower>,
                ls::Let<"h", ls::From<"a", "b">, ls::Concatenate, ls::Dense<3>>,
                ls::Out<"y", ls::From<"h", "b">, ls::Multiply>> {};
constexpr std::size_t tower = 5 * 4 + 4 + 4 * 3 + 3;

/// The weights and gradients of Apart whose towers have the weights of Pair's.
template <class T>
std::vector<T> twice(const std::vector<T>& w) {
  std::vector<T> result(w.begin(), w.begin() + tower);
  result.insert(result.end(), w.begin(), w.end());
  return result;
}
template <class T>
std::vector<T> added(const std::vector<T>& g) {
  std::vector<T> result(g.begin() + tower, g.end());
  for (std::size_t i = 0; i < tower; ++i) result[i] += g[i];
  return result;
}

/// Words are indices of a table that the last product uses again.
// --8<-- [start:words]
struct Words : ls::Sequential<ls::Input<3>, ls::Shared<"tokens", ls::Embedding<6, 4>>,
                              ls::Dense<4, ls::tanh>, ls::TiedDense<"tokens">> {};
// --8<-- [end:words]

/// Two inputs, two outputs, a shared layer and a tied table.
struct Both
    : ls::Graph<ls::In<"numbers", 3>, ls::In<"words", ls::Integers<4>>,
                ls::Let<"n", ls::From<"numbers">, ls::Dense<4, ls::tanh>>,
                ls::Let<"w", ls::From<"words">, ls::Shared<"tokens", ls::Embedding<9, 4>>,
                        ls::GlobalAveragePooling1D>,
                ls::Let<"h", ls::From<"n", "w">, ls::Add, ls::Shared<"mix", ls::Dense<4, ls::relu>>,
                        ls::Dropout<0.2>, ls::Shared<"mix", ls::Dense<4, ls::relu>>>,
                ls::Out<"value", ls::From<"h">, ls::Dense<1>>,
                ls::Out<"token", ls::From<"h">, ls::TiedDense<"tokens">>> {};

/// A loss over the row [value | logits of token]: half of a squared error, and a cross-entropy.
/// Targets: the value, and the token as a number.
struct BothLossOp {
  using target_type = float;
  std::size_t size() const { return 10; }
  std::size_t target_size() const { return 2; }
  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    const double error = static_cast<double>(p[0]) - static_cast<double>(t[0]);
    double sum = 0;
    for (std::size_t k = 1; k < 10; ++k) sum += std::exp(static_cast<double>(p[k]));
    const auto token = static_cast<std::size_t>(t[1]);
    if (g != nullptr) {
      g[0] = static_cast<T>(scale * error);
      for (std::size_t k = 1; k < 10; ++k)
        g[k] = static_cast<T>(
            scale * (std::exp(static_cast<double>(p[k])) / sum - (k == token + 1 ? 1 : 0)));
    }
    return error * error / 2 + std::log(sum) - static_cast<double>(p[token + 1]);
  }
  bool operator==(const BothLossOp&) const = default;
};
struct BothLoss {
  using target_type = float;
  static constexpr std::string_view name = "both";
  static constexpr bool accepts(ls::Shape out) { return out == ls::shape(10); }
  static constexpr ls::Shape target_shape(ls::Shape) { return ls::shape(2); }
  static constexpr BothLossOp op(ls::Shape) { return {}; }
};

/// The graph of tests/golden/make_graph.py.
using Mix = ls::Shared<"mix", ls::Dense<4, ls::tanh>>;
using Norm = ls::Shared<"norm", ls::BatchNormalization<>>;
struct Golden
    : ls::Graph<ls::In<"numbers", 3>, ls::In<"words", ls::Integers<4>>,
                ls::Let<"n", ls::From<"numbers">, ls::Dense<4, ls::tanh>,
                        ls::Frozen<ls::BatchNormalization<>>>,
                ls::Let<"w", ls::From<"words">, ls::Shared<"tokens", ls::Embedding<9, 4>>,
                        ls::GlobalAveragePooling1D>,
                ls::Let<"h", ls::From<"n", "w">, ls::Add, Mix, Norm, ls::Recompute<Mix>, Norm>,
                ls::Out<"value", ls::From<"h", "w">, ls::Concatenate, ls::Dense<1>>,
                ls::Out<"token", ls::From<"h">, ls::TiedDense<"tokens">>> {};

/// The loss of each epoch, and the digest of the weights.
struct Trained {
  std::vector<double> loss;
  std::string digest;
};
template <class Strategy>
Trained train(const Strategy& strategy, const ls::NamePatterns& held = {}) {
  std::vector<float> x, y;
  ls::Philox g(3);
  for (int i = 0; i < 26; ++i) {
    for (int k = 0; k < 3; ++k) x.push_back(static_cast<float>(g.normal()));
    for (int k = 0; k < 4; ++k) x.push_back(static_cast<float>(g.below(9)));
    y.push_back(2 * x[x.size() - 7] - x[x.size() - 6]);
    y.push_back(x[x.size() - 4]);
  }
  ls::Model model{Both{}, strategy, BothLoss{}, ls::Adam{.learning_rate = 0.03}};
  if (!held.empty()) model.set_trainable(held, false);
  const ls::History history =
      model.fit(ls::tensors(x, ls::shape(7), y, ls::shape(2)) | ls::batch(8), {.epochs = 30});
  Trained result{{}, model.weights_sha256()};
  for (const double loss : history["loss"]) result.loss.push_back(loss);
  return result;
}

/// Each weight is updated once, when its gradient is final and nothing reads it again.
template <class Net, class D>
void updates_once(toy::Machine<Net, D>& machine) {
  using T = typename D::real;
  const std::vector<T> expected = machine.gradients();
  std::vector<T> seen(expected.size(), T(0));
  T* const all = machine.engine.gradients().data();
  const auto update = [&](T* dw, std::size_t count) {
    const auto first = static_cast<std::size_t>(dw - all);
    REQUIRE(first + count <= seen.size());
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(seen[first + i] == 0);
      seen[first + i] = dw[i];
      machine.engine.weights().data()[first + i] = std::numeric_limits<T>::quiet_NaN();
    }
  };
  machine.gradients([](const auto&) {}, ls::UpdateRef<T>(update));
  CHECK(seen == expected);
}

}  // namespace

TEST_CASE("a layer with two calls has one set of weights and the sum of both gradients") {
  STATIC_REQUIRE(Pair::trainable_count == tower + 6 * 3 + 3);
  STATIC_REQUIRE(Apart::trainable_count == Pair::trainable_count + tower);
  toy::Machine<Pair, Oracle> pair(3);
  toy::Machine<Apart, Oracle> apart(3);
  apart.weights = twice(pair.weights);
  apart.engine.weights().upload(apart.weights.data());
  apart.x = pair.x;
  apart.c = pair.c;
  CHECK(pair.forward() == apart.forward());
  // The engine adds the two sums, as added() does.
  CHECK(pair.gradients() == added(apart.gradients()));
  gradients_are_right(pair);
  std::vector<std::string> names;
  for (const auto& p : ls::detail::parameters_of<Pair>()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel",
                                          "dense_1/bias", "dense_2/kernel", "dense_2/bias"});
}

TEST_CASE("a bucket is ready after the last call that adds to it, in order of the first ones") {
  struct Large : ls::Dense<300> {};
  using SharedLarge = ls::Shared<"large", Large>;
  struct Net : ls::Sequential<ls::Input<300>, ls::Dense<300>, SharedLarge, ls::Tanh, ls::Dense<300>,
                              SharedLarge, ls::Dense<2>> {};
  toy::Machine<Net, ls::Reference<float>> machine(2);
  std::vector<float> at_ready(Net::trainable_count, 0.0f);
  std::vector<std::size_t> begins;
  const auto last = machine.gradients([&](const ls::detail::Bucket& b) {
    begins.push_back(b.begin);
    std::copy_n(machine.engine.gradients().data() + b.begin, b.end - b.begin,
                at_ready.data() + b.begin);
  });
  CHECK(at_ready == last);
  CHECK(begins.size() == 3);
  CHECK(std::is_sorted(begins.rbegin(), begins.rend()));
  CHECK(begins.back() == 0);
}

TEST_CASE("weights of several calls are updated within backward once") {
  toy::Machine<Pair, Oracle> pair(3);
  updates_once(pair);
  toy::Machine<Words, Oracle> words(2);
  words.x = {0, 5, 2, 2, 1, 3};
  updates_once(words);
}

TEST_CASE("a table is tied to the last product, transposed") {
  STATIC_REQUIRE(Words::trainable_count == 6 * 4 + 4 * 4 + 4);
  STATIC_REQUIRE(Words::output_shape == ls::shape(3, 6));
  toy::Machine<Words, Oracle> machine(2);
  machine.x = {0, 5, 2, 2, 1, 3};
  gradients_are_right(machine);
  // y[n, s, v] = table[v] . tanh(table[x[n, s]] kernel + bias)
  const double *table = machine.weights.data(), *kernel = table + 24, *bias = kernel + 16;
  std::vector<double> expected;
  for (const double x : machine.x) {
    double h[4];
    for (std::size_t u = 0; u < 4; ++u) {
      h[u] = bias[u];
      for (std::size_t i = 0; i < 4; ++i)
        h[u] += table[static_cast<std::size_t>(x) * 4 + i] * kernel[i * 4 + u];
      h[u] = std::tanh(h[u]);
    }
    for (std::size_t v = 0; v < 6; ++v) {
      double sum = 0;
      for (std::size_t u = 0; u < 4; ++u) sum += table[v * 4 + u] * h[u];
      expected.push_back(sum);
    }
  }
  CHECK(testing::relative_error(machine.forward(), expected) < 1e-14);
  // The matrix of any layer, here of an encoder.
  struct Coder : ls::Sequential<ls::Input<5>, ls::Shared<"code", ls::Dense<3, ls::no_bias>>,
                                ls::Tanh, ls::TiedDense<"code">> {};
  STATIC_REQUIRE(Coder::output_shape == ls::shape(5));
  toy::Machine<Coder, Oracle> coder(3);
  gradients_are_right(coder);
}

TEST_CASE("shared layers within Recompute, and blocks of shared layers, have the same gradients") {
  struct Inner : ls::Sequential<ls::Shared<"dense", ls::Dense<4>>, ls::Tanh> {};
  using Block = ls::Shared<"block", ls::Sequential<Inner, ls::Dense<4>>>;
  struct Net : ls::Sequential<ls::Input<4>, Block, Inner, Block, ls::Dense<2>> {};
  struct Again : ls::Sequential<ls::Input<4>, ls::Recompute<Block>, Inner, ls::Recompute<Block>,
                                ls::Dense<2>> {};
  STATIC_REQUIRE(Net::trainable_count == 2 * 20 + 10);
  toy::Machine<Net, Oracle> machine(3);
  gradients_are_right(machine);
  CHECK(toy::Machine<Again, Oracle>(3).gradients() == machine.gradients());
}

TEST_CASE("random layers draw other numbers in each call, statistics are updated in each") {
  using Drop = ls::Shared<"drop", ls::Dropout<0.5>>;
  struct Net : ls::Graph<ls::In<"x", 64>, ls::Let<"a", ls::From<"x">, Drop>,
                         ls::Let<"b", ls::From<"x">, Drop>,
                         ls::Out<"y", ls::From<"a", "b">, ls::Concatenate>> {};
  toy::Machine<Net, Oracle> machine(1);
  const auto y = machine.forward();
  std::vector<bool> a, b;
  for (std::size_t i = 0; i < 64; ++i) {
    a.push_back(y[i] == 0);
    b.push_back(y[64 + i] == 0);
  }
  CHECK(a != b);

  using Halving = ls::Shared<"norm", ls::BatchNormalization<ls::momentum(0.5)>>;
  struct Twice : ls::Sequential<ls::Input<2>, Halving, ls::Dense<2>, Halving> {};
  STATIC_REQUIRE(ls::detail::PlanOf<Twice, Oracle>::plan.averages == 1);
  STATIC_REQUIRE(ls::detail::PlanOf<Twice, Oracle>::plan.averaged_size == 4);
  toy::Machine<Twice, Oracle> twice(4);
  std::vector<double> state(4);
  twice.engine.state().upload(state.data());
  twice.forward();
  twice.engine.state().download(state.data());
  struct Once
      : ls::Sequential<ls::Input<2>, ls::BatchNormalization<ls::momentum(0.5)>, ls::Dense<2>> {};
  toy::Machine<Once, Oracle> once(4);
  once.x = twice.x;
  once.weights = twice.weights;
  once.engine.weights().upload(once.weights.data());
  const auto h = once.forward();
  for (std::size_t c = 0; c < 2; ++c) {
    double first = 0, second = 0;
    for (std::size_t n = 0; n < 4; ++n) {
      first += twice.x[n * 2 + c] / 4;
      second += h[n * 2 + c] / 4;
    }
    CHECK(std::abs(state[c] - (0.25 * first + 0.5 * second)) < 1e-14);
  }
}

TEST_CASE("a graph with two inputs and two outputs trains, with the same bits on two replicas") {
  using Float = ls::Reference<float>;
  const Trained one = train(ls::OneDevice<Float>{.virtual_shards = 4});
  const Trained two = train(ls::Mirrored<Float>{.replicas = 2, .virtual_shards = 4});
  CHECK(one.loss == two.loss);
  CHECK(one.digest == two.digest);
  CHECK(one.loss.back() < 0.8 * one.loss.front());
  // One slice: weights are updated within backward.
  CHECK(testing::relative_error(train(ls::OneDevice<Float>{}).loss, one.loss) < 1e-4);
}

TEST_CASE("layers with several calls train while others do not") {
  using Float = ls::Reference<float>;
  for (const char* held : {"dense", "dense_1"}) {
    CAPTURE(held);
    const Trained one = train(ls::OneDevice<Float>{}, held);
    CHECK(testing::relative_error(
              train(ls::Mirrored<Float>{.replicas = 2, .virtual_shards = 4}, held).loss, one.loss) <
          1e-4);
  }
  // A tied layer has the setting of its table.
  ls::Model model{Both{}, ls::OneDevice<Float>{}, BothLoss{}, ls::SGD{.learning_rate = 0}};
  CHECK_THROWS_WITH(model.set_trainable("tied_dense", false),
                    ContainsSubstring("'tied_dense' selects no layer with parameters"));
  model.set_trainable("*", false);
  const auto names = model.untrained_layers();
  CHECK(std::set(names.begin(), names.end()).size() == names.size());
  CHECK(model.summary().find("Trainable params: 0 (") != std::string::npos);
  model.set_trainable("embedding", true);
  const std::vector<float> x{0.5f, -1, 2, 3, 1, 4, 1}, y{1, 5};
  model.train_on_batch(x, y);
  const std::vector<float> once = model.gradients("embedding/embeddings");
  model.train_on_batch(x, y);
  CHECK(model.gradients("embedding/embeddings") == once);
}

TEST_CASE("five steps of a graph with shared, frozen and tied layers are those of PyTorch") {
  ls::Model m{Golden{}, ls::OneDevice<ls::Reference<double>>{}, ls::MeanSquaredError{},
              ls::SGD{.learning_rate = 0.3, .momentum = 0.9}};
  int drawn = 0;
  for (const ls::ParameterInfo& p : m.parameters()) {
    if (!p.trainable) continue;
    std::vector<double> values(p.size());
    for (double& v : values) v = 0.5 * std::sin(++drawn);
    m.set_weights(p.name, values);
  }
  const auto line = [](double from, double by) {
    return std::vector<double>{from, from + by, from + 2 * by, from + 3 * by};
  };
  m.set_weights("batch_normalization/gamma", line(1, 0.25));
  m.set_weights("batch_normalization/beta", line(0, 0.125));
  m.set_weights("batch_normalization/moving_mean", line(0.25, -0.125));
  m.set_weights("batch_normalization/moving_variance", line(0.5, 0.25));
  double loss = 0;
  for (int step = 0; step < 5; ++step) {
    std::vector<double> x, y;
    for (int n = 8 * step; n < 8 * step + 8; ++n) {
      for (int i = 3 * n; i < 3 * n + 3; ++i) x.push_back(std::cos(0.7 * i));
      for (int i = 4 * n; i < 4 * n + 4; ++i) x.push_back((i * i + 3 * i) % 9);
      for (int i = 10 * n; i < 10 * n + 10; ++i) y.push_back(std::sin(0.3 * i));
    }
    loss = m.train_on_batch(x, y)["loss"];
  }
  const auto squares = [&](const char* name) {
    double sum = 0;
    for (const double v : m.weights(name)) sum += v * v;
    return sum;
  };
  const std::vector<double> found{loss,
                                  squares("dense/kernel"),
                                  squares("embedding/embeddings"),
                                  m.weights("embedding/embeddings")[5 * 4 + 2],
                                  squares("dense_1/kernel"),
                                  m.weights("dense_1/bias")[1],
                                  m.weights("batch_normalization_1/gamma")[3],
                                  m.weights("batch_normalization_1/moving_mean")[0],
                                  m.weights("batch_normalization_1/moving_variance")[2],
                                  m.weights("dense_2/kernel")[6]};
  const std::vector<double> expected{
      0.50360187709621174, 1.5765239582825814,  2.9361647748383146,  0.42948179680133935,
      1.9575328537969874,  0.40806217168323916, 0.35353375502970136, -0.0069322529642539283,
      0.90677199684235332, -0.40193662203682723};
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(found[i] - expected[i]) < 1e-12);
  }
  CHECK(m.weights("batch_normalization/moving_mean") == line(0.25, -0.125));
  CHECK(m.weights("batch_normalization/gamma") == line(1, 0.25));
}

TEST_CASE("a summary has a row per layer, with the inputs of all its calls") {
  const std::string text = ls::detail::summary_of<Pair, Oracle>(60, 60);
  for (const char* row :
       {"│ left (InputLayer)         │ (None, 5)    │ 0        │       0 │ input  ",
        "│ dense (Dense)             │ (None, 4)    │ 80 FLOPs │      24 │ left, right  ",
        "│ multiply (Multiply)       │ (None, 3)    │ 0        │       0 │ dense_2, dense_1[1] "}) {
    CAPTURE(text, row);
    CHECK(text.find(row) != text.npos);
  }
  CHECK(text.find(" Total params: 60 ") != text.npos);
}

TEST_CASE("a tied layer of a block with two calls has one row, and a name for each call") {
  using Coder =
      ls::Shared<"coder", ls::Sequential<ls::Shared<"code", ls::Dense<3, ls::no_bias, ls::tanh>>,
                                         ls::Tanh, ls::TiedDense<"code">>>;
  struct Net
      : ls::Graph<ls::In<"x", 4>, ls::Let<"a", ls::From<"x">, Coder>,
                  ls::Let<"b", ls::From<"a">, Coder>, ls::Out<"y", ls::From<"a", "b">, ls::Add>> {};
  const std::string text = ls::detail::summary_of<Net, Oracle>(12, 12);
  for (const char* part : {"│ tied_dense (TiedDense)", "│ 48 FLOPs │       0 │ tanh, tanh[1] ",
                           "│ dense, dense[1] ", "│ tied_dense, tied_dense[1] "}) {
    CAPTURE(text, part);
    const auto at = text.find(part);
    CHECK(at != text.npos);
    CHECK(text.find(part, at + 1) == text.npos);
  }
}
