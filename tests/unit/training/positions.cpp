/// \file
/// Training with a label per pixel or token: the mean over all labels of the job, ignored labels,
/// weights of examples, of positions and of classes, and what is rejected.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/training/checks/check_gradients.hpp"
#include "support/workers.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace line;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;
using Label = std::int32_t;
using Loss = ls::SparseCategoricalCrossentropy;
constexpr Label none = 255;
constexpr std::size_t pixels = 6, classes_of_pixel = 3;

/// p[k] = w[k] x + b[k] at each of 2 x 3 pixels.
struct Pixels : ls::Sequential<ls::Input<2, 3, 1>, ls::Conv2D<3, 1>> {};
/// The same along 6 tokens.
struct Tokens : ls::Sequential<ls::Input<6, 1>, ls::Conv1D<3, 1>> {};

std::vector<double> inputs(std::size_t n) {
  std::vector<double> x(n * pixels);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(1 + 2 * static_cast<double>(i));
  return x;
}
/// Example 1 has ignored labels only, others at most two.
std::vector<Label> labels(std::size_t n, bool ignores) {
  std::vector<Label> y(n * pixels);
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = ignores && (i / pixels == 1 || i % 5 == 3) ? none : static_cast<Label>(i * i % 7 % 3);
  return y;
}

/// Loss and gradients of the model with kernel (0.5, -0.25, 1) and bias (0, 0.1, -0.2):
/// sum(w l) / labels that count, by hand.
struct PixelsByHand {
  double loss = 0;
  std::vector<double> d_kernel{0, 0, 0}, d_bias{0, 0, 0};
  static inline const std::vector<double> kernel{0.5, -0.25, 1}, bias{0, 0.1, -0.2};

  PixelsByHand(const std::vector<double>& x, const std::vector<Label>& y,
               const std::vector<double>& w) {
    double counted = 0;
    for (const Label label : y) counted += label != none ? 1 : 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (y[i] == none) continue;
      double p[3], sum = 0;
      for (std::size_t k = 0; k < 3; ++k) sum += p[k] = std::exp(kernel[k] * x[i] + bias[k]);
      const double share = w[i] / counted;
      loss -= share * std::log(p[y[i]] / sum);
      for (std::size_t k = 0; k < 3; ++k) {
        const double slope = p[k] / sum - (static_cast<Label>(k) == y[i] ? 1 : 0);
        d_kernel[k] += share * slope * x[i];
        d_bias[k] += share * slope;
      }
    }
  }
};

template <class Net>
auto pixel_model(bool ignores) {
  Loss loss{.from_logits = true};
  if (ignores) loss.ignore_class = none;
  ls::Model m{Net{}, Double{}, loss, ls::SGD{.learning_rate = 0.1}};
  const std::string layer = m.parameters()[0].name;
  m.set_weights(layer, PixelsByHand::kernel);
  m.set_weights(m.parameters()[1].name, PixelsByHand::bias);
  return m;
}

bool near(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!line::near(a[i], b[i])) return false;
  return a.size() == b.size();
}
using line::near;

/// A U-shaped network: one way over half the resolution, one past it.
struct Down : ls::Sequential<ls::MaxPooling2D<2>, ls::Conv2D<8, 3, ls::same, ls::relu>,
                             ls::UpSampling2D<2>> {};
struct UNet : ls::Sequential<ls::Input<8, 8, 1>, ls::Conv2D<4, 3, ls::same, ls::relu>,
                             ls::Parallel<ls::Concatenate, ls::Identity, Down>, ls::Conv2D<3, 1>> {
};

/// Images of a bright square on noise; labels: the square 1, its border 2, else 0, and the border
/// of the image is ignored.
auto squares(std::size_t n) {
  std::vector<float> x(n * 64);
  std::vector<Label> y(n * 64);
  ls::Philox g(3);
  for (std::size_t i = 0; i < n; ++i) {
    const auto top = static_cast<int>(g.below(4)), left = static_cast<int>(g.below(4));
    for (int r = 0; r < 8; ++r)
      for (int c = 0; c < 8; ++c) {
        const std::size_t at = i * 64 + static_cast<std::size_t>(8 * r + c);
        const int dr = r - top, dc = c - left;
        const bool inside = dr >= 0 && dr < 5 && dc >= 0 && dc < 5;
        const bool middle = dr > 0 && dr < 4 && dc > 0 && dc < 4;
        x[at] = static_cast<float>((inside ? 1 : 0) + 0.1 * g.normal());
        y[at] = r == 0 || c == 7 ? none : middle ? 1 : inside ? 2 : 0;
      }
  }
  return ls::tensors(x, ls::shape(8, 8, 1), y, ls::shape(8, 8));
}

