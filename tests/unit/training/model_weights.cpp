/// \file
/// Sample weights and class weights: their effect, what they apply to, and what is rejected.
/// tests/golden/weighted.hpp compares with Keras' runs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "golden/weighted.hpp"
#include "support/workers.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace line;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;
using Names = std::vector<std::string>;
constexpr double infinite = std::numeric_limits<double>::infinity();

/// 0.5, 1.5, -1, 0, 2, then again.
std::vector<double> weights(std::size_t n = 10) {
  const double some[] = {0.5, 1.5, -1, 0, 2};
  std::vector<double> w(n);
  for (std::size_t i = 0; i < n; ++i) w[i] = some[i % 5];
  return w;
}

/// The mean of w e^2 over all examples, and its derivatives: divided by the number of examples, not
/// by the sum of the weights.
struct Weighted {
  double loss = 0, d_kernel = 0, d_bias = 0;
  Weighted(double kernel, double bias, const std::vector<double>& w) {
    const double n = static_cast<double>(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double e = kernel * xs()[i] + bias - ys()[i];
      loss += w[i] * e * e / n;
      d_kernel += w[i] * 2 * e * xs()[i] / n;
      d_bias += w[i] * 2 * e / n;
    }
  }
};

template <class Data>
double loss_of(const Data& data) {
  auto m = model();
  return m.evaluate(data | ls::batch(4))["loss"];
}

/// A loss of three numbers per label whose kernel does not read sample weights.
struct BlindOp {
  std::size_t size;
};
struct Blind {
  using target_type = float;
  static constexpr std::string_view name = "blind";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  BlindOp op(ls::Shape out) const { return {out.size()}; }
};
/// A custom metric whose kernel does not read sample weights.
struct LargestOp {
  using target_type = float;
  constexpr std::size_t size() const { return 1; }
  constexpr std::size_t target_size() const { return 1; }
  void example(const auto* p, const auto*, double* state) const {
    state[0] += static_cast<double>(p[0]);
  }
};
struct Total {
  static constexpr std::string_view name = "total";
  static constexpr std::size_t state_size = 1;
  template <class Target>
  static constexpr bool accepts(ls::Shape) {
    return true;
  }
  template <class Target>
  LargestOp op(ls::Shape) const {
    return {};
  }
  double result(const double* state) const { return state[0]; }
};
/// Output shape (2, 2): the targets do not denote a class.
struct Places : ls::Sequential<ls::Input<4>, ls::Reshape<ls::shape(2, 2)>> {};

}  // namespace

template <>
struct lockstep::Kernel<BlindOp, lockstep::Reference<double>> : lockstep::KernelTraits {
  static void run(const BlindOp& op, const LossIo<Reference<double>, float>& io) {
    for (std::size_t i = 0; i < io.count * op.size; ++i)
      if (io.gradient != nullptr) io.gradient[i] = 0;
  }
};

TEST_CASE("the loss is sum(w l) / examples, and its derivatives agree") {
  const auto w = weights();
  const Weighted expected(0.5, -0.25, w);
  auto m = model();
  CHECK(near(m.test_on_batch(xs(), ys(), w)["loss"], expected.loss));
  CHECK(near(m.train_on_batch(xs(), ys(), w)["loss"], expected.loss));
  CHECK(near(m.gradients("dense/kernel")[0], expected.d_kernel));
  CHECK(near(m.gradients("dense/bias")[0], expected.d_bias));
  CHECK(near(m.weights("dense/kernel")[0], 0.5 - 0.1 * expected.d_kernel));
  // Weights do not persist to a later batch without weights.
  auto plain = model();
  plain.set_weights("dense/kernel", m.weights("dense/kernel"));
  plain.set_weights("dense/bias", m.weights("dense/bias"));
  CHECK(m.test_on_batch(xs(), ys())["loss"] == plain.test_on_batch(xs(), ys())["loss"]);
}

TEST_CASE("an epoch's loss is the mean over its examples, and penalties are not weighted") {
  const auto w = weights();
  const auto data = points() | ls::sample_weights(w);
  CHECK(near(loss_of(data), Weighted(0.5, -0.25, w).loss));
  auto m = model<Penalised>();
  const ByHand by_hand{.l2 = 0.25, .l1 = 0.5};
  CHECK(near(m.evaluate(data | ls::batch(3))["loss"],
             Weighted(0.5, -0.25, w).loss + by_hand.penalty()));
}