struct Outcome {
  std::string digest;
  std::vector<double> loss, accuracy, val_loss;
  std::vector<double> kernel;
};
template <class S>
Outcome trained(const S& strategy) {
  const Loss loss{.from_logits = true, .ignore_class = none};
  ls::Model m{UNet{}, strategy, loss, ls::Adam{.learning_rate = 0.01},
              ls::Accuracy{.ignore_class = none}};
  auto options = quiet(2);
  options.class_weight = {{1, 2.0}, {2, 0.5}};
  std::vector<double> w(23);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.5 + 0.25 * static_cast<double>(i % 5);
  const auto history =
      m.fit(squares(23) | ls::sample_weights(w) | ls::batch(7), squares(9) | ls::batch(4), options);
  const auto kernel = m.weights("conv2d/kernel");
  return {m.weights_sha256(), history["loss"], history["accuracy"], history["val_loss"],
          std::vector<double>(kernel.begin(), kernel.end())};
}

/// A user's metric of whole examples.
struct WholeOp {
  using target_type = Label;
  constexpr std::size_t size() const { return pixels * classes_of_pixel; }
  constexpr std::size_t target_size() const { return pixels; }
  void example(const auto*, const auto*, double* state, double weight = 1) const {
    state[0] += weight;
  }
};
struct Whole {
  static constexpr std::string_view name = "whole";
  static constexpr std::size_t state_size = 1;
  template <class Target>
  static constexpr bool accepts(ls::Shape) {
    return true;
  }
  template <class Target>
  WholeOp op(ls::Shape) const {
    return {};
  }
  double result(const double* state) const { return state[0]; }
};

}  // namespace

TEST_CASE("the loss of a label per position is the mean over all labels that count") {
  constexpr std::size_t n = 4;
  const auto x = inputs(n);
  for (const bool ignores : {false, true}) {
    const auto y = labels(n, ignores);
    const std::vector<double> ones(n * pixels, 1);
    const PixelsByHand expected(x, y, ones);
    const auto check = [&](auto m) {
      CHECK(near(m.test_on_batch(x, y)["loss"], expected.loss));
      CHECK(near(m.train_on_batch(x, y)["loss"], expected.loss));
      CHECK(near(m.gradients(m.parameters()[0].name), expected.d_kernel));
      CHECK(near(m.gradients(m.parameters()[1].name), expected.d_bias));
      CHECK(near(m.weights(m.parameters()[1].name)[1],
                 PixelsByHand::bias[1] - 0.1 * expected.d_bias[1]));
    };
    check(pixel_model<Pixels>(ignores));
    check(pixel_model<Tokens>(ignores));
  }
}

TEST_CASE("a sample weight applies to all positions of its example, or to one of them") {
  constexpr std::size_t n = 4;
  const auto x = inputs(n);
  for (const bool ignores : {false, true}) {
    const auto y = labels(n, ignores);
    const std::vector<double> of_examples{0.5, 3, 0, 2};
    std::vector<double> repeated, of_positions;
    for (std::size_t i = 0; i < n * pixels; ++i) {
      repeated.push_back(of_examples[i / pixels]);
      of_positions.push_back(0.25 * static_cast<double>(i % 4));
    }
    for (const bool by_position : {false, true}) {
      const PixelsByHand expected(x, y, by_position ? of_positions : repeated);
      auto m = pixel_model<Pixels>(ignores);
      const auto& w = by_position ? of_positions : of_examples;
      CHECK(near(m.test_on_batch(x, y, w)["loss"], expected.loss));
      CHECK(near(m.train_on_batch(x, y, w)["loss"], expected.loss));
      CHECK(near(m.gradients("conv2d/kernel"), expected.d_kernel));
      CHECK(near(m.gradients("conv2d/bias"), expected.d_bias));
    }
  }
  auto m = pixel_model<Pixels>(false);
  CHECK_THROWS_WITH(
      m.test_on_batch(x, labels(n, false), std::vector<double>(5)),
      ContainsSubstring("4 examples need 4 weights, or 24, one for each position, not 5"));
  std::vector<double> wrong(n * pixels, 1);
  wrong[13] = std::nan("");
  CHECK_THROWS_WITH(m.test_on_batch(x, labels(n, false), wrong),
                    ContainsSubstring("example 2 has weight nan"));
}

TEST_CASE("weights by position of a pipeline are those of a batch in memory") {
  constexpr std::size_t n = 4;
  const auto x = inputs(n);
  for (const bool ignores : {false, true}) {
    const auto y = labels(n, ignores);
    const auto pixels_of = ls::tensors(x, ls::shape(2, 3, 1), y, ls::shape(2, 3));
    std::vector<double> w;
    for (std::size_t i = 0; i < n * pixels; ++i) w.push_back(0.25 * static_cast<double>(i % 4));
    const auto weighted =
        pixels_of | ls::sample_weights(w, ls::shape(2, 3)) | ls::batch(static_cast<int>(n));
    const PixelsByHand expected(x, y, w);
    auto m = pixel_model<Pixels>(ignores);
    CHECK(near(m.evaluate(weighted)["loss"], expected.loss));
    CHECK(near(m.fit(weighted, quiet())["loss"][0], expected.loss));
    CHECK(near(m.gradients("conv2d/kernel"), expected.d_kernel));

    std::vector<double> by_class = w;
    for (std::size_t i = 0; i < y.size(); ++i) by_class[i] *= y[i] == 1 ? 3 : 1;
    auto c = pixel_model<Pixels>(ignores);
    auto options = quiet();
    options.class_weight = {{1, 3.0}};
    c.fit(weighted, options);
    CHECK(near(c.gradients("conv2d/bias"), PixelsByHand(x, y, by_class).d_bias));

    CHECK_THROWS_WITH(
        m.evaluate(pixels_of | ls::sample_weights(w, ls::shape(6)) | ls::batch(2)),
        ContainsSubstring("the weights have shape (6), but the model expects (2, 3)"));
  }
}

TEST_CASE("class weights apply to each label, in fit only") {
  constexpr std::size_t n = 4;
  const auto x = inputs(n);
  for (const bool ignores : {false, true}) {
    const auto y = labels(n, ignores);
    const std::vector<double> of_examples{0.5, 3, 1, 2};
    std::vector<double> w;
    for (std::size_t i = 0; i < y.size(); ++i)
      w.push_back(of_examples[i / pixels] * (y[i] == 0 ? 2 : y[i] == 2 ? 0.25 : 1));
    const PixelsByHand expected(x, y, w);
    auto m = pixel_model<Pixels>(ignores);
    auto options = quiet();
    options.class_weight = {{0, 2.0}, {2, 0.25}};
    const auto data = ls::tensors(x, ls::shape(2, 3, 1), y, ls::shape(2, 3)) |
                      ls::sample_weights(of_examples) | ls::batch(4);
    CHECK(near(m.fit(data, options)["loss"][0], expected.loss));
    CHECK(near(m.gradients("conv2d/kernel"), expected.d_kernel));
    options.class_weight = {{3, 1.0}};
    CHECK_THROWS_WITH(m.fit(data, options), ContainsSubstring("class 3 has a weight"));
  }
}

TEST_CASE("class weights of one-hot and of binary targets apply to each position") {
  const auto x = inputs(2);
  const auto y = labels(2, false);
  std::vector<double> hot, binary, w, w_binary;
  for (const Label label : y) {
    for (Label k = 0; k < 3; ++k) hot.push_back(k == label ? 1 : 0);
    binary.push_back(label == 1 ? 1 : 0);
    w.push_back(label == 2 ? 4 : 1);
    w_binary.push_back(label == 1 ? 3 : 1);
  }
  auto options = quiet();
  options.class_weight = {{2, 4.0}};
  ls::Model m{Pixels{}, Double{}, ls::CategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  m.set_weights("conv2d/kernel", PixelsByHand::kernel);
  m.set_weights("conv2d/bias", PixelsByHand::bias);
  const auto data = ls::tensors(x, ls::shape(2, 3, 1), hot, ls::shape(2, 3, 3)) | ls::batch(2);
  CHECK(near(m.fit(data, options)["loss"][0], PixelsByHand(x, y, w).loss));

  struct Binary : ls::Sequential<ls::Input<2, 3, 1>, ls::Conv2D<1, 1>> {};
  ls::Model b{Binary{}, Double{}, ls::BinaryCrossentropy{.from_logits = true}, ls::SGD{}};
  b.set_weights("conv2d/kernel", std::vector{0.5});
  b.set_weights("conv2d/bias", std::vector{-0.25});
  double loss = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double q = 1 / (1 + std::exp(-(0.5 * x[i] - 0.25)));
    loss -= w_binary[i] * std::log(y[i] == 1 ? q : 1 - q) / static_cast<double>(y.size());
  }
  options.class_weight = {{1, 3.0}};
  const auto of_ones = ls::tensors(x, ls::shape(2, 3, 1), binary, ls::shape(2, 3, 1));
  CHECK(near(b.fit(of_ones | ls::batch(2), options)["loss"][0], loss));
}