TEST_CASE("weights of 1 change no bit, and a weight of 0 removes an example's gradient") {
  auto with = classifier(), without = classifier();
  const auto data = classes();
  const auto ones = ls::sample_weights(std::vector<float>(40, 1));
  const auto a = with.fit(data | ones | ls::batch(7), quiet(2));
  const auto b = without.fit(data | ls::batch(7), quiet(2));
  CHECK(with.weights_sha256() == without.weights_sha256());
  CHECK(a["loss"] == b["loss"]);
  // Half of the batch with weight 0 and half with 2 is the mean over half of the batch.
  std::vector<double> half(10);
  for (std::size_t i = 0; i < 5; ++i) half[i] = 2;
  auto whole = model(), part = model();
  whole.train_on_batch(xs(), ys(), half);
  const auto x = xs(), y = ys();
  part.train_on_batch(std::span(x).first(5), std::span(y).first(5));
  CHECK(near(whole.weights("dense/kernel")[0], part.weights("dense/kernel")[0]));
}

TEST_CASE("class weights apply to training only, and multiply sample weights") {
  const auto data = classes(12);
  const ls::ClassWeights by_class{{1, 5.0}, {2, 0.5}};
  std::vector<double> same(12), w(12);
  for (std::size_t i = 0; i < 12; ++i) {
    same[i] = i % 3 == 1 ? 5 : i % 3 == 2 ? 0.5 : 1;
    w[i] = 0.25 * static_cast<double>(i);
  }
  auto options = quiet(2);
  auto a = classifier(), b = classifier();
  const auto other = classes(9) | ls::batch(4);
  const auto of_samples = a.fit(data | ls::sample_weights(same) | ls::batch(5), other, options);
  options.class_weight = by_class;
  const auto of_classes = b.fit(data | ls::batch(5), other, options);
  CHECK(a.weights_sha256() == b.weights_sha256());
  CHECK(of_samples["loss"] == of_classes["loss"]);
  CHECK(of_samples["val_loss"] == of_classes["val_loss"]);
  // Both at once.
  for (std::size_t i = 0; i < 12; ++i) same[i] *= w[i];
  auto c = classifier(), d = classifier();
  c.fit(data | ls::sample_weights(w) | ls::batch(5), options);
  d.fit(data | ls::sample_weights(same) | ls::batch(5), quiet(2));
  CHECK(testing::relative_error(c.weights("dense/kernel"), d.weights("dense/kernel")) < 1e-6);
  // In validation_split's last part they do not count.
  auto e = classifier();
  const auto split = e.fit(data | ls::batch(5), ls::validation_split(0.25), options);
  const auto last = e.evaluate(data | ls::skip(9) | ls::batch(5));
  CHECK(split["val_loss"].back() == last["loss"]);
}

TEST_CASE("a weighted metric has the metric's name unless it is in use, as in Keras") {
  using ls::detail::log_names;
  CHECK(log_names({"loss", "auc", "auc", "auc", "accuracy"}, {false, true, false, true, true}) ==
        Names{"loss", "weighted_auc", "auc", "weighted_auc_1", "accuracy"});
  CHECK(log_names({"loss", "auc", "auc", "weighted_auc"}, {false, false, true, false}) ==
        Names{"loss", "auc", "weighted_auc_1", "weighted_auc"});
  using Matrix = ls::ConfusionMatrix<3>;
  ls::Model m{Classes{},
              Float{},
              ls::SparseCategoricalCrossentropy{.from_logits = true},
              ls::SGD{.learning_rate = 0.1},
              ls::Weighted<ls::Accuracy>{},
              ls::Accuracy{},
              ls::Weighted<Matrix>{}};
  const auto data = classes(12);
  std::vector<float> w(12, 0.5f);
  w[0] = 4;
  const auto logs = m.evaluate(data | ls::sample_weights(w) | ls::batch(5));
  Names names;
  for (const auto& [name, value] : logs) names.push_back(name);
  CHECK(names == Names{"loss", "weighted_accuracy", "accuracy", "confusion_matrix"});
  const auto matrix = m.metric_state<ls::Weighted<Matrix>>();
  CHECK(matrix[0] + matrix[1] + matrix[2] == 4 + 3 * 0.5);  // labels 0
  CHECK(near(logs["weighted_accuracy"], (matrix[0] + matrix[4] + matrix[8]) / 9.5));
  // Without weights the weighted metric equals the metric.
  const auto plain = m.evaluate(data | ls::batch(5));
  CHECK(plain["weighted_accuracy"] == plain["accuracy"]);
  CHECK(plain["accuracy"] == logs["accuracy"]);
}