TEST_CASE("an epoch's loss weighs the mean of each batch by its examples, as Keras") {
  constexpr std::size_t n = 5;
  const auto x = inputs(n);
  const auto y = labels(n, true);
  double expected = 0;
  for (const ls::Slice part : {ls::Slice{0, 3}, ls::Slice{3, 2}}) {
    const auto from = [&](const auto& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part.first * pixels);
      return std::vector(begin, begin + static_cast<std::ptrdiff_t>(part.count * pixels));
    };
    expected += static_cast<double>(part.count) / n *
                PixelsByHand(from(x), from(y), std::vector<double>(part.count * pixels, 1)).loss;
  }
  auto m = pixel_model<Pixels>(true);
  const auto data = ls::tensors(x, ls::shape(2, 3, 1), y, ls::shape(2, 3)) | ls::batch(3);
  CHECK(near(m.evaluate(data)["loss"], expected));
}

TEST_CASE("a batch without a label that counts has loss 0 and changes no weight") {
  auto m = pixel_model<Pixels>(true);
  const auto before = m.weights_sha256();
  CHECK(m.train_on_batch(inputs(2), std::vector<Label>(2 * pixels, none))["loss"] == 0);
  CHECK(m.weights_sha256() == before);
}

TEST_CASE("virtual shards give masked training the same bits on any replicas and processes") {
  using Device = ls::Reference<float>;
  const Outcome alone = trained(ls::OneDevice<Device>{.virtual_shards = 8});
  for (const std::size_t replicas : {2u, 4u, 8u}) {
    const Outcome many = trained(ls::Mirrored<Device>{.replicas = replicas, .virtual_shards = 8});
    CHECK(many.digest == alone.digest);
    CHECK(many.loss == alone.loss);
    CHECK(many.val_loss == alone.val_loss);
  }
  for (const std::vector<std::size_t>& job :
       {std::vector<std::size_t>{1, 1}, {2, 2}, {1, 1, 1, 1}, {4, 4}})
    testing::run_workers<Device>(job, 8, [&](const auto& worker) {
      const Outcome many = trained(worker);
      if (many.digest != alone.digest || many.loss != alone.loss || many.val_loss != alone.val_loss)
        throw std::logic_error("different bits");
    });
}

TEST_CASE("the mean is over the labels of all replicas and processes") {
  using Device = ls::Reference<double>;
  const Outcome one = trained(ls::OneDevice<Device>{});
  const auto same = [&](const Outcome& many) {
    return near(many.loss[1], one.loss[1]) && near(many.val_loss[1], one.val_loss[1]) &&
           many.accuracy == one.accuracy;
  };
  CHECK(same(trained(ls::Mirrored<Device>{.replicas = 3})));
  for (const std::vector<std::size_t>& job : {std::vector<std::size_t>{1, 1}, {1, 2}, {1, 1, 1}})
    testing::run_workers<Device>(job, 0, [&](const auto& worker) {
      if (!same(trained(worker))) throw std::logic_error("another mean");
    });
}

TEST_CASE("a small U-Net learns the labels of pixels") {
  Loss loss{.from_logits = true, .ignore_class = none};
  ls::Model m{UNet{},
              Float{},
              loss,
              ls::Adam{.learning_rate = 0.03},
              ls::Accuracy{.ignore_class = none},
              ls::ConfusionMatrix<3>{.ignore_class = none}};
  const auto history =
      m.fit(squares(48) | ls::shuffle(48) | ls::batch(8), squares(16) | ls::batch(16), quiet(12));
  INFO(history["loss"].front() << " to " << history["loss"].back() << ", accuracy "
                               << history["val_accuracy"].back());
  CHECK(history["loss"].back() < 0.5 * history["loss"].front());
  CHECK(history["val_accuracy"].back() > 0.85);
  double all = 0;
  for (const double v : m.metric_state<ls::ConfusionMatrix<3>>()) all += v;
  CHECK(all == 16 * 49);  // without the ignored border
}

TEST_CASE("gradients of a loss with ignored labels are the slopes of its mean") {
  const auto x = inputs(3);
  const auto y = labels(3, true);
  CHECK(ls::check_gradients(Pixels{}, x, y, Loss{.from_logits = true, .ignore_class = none}).error <
        1e-8);
}

TEST_CASE("a label that is not a class is named with its place") {
  auto m = pixel_model<Pixels>(true);
  auto y = labels(4, true);
  y[2 * pixels + 5] = 7;
  CHECK_THROWS_WITH(m.test_on_batch(inputs(4), y),
                    ContainsSubstring("labels: example 2 of the batch has label 7 at (1, 2), but "
                                      "the model's outputs are classes 0 to 2; change the last "
                                      "layer or the labels, or ignore them with "
                                      ".ignore_class = 7 in the loss"));
  auto strict = pixel_model<Pixels>(false);
  CHECK_THROWS_WITH(strict.test_on_batch(inputs(4), labels(4, true)),
                    ContainsSubstring("has label 255 at (1, 0)"));
  ls::Model ignoring{Pixels{}, Double{}, Loss{.ignore_class = -1}, ls::SGD{}};
  ignoring.test_on_batch(inputs(1), std::vector<Label>(pixels, -1));
  CHECK_THROWS_WITH(ignoring.test_on_batch(inputs(1), std::vector<Label>(pixels, -2)),
                    ContainsSubstring("label -2 at (0, 0)"));
}

TEST_CASE("a metric must ignore the labels that are not classes, too") {
  const Loss loss{.from_logits = true, .ignore_class = none};
  const auto rejects = [&](const auto& metric, const char* part) {
    CHECK_THROWS_WITH((ls::Model{Pixels{}, Double{}, loss, ls::SGD{}, metric}),
                      ContainsSubstring(part));
  };
  rejects(ls::Accuracy{},
          "metric accuracy: the loss ignores label 255, which is not one of the model's 3 classes; "
          "set .ignore_class = 255 in the metric, too");
  rejects(ls::TopKCategoricalAccuracy{.ignore_class = 3}, "metric top_k_categorical_accuracy");
  rejects(ls::ConfusionMatrix<3>{}, "metric confusion_matrix");
  rejects(ls::MeanOf<Loss>{}, "metric sparse_categorical_crossentropy");
  rejects(ls::Weighted<ls::Accuracy>{}, "metric accuracy");
  // A class of the model may be ignored by either.
  const ls::Model either{Pixels{}, Double{}, Loss{.ignore_class = 0}, ls::SGD{}, ls::Accuracy{}};
  const ls::Model other{Pixels{}, Double{}, Loss{}, ls::SGD{}, ls::Accuracy{.ignore_class = 0}};
  const ls::Model both{Pixels{}, Double{}, loss, ls::SGD{},
                       ls::MeanOf<Loss>{{.ignore_class = none}}};
}

TEST_CASE("a weighted metric needs a row for each weight") {
  CHECK_THROWS_WITH((ls::Model{Pixels{}, Double{}, Loss{}, ls::SGD{}, ls::Weighted<Whole>{}}),
                    ContainsSubstring("metric whole: it has one weight per example, but the loss "
                                      "sparse_categorical_crossentropy has weights of shape "
                                      "(2, 3)"));
  ls::Model plain{Pixels{}, Double{}, Loss{}, ls::SGD{}, Whole{}};
  CHECK(plain.test_on_batch(inputs(3), labels(3, false), std::vector<double>{1, 2, 3})["whole"] ==
        3);
}

TEST_CASE("targets of another shape get advice for their case") {
  auto m = pixel_model<Pixels>(false);
  const auto one_each = ls::tensors(inputs(4), ls::shape(2, 3, 1), std::vector<Label>(4));
  CHECK_THROWS_WITH(
      m.evaluate(one_each | ls::batch(2)),
      ContainsSubstring("the targets have shape (), but the model expects (2, 3); put "
                        "Flatten or GlobalAveragePooling2D before the last layer"));
  auto vector = classifier();
  const auto map =
      ls::tensors(std::vector<float>(4), ls::shape(2), std::vector<Label>(12), ls::shape(2, 3));
  CHECK_THROWS_WITH(vector.evaluate(map | ls::batch(2)),
                    ContainsSubstring("end the model with an output for each position, such as "
                                      "Conv2D<classes, 1>, or change the targets"));
}