TEST_CASE("several processes with weights train as one device does, and as Keras") {
  const golden::GoldenFile file("weighted");
  for (const std::vector<std::size_t>& job :
       {std::vector<std::size_t>{1, 1}, {2, 1}, {1, 1, 1}, {1, 2, 4}}) {
    std::mutex mutex;
    testing::run_workers<ls::Reference<double>>(job, 0, [&](const auto& worker) {
      const auto runs = golden::weighted_runs(file, worker);
      const std::scoped_lock lock(mutex);
      golden::are_as_keras(runs, file, 1e-10);
    });
  }
}

TEST_CASE("virtual shards give weighted training the same bits on any replicas") {
  const auto digest = [](const auto& strategy) {
    ls::Model m{Classes{}, strategy, golden::crossentropy, ls::SGD{.learning_rate = 0.1}};
    auto options = quiet(2);
    options.class_weight = {{0, 2.0}};
    m.fit(classes(30) | ls::sample_weights(weights(30)) | ls::batch(7), options);
    return m.weights_sha256();
  };
  using Device = ls::Reference<float>;
  const auto alone = digest(ls::OneDevice<Device>{.virtual_shards = 4});
  CHECK(digest(ls::Mirrored<Device>{.replicas = 2, .virtual_shards = 4}) == alone);
  CHECK(digest(ls::Mirrored<Device>{.replicas = 4, .virtual_shards = 4}) == alone);
}

TEST_CASE("weights of a batch in memory must be one finite number per example") {
  auto m = model();
  const auto rejects = [&](const std::vector<double>& w, const char* part) {
    CHECK_THROWS_WITH(m.train_on_batch(xs(), ys(), w), ContainsSubstring(part));
    CHECK_THROWS_AS(m.test_on_batch(xs(), ys(), w), ls::UsageError);
  };
  rejects(weights(9), "10 examples need 10 weights, not 9");
  auto w = weights();
  w[7] = std::nan("");
  rejects(w, "example 7 has weight nan");
  w[3] = -infinite;
  rejects(w, "example 3 has weight -inf");
}

TEST_CASE("class weights are rejected if the targets do not denote those classes") {
  auto options = quiet();
  auto m = classifier();
  const auto rejects = [&](const ls::ClassWeights& by_class, const char* part) {
    options.class_weight = by_class;
    CHECK_THROWS_WITH(m.fit(classes() | ls::batch(4), options), ContainsSubstring(part));
  };
  rejects({{3, 1.0}}, "class 3 has a weight, but the model's outputs are classes 0 to 2");
  rejects({{-1, 1.0}}, "class is -1");
  rejects({{0, 1.0}, {0, 1.0}}, "class 0 has two weights");
  rejects({{2, infinite}}, "class 2 has weight inf");
  CHECK(m.steps() == 0);
  // A target of one real value is rounded to its class, whatever the value.
  options.class_weight = {{7, 2.0}};
  model().fit(points() | ls::batch(4), options);
  ls::Model places{Places{}, Double{}, ls::MeanSquaredError{}, ls::SGD{}};
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(4), std::vector<float>(8), ls::shape(2, 2));
  CHECK_THROWS_WITH(places.fit(data | ls::batch(2), options),
                    ContainsSubstring("(2, 2)") && ContainsSubstring("sample_weights"));
}

TEST_CASE("a custom loss or metric that does not read weights is not given any") {
  ls::Model m{Net{}, Double{}, Blind{}, ls::SGD{}, Total{}};
  CHECK_NOTHROW(m.fit(points() | ls::batch(4), quiet()));
  const auto weighted = points() | ls::sample_weights(weights()) | ls::batch(4);
  const auto no_weights =
      ContainsSubstring("the kernel of loss blind does not read sample weights");
  CHECK_THROWS_WITH(m.fit(weighted, quiet()), no_weights);
  CHECK_THROWS_WITH(m.fit(points() | ls::batch(4), weighted, quiet()), no_weights);
  CHECK_THROWS_WITH(m.evaluate(weighted), no_weights);
  CHECK_THROWS_WITH(m.train_on_batch(xs(), ys(), weights()), no_weights);
  auto options = quiet();
  options.class_weight = {{0, 2.0}};
  CHECK_THROWS_WITH(m.fit(points() | ls::batch(4), options), no_weights);
  CHECK_THROWS_WITH(
      (ls::Model{Net{}, Double{}, ls::MeanSquaredError{}, ls::SGD{}, ls::Weighted<Total>{}}),
      ContainsSubstring("total") && ContainsSubstring("double weight"));
}
