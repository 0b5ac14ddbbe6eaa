// A program's own steps: by hand, compared with the library's step on every strategy, and in jobs of several
// processes.
#include "lockstep/training/step/program_steps.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/workers.hpp"
#include "unit/training/mirrored_support.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace replicas;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;
using Double = ls::Reference<double>;
using Float = ls::Reference<float>;

/// Depends on the batch as a whole, on random draws and on penalties.
struct Full : ls::Sequential<ls::Input<2>, ls::Dense<6>, ls::BatchNormalization<>, ls::ReLU,
                             ls::Dropout<ls::rate(0.4f)>,
                             ls::Dense<3, ls::kernel_regularizer(ls::L2{0.01})>> {};

/// The mean over the examples of the sum of y t, whose derivative by y is t / n.
struct OutputProduct {
  using target_type = float;
  static constexpr std::string_view name = "output_product";
  struct Op {
    using target_type = float;
    std::size_t elements = 1;
    constexpr std::size_t size() const { return elements; }
    constexpr std::size_t target_size() const { return elements; }
    template <class T>
    double example(const T* p, const T* t, T* g, double scale) const {
      double sum = 0;
      for (std::size_t k = 0; k < elements; ++k) {
        sum += static_cast<double>(p[k] * t[k]);
        if (g != nullptr) g[k] = static_cast<T>(scale * static_cast<double>(t[k]));
      }
      return sum;
    }
    bool operator==(const Op&) const = default;
  };
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  constexpr Op op(ls::Shape out) const { return {out.size()}; }
};

/// 29 points of three classes, in the element type of the device.
template <class T>
struct Points {
  std::vector<T> x;
  std::vector<std::int32_t> y;
  std::vector<T> w;
  explicit Points(std::size_t n = 29) {
    ls::Philox g(5);
    for (std::size_t i = 0; i < n; ++i) {
      y.push_back(static_cast<std::int32_t>(i % 3));
      for (int k = 0; k < 2; ++k) x.push_back(static_cast<T>(g.normal()));
      w.push_back(static_cast<T>(1 + i % 2));
    }
  }
  /// The examples of `part`, for a process.
  std::span<const T> xs(ls::Slice part) const {
    return std::span(x).subspan(2 * part.first, 2 * part.count);
  }
  std::span<const std::int32_t> ys(ls::Slice part) const {
    return std::span(y).subspan(part.first, part.count);
  }
  std::span<const T> ws(ls::Slice part) const {
    return std::span(w).subspan(part.first, part.count);
  }
};

template <class Net = Full, class S, class O = ls::Adam>
auto classifier_on(const S& strategy, const O& optimizer = {.learning_rate = 0.01}) {
  return ls::Model{Net{}, ls::Seed{7}, strategy, crossentropy, optimizer, ls::Accuracy{}};
}

auto batches() { return line::classes(40) | ls::shuffle(16) | ls::batch(7); }

/// The digest of a training by each of the ways to write it; all must be equal.
template <class S, class O>
std::vector<std::string> digests_by_all_ways(const S& strategy, const O& optimizer) {
  std::vector<std::string> found;
  const auto train = batches();
  {
    auto m = classifier_on(strategy, optimizer);
    m.fit(train, line::quiet(2));
    found.push_back(m.weights_sha256());
  }
  {
    auto m = classifier_on(strategy, optimizer);
    m.fit(train, line::quiet(2), [&](const auto& batch) { m.train_step(batch); });
    found.push_back(m.weights_sha256());
  }
  {
    auto m = classifier_on(strategy, optimizer);
    m.fit(train, line::quiet(2), [&](const auto& batch) { m.apply(m.gradients_of(batch)); });
    found.push_back(m.weights_sha256());
  }
  {
    auto m = classifier_on(strategy, optimizer);
    while (m.passes() < 2)
      for (const auto& batch : m.batches(train)) m.train_step(batch);
    m.finalize_weights();
    found.push_back(m.weights_sha256());
  }
  {
    auto m = classifier_on(strategy, optimizer);
    for (int pass = 0; pass < 2; ++pass)
      for (const auto& batch : m.batches(train)) {
        const auto gradients = m.gradients_of(batch);
        m.test_step(batch);
        m.apply(gradients);
      }
    m.finalize_weights();
    found.push_back(m.weights_sha256());
  }
  return found;
}
bool are_equal(const std::vector<std::string>& all) {
  return std::count(all.begin(), all.end(), all[0]) == static_cast<std::ptrdiff_t>(all.size());
}

/// All workers throw a UsageError; \returns its message.
template <class Body>
std::string refusal_in_all(std::vector<std::size_t> replicas, const Body& body) {
  std::mutex mutex;
  std::vector<std::string> texts;
  const std::size_t workers = replicas.size();
  testing::run_workers<Float>(std::move(replicas), 0, [&](const auto& worker) {
    auto m = classifier_on(worker);
    try {
      body(m, worker.process);
    } catch (const ls::UsageError& e) {
      const std::scoped_lock lock(mutex);
      texts.emplace_back(e.what());
    }
    m.fit(batches(), line::quiet());  // the job goes on
  });
  if (texts.size() != workers) return "not all refused";
  return are_equal(texts) ? texts[0] : "different refusals";
}

}  // namespace

TEST_CASE("the gradients of a batch are those by hand, and apply makes the rest of the step") {
  line::ByHand hand{.l2 = 0.25, .l1 = 0.5};
  auto m = line::model<line::Penalised>();
  const std::vector<double> x = line::xs(), y = line::ys();
  for (int i = 0; i < 3; ++i) {
    const double l2 = 2 * hand.l2 * hand.w, l1 = hand.b > 0 ? hand.l1 : -hand.l1;
    const double loss = hand.step(0, 10, 0.1);
    const auto gradients = m.gradients_of(m.batch(x, y));
    CHECK(line::near(gradients["dense/kernel"][0], hand.d_w - l2));
    CHECK(line::near(gradients["dense/bias"][0], hand.d_b - l1));
    CHECK(line::near(gradients.norm(), std::hypot(hand.d_w - l2, hand.d_b - l1)));
    CHECK(line::near(gradients.logs()["loss"], loss));
    CHECK(gradients.learning_rate() == 0.1);
    CHECK(m.steps() == static_cast<std::uint64_t>(i));
    m.apply(gradients);
    CHECK(m.steps() == static_cast<std::uint64_t>(i + 1));
    CHECK(line::near(m.weights("dense/kernel")[0], hand.w));
    CHECK(line::near(m.weights("dense/bias")[0], hand.b));
  }
}

TEST_CASE("gradients that the program has changed are applied, also those of two batches") {
  line::ByHand hand;
  auto m = line::model();
  const std::vector<double> x = line::xs(), y = line::ys();
  const auto part = [](const std::vector<double>& v, std::size_t first) {
    return std::span(v).subspan(first, 5);
  };
  auto gradients = m.gradients_of(m.batch(part(x, 0), part(y, 0)));
  gradients += m.gradients_of(m.batch(part(x, 5), part(y, 5)));
  gradients *= 0.5;
  gradients["dense/bias"][0] = 2;
  m.apply(gradients);
  hand.step(0, 10, 0.1);
  CHECK(line::near(m.weights("dense/kernel")[0], hand.w));
  CHECK(line::near(m.weights("dense/bias")[0], -0.25 - 0.1 * 2));

  CHECK_THROWS_AS(gradients["dense/gamma"], ls::UsageError);
  ls::Gradients<double> none;
  CHECK_THROWS_AS(m.apply(none), ls::UsageError);
  CHECK_THROWS_AS(gradients += none, ls::UsageError);
}

TEST_CASE("every way to write a training has the same bits, on one device and on replicas") {
  const auto check = [](const auto& optimizer) {
    CHECK(are_equal(digests_by_all_ways(ls::OneDevice<Float>{}, optimizer)));
    CHECK(are_equal(digests_by_all_ways(ls::OneDevice<Float>{.virtual_shards = 4}, optimizer)));
    CHECK(are_equal(digests_by_all_ways(ls::Mirrored<Float>{.replicas = 3}, optimizer)));
  };
  check(ls::SGD{.learning_rate = 0.05, .momentum = 0.9});
  check(ls::Adam{.learning_rate = ls::ExponentialDecay{0.01, 3, 0.9}});
  check(ls::Adam{.learning_rate = 0.01,
                 .weight_decay = 0.01,
                 .with = {.global_clipnorm = 1,
                          .use_ema = true,
                          .ema_momentum = 0.9,
                          .ema_overwrite_frequency = 5,
                          .gradient_accumulation_steps = 2}});
  check(ls::Lamb{.learning_rate = 0.01});
}

TEST_CASE("every way to write a training has the same bits in jobs of several processes") {
  const ls::Adam adam{.learning_rate = 0.01};
  const auto one = digests_by_all_ways(ls::OneDevice<Float>{.virtual_shards = 4}, adam);
  for (const std::vector<std::size_t>& job :
       {std::vector<std::size_t>{1, 1}, {2, 2}, {1, 1, 1, 1}}) {
    std::mutex mutex;
    testing::run_workers<Float>(job, 4, [&](const auto& worker) {
      const auto found = digests_by_all_ways(worker, adam);
      const std::scoped_lock lock(mutex);
      CHECK(found == one);
    });
  }
}

TEST_CASE("a batch in memory trains a job as one device, passed whole or in parts") {
  const Points<Float::real> all;
  const auto train = [&](auto& m, auto&&... scope) {
    double loss = 0;
    for (int i = 0; i < 3; ++i) loss = m.train_on_batch(scope..., all.x, all.y, all.w)["loss"];
    return loss;
  };
  auto alone = classifier_on(ls::OneDevice<Float>{.virtual_shards = 4});
  const double loss = train(alone);
  const auto outputs = alone.predict(all.x, 29);
  const double tested = alone.test_on_batch(all.x, all.y, all.w)["loss"];
  for (const std::vector<std::size_t>& job : {std::vector<std::size_t>{1, 1}, {2, 2}}) {
    std::mutex mutex;
    testing::run_workers<Float>(job, 4, [&](const auto& worker) {
      const ls::Slice mine =
          worker.process == 0 ? ls::Slice{0, 15} : ls::Slice{15, 14};  // of 4 slices of 29
      auto whole = classifier_on(worker), parts = classifier_on(worker);
      const double first = train(whole, ls::global_batch);
      double second = 0;
      for (int i = 0; i < 3; ++i)
        second =
            parts.train_on_batch(ls::local_batch, all.xs(mine), all.ys(mine), all.ws(mine))["loss"];
      const auto predicted = whole.predict(ls::global_batch, all.x);
      const auto own = parts.predict(ls::local_batch, all.xs(mine));
      const double its = whole.test_on_batch(ls::global_batch, all.x, all.y, all.w)["loss"];
      const double of_parts =
          parts.test_on_batch(ls::local_batch, all.xs(mine), all.ys(mine), all.ws(mine))["loss"];
      const std::scoped_lock lock(mutex);
      CHECK(whole.weights_sha256() == alone.weights_sha256());
      CHECK(parts.weights_sha256() == alone.weights_sha256());
      CHECK(first == loss);
      CHECK(second == loss);
      CHECK(its == tested);
      CHECK(of_parts == tested);
      CHECK(std::ranges::equal(predicted.elements(), outputs.elements()));
      CHECK(std::ranges::equal(own.elements(),
                               outputs.elements().subspan(3 * mine.first, 3 * mine.count)));
    });
  }
}

TEST_CASE("batches in memory that do not fit are refused in all processes alike") {
  const Points<Float::real> all(12);
  const auto part = [&](std::size_t first, std::size_t count) { return ls::Slice{first, count}; };
  CHECK_THAT(refusal_in_all({1, 1}, [&](auto& m, std::size_t) { m.train_on_batch(all.x, all.y); }),
             ContainsSubstring("train_on_batch: in a job of several processes a batch in memory "
                               "needs its scope: pass ls::global_batch"));
  CHECK_THAT(refusal_in_all({1, 1}, [&](auto& m, std::size_t) { m.predict(all.x); }),
             ContainsSubstring("predict: in a job of several processes"));
  CHECK_THAT(refusal_in_all({1, 1},
                            [&](auto& m, std::size_t p) {
                              m.train_on_batch(p == 0 ? ls::global_batch : ls::local_batch, all.x,
                                               all.y);
                            }),
             ContainsSubstring("rank 1 passes ls::local_batch, rank 0 ls::global_batch"));
  CHECK_THAT(refusal_in_all({1, 2},
                            [&](auto& m, std::size_t p) {
                              const ls::Slice mine = part(0, p == 0 ? 12 : 11);
                              m.test_on_batch(ls::global_batch, all.xs(mine), all.ys(mine));
                            }),
             ContainsSubstring("test_on_batch: rank 1 passes 11 examples, rank 0 12"));
  CHECK_THAT(refusal_in_all({1, 1, 1},
                            [&](auto& m, std::size_t p) {
                              auto x = all.x;
                              if (p == 2) x[5] += 1;
                              m.train_on_batch(ls::global_batch, x, all.y);
                            }),
             ContainsSubstring("the values that rank 2 passes are not those of rank 0"));
  CHECK_THAT(refusal_in_all({1, 2},
                            [&](auto& m, std::size_t p) {
                              const ls::Slice mine = p == 0 ? part(0, 6) : part(6, 6);
                              m.train_on_batch(ls::local_batch, all.xs(mine), all.ys(mine));
                            }),
             ContainsSubstring("the processes pass 6, 6 examples, but lockstep divides these 12 "
                               "into 4, 8"));
  CHECK_THAT(refusal_in_all({1, 1},
                            [&](auto& m, std::size_t p) {
                              const ls::Slice mine = part(6 * p, 6);
                              if (p == 0)
                                m.batch(ls::local_batch, all.xs(mine), all.ys(mine), all.ws(mine));
                              else
                                m.batch(ls::local_batch, all.xs(mine), all.ys(mine));
                            }),
             ContainsSubstring("rank 1 and rank 0 differ in whether they pass sample weights"));
}

TEST_CASE("a process whose share is empty takes part in every step") {
  const Points<Float::real> nine(9), one(1);
  const auto train = ls::tensors(nine.x, ls::shape(2), nine.y) | ls::batch(4);  // 4, 4, 1
  const auto digest = [&](const auto& strategy) {
    auto m = classifier_on<Noisy>(strategy);
    m.fit(train, line::quiet(2), [&](const auto& batch) {
      const std::vector<std::int32_t> y(batch.y().begin(), batch.y().end());
      const std::vector<float> w(batch.size(), 1), dy(3 * batch.size(), 0.1F);
      m.train_step(batch.with_targets(y).with_weights(w));
      m.apply(m.gradients_of(batch, dy));
      m.input_gradients(batch);
      m.predict(batch);
    });
    return m.weights_sha256();
  };
  auto alone = classifier_on<Noisy>(ls::OneDevice<Float>{.virtual_shards = 4});
  const std::string expected = digest(ls::OneDevice<Float>{.virtual_shards = 4});
  std::mutex mutex;
  std::vector<std::string> found;
  testing::run_workers<Float>({1, 1}, 4, [&](const auto& worker) {
    const std::string its = digest(worker);
    auto m = classifier_on<Noisy>(worker);
    const ls::Slice mine = worker.process == 0 ? ls::Slice{0, 1} : ls::Slice{1, 0};
    m.train_on_batch(ls::local_batch, one.xs(mine), one.ys(mine), one.ws(mine));
    const std::string of_one = m.weights_sha256();
    const std::scoped_lock lock(mutex);
    found.push_back(its);
    found.push_back(of_one);
  });
  alone.train_on_batch(one.x, one.y, one.w);
  CHECK(std::count(found.begin(), found.end(), expected) == 2);
  CHECK(std::count(found.begin(), found.end(), alone.weights_sha256()) == 2);
  CHECK_THAT(refusal_in_all({1, 1},
                            [&](auto& m, std::size_t) {
                              m.train_on_batch(ls::local_batch, one.xs({0, 0}), one.ys({0, 0}));
                            }),
             ContainsSubstring("the batch is empty"));
}

TEST_CASE(
    "a model of one process takes the share of a job as a batch of its own, and others refuse it") {
  const auto train = batches();
  std::atomic<int> wrong = 0;
  testing::run_workers<Float>({1, 1}, 0, [&](const auto& worker) {
    auto m = classifier_on<line::Classes>(worker);
    auto teacher = classifier_on<line::Classes>(ls::OneDevice<Float>{}),
         copy = classifier_on<line::Classes>(ls::OneDevice<Float>{});
    for (const auto& batch : m.batches(train)) {
      const auto rows = teacher.predict(batch), expected = copy.predict(batch.x(), batch.size());
      wrong += !std::ranges::equal(rows.elements(), expected.elements());
      wrong +=
          teacher.train_step(batch)["loss"] != copy.train_on_batch(batch.x(), batch.y())["loss"];
      m.train_step(batch);
    }
    wrong += teacher.weights_sha256() != copy.weights_sha256();
  });
  CHECK(wrong == 0);

  struct Wide : ls::Sequential<ls::Input<9>, ls::Dense<3>> {};
  auto wide = classifier_on<Wide>(ls::OneDevice<Float>{});
  auto narrow = classifier_on(ls::OneDevice<Float>{});
  const Points<Float::real> all(4);
  const auto batch = narrow.batch(all.x, all.y);
  for (const auto& call : std::vector<std::function<void()>>{[&] { wide.train_step(batch); },
                                                             [&] { wide.predict(batch); },
                                                             [&] { wide.input_gradients(batch); }})
    CHECK_THROWS_WITH(call(),
                      ContainsSubstring("the batch has 2 values of input and 1 of target for "
                                        "each example, but the model reads 9 and 1"));
  std::mutex mutex;
  std::string refused;
  testing::run_workers<Float>({1, 1}, 0, [&](const auto& worker) {
    auto m = classifier_on(worker);
    const ls::Slice part{2 * worker.process, 2};
    auto share = m.batch(ls::local_batch, all.xs(part), all.ys(part)).loaded();
    share.slice.first = 1;
    try {
      m.train_step(ls::Batch<float, std::int32_t>(share, {2, 1, 1}));
    } catch (const ls::UsageError& e) {
      const std::scoped_lock lock(mutex);
      refused += e.what();
    }
  });
  CHECK_THAT(refused,
             ContainsSubstring("has examples 1 to 3 of 4, but this process computes 0 to 2"));
  CHECK_THAT(refused,
             ContainsSubstring("has examples 1 to 3 of 4, but this process computes 2 to 4"));
}

TEST_CASE("wrong values of a batch are refused with what and how many") {
  auto m = classifier_on(ls::OneDevice<Float>{});
  const Points<Float::real> all(4);
  const auto batch = m.batch(all.x, all.y, all.w);
  CHECK(batch.size() == 4);
  CHECK(batch.global_size() == 4);
  CHECK(batch.first() == 0);
  CHECK(std::ranges::equal(batch.x(), all.x));
  CHECK(std::ranges::equal(batch.y(), all.y));
  CHECK(std::ranges::equal(batch.weights(), all.w));
  CHECK(m.batch(all.x, all.y).weights().empty());
  const std::vector<std::int32_t> wrong{0, 1, 3, 0}, few{1};
  CHECK_THROWS_WITH(m.train_step(batch.with_targets(wrong)), ContainsSubstring("label 3"));
  CHECK_THROWS_WITH(batch.with_targets(few),
                    ContainsSubstring("with_targets: 4 examples need 4 values, not 1"));
  const std::vector<float> nan(4, std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_WITH(m.gradients_of(batch.with_weights(nan)),
                    ContainsSubstring("gradients_of: example 0 has weight nan"));
  CHECK_THROWS_AS(batch.with_inputs(nan), ls::UsageError);
  const auto before = m.weights_sha256();
  CHECK_THROWS_AS(m.batch(std::vector<float>{}, std::vector<std::int32_t>{}), ls::UsageError);
  CHECK(m.weights_sha256() == before);
}

TEST_CASE("input gradients are the derivatives of the loss of a training step") {
  const Points<double> all(7);
  const auto check = [&](const auto& strategy) {
    auto m = classifier_on(strategy);
    m.train_on_batch(all.x, all.y);  // the second step's random draws
    const std::string before = m.weights_sha256();
    const auto found = m.input_gradients(m.batch(all.x, all.y, all.w));
    REQUIRE(found.size() == all.x.size());
    CHECK(m.weights_sha256() == before);
    CHECK(m.steps() == 1);
    for (std::size_t i = 0; i < all.x.size(); ++i) {
      const auto loss_at = [&](double change) {
        auto x = all.x;
        x[i] += change;
        auto other = classifier_on(strategy);
        other.train_on_batch(all.x, all.y);
        return other.gradients_of(other.batch(x, all.y, all.w)).logs()["loss"];
      };
      CHECK(std::abs((loss_at(1e-5) - loss_at(-1e-5)) / 2e-5 - found[i]) < 1e-8);
    }
  };
  check(ls::OneDevice<Double>{});
  check(ls::Mirrored<Double>{.replicas = 2});
  check(ls::OneDevice<Double>{.virtual_shards = 4});
}

TEST_CASE("derivatives by the outputs give the gradients of the program's own loss") {
  const auto list = [](const auto& g) {
    return std::vector<double>(g.values().begin(), g.values().end());
  };
  const Points<double> all(9);
  const auto check = [&](const auto& strategy) {
    std::vector<double> t(27), dy(27);
    for (std::size_t i = 0; i < 27; ++i) t[i] = static_cast<double>(i % 4), dy[i] = t[i] / 9;
    auto m = ls::Model{Noisy{}, ls::Seed{7}, strategy, ls::MeanSquaredError{}, ls::SGD{}};
    auto linear = ls::Model{Noisy{}, ls::Seed{7}, strategy, OutputProduct{}, ls::SGD{}};
    const auto found = list(m.gradients_of(m.batch(all.x), dy));
    CHECK(distance(found, list(linear.gradients_of(linear.batch(all.x, t)))) < 1e-14);
    CHECK(distance(found, list(m.gradients_of(m.batch(all.x, t)))) > 1e-3);
    CHECK_THROWS_WITH(m.gradients_of(m.batch(all.x)),
                      ContainsSubstring("gradients_of: the batch has no targets"));
    CHECK_THROWS_WITH(m.gradients_of(m.batch(all.x), std::span<const double>(dy).subspan(1)),
                      ContainsSubstring("gradients_of: 9 examples need 27 values, not 26"));
  };
  check(ls::OneDevice<Double>{});
  check(ls::Mirrored<Double>{.replicas = 2});
  check(ls::OneDevice<Double>{.virtual_shards = 4});

  std::vector<double> dy(27);
  for (std::size_t i = 0; i < 27; ++i) dy[i] = static_cast<double>(i % 5) - 2;
  auto one = classifier_on<Noisy>(ls::OneDevice<Double>{});
  const auto expected = list(one.gradients_of(one.batch(all.x), dy));
  std::mutex mutex;
  testing::run_workers<Double>({1, 1}, 0, [&](const auto& worker) {
    const ls::Slice mine = worker.process == 0 ? ls::Slice{0, 5} : ls::Slice{5, 4};
    auto m = classifier_on<Noisy>(worker);
    const auto whole = list(m.gradients_of(m.batch(ls::global_batch, all.x), dy));
    const auto part =
        list(m.gradients_of(m.batch(ls::local_batch, all.xs(mine)),
                            std::span<const double>(dy).subspan(3 * mine.first, 3 * mine.count)));
    const std::scoped_lock lock(mutex);
    CHECK(distance(whole, expected) < 1e-14);
    CHECK(distance(part, expected) < 1e-14);
  });
}

TEST_CASE("each process has the input gradients of the batch that it passes") {
  const Points<double> all(9);
  auto alone = classifier_on<Noisy>(ls::OneDevice<Double>{});
  const auto expected = alone.input_gradients(alone.batch(all.x, all.y));
  std::mutex mutex;
  testing::run_workers<Double>({1, 1}, 0, [&](const auto& worker) {
    const ls::Slice mine = worker.process == 0 ? ls::Slice{0, 5} : ls::Slice{5, 4};
    auto m = classifier_on<Noisy>(worker);
    const auto whole = m.input_gradients(m.batch(ls::global_batch, all.x, all.y));
    const auto part = m.input_gradients(m.batch(ls::local_batch, all.xs(mine), all.ys(mine)));
    const std::scoped_lock lock(mutex);
    CHECK(distance(whole, expected) < 1e-14);
    CHECK(distance(part, {expected.begin() + static_cast<std::ptrdiff_t>(2 * mine.first),
                          expected.begin() +
                              static_cast<std::ptrdiff_t>(2 * (mine.first + mine.count))}) < 1e-14);
  });
}

TEST_CASE("the logs of an epoch have the first loss of each step") {
  const auto train = batches();
  auto steps = std::make_shared<line::StepLosses>();
  auto options = line::quiet(1);
  options.callbacks = {steps};
  options.steps_per_execution = 2;
  auto plain = classifier_on(ls::Mirrored<Float>{.replicas = 2});
  const auto expected = plain.fit(train, options)["loss"];
  const auto losses = steps->losses;

  steps->losses.clear();
  auto m = classifier_on(ls::Mirrored<Float>{.replicas = 2});
  const auto history = m.fit(train, options, [&](const auto& batch) {
    const std::vector<float> twice(batch.size(), 2);
    const auto gradients = m.gradients_of(batch);
    m.gradients_of(batch.with_weights(twice));
    m.test_step(batch);
    m.apply(gradients);
  });
  CHECK(history["loss"] == expected);
  CHECK(steps->losses == losses);
  CHECK(m.steps() == plain.steps());
}

TEST_CASE("fit and evaluate are refused within a step, whose error leaves the model usable") {
  auto m = classifier_on(ls::Mirrored<Float>{.replicas = 2});
  const auto train = batches();
  CHECK_THROWS_WITH(m.fit(train, line::quiet(), [&](const auto&) { m.evaluate(train); }),
                    ContainsSubstring("evaluate: it cannot be called in the step of a fit"));
  CHECK_THROWS_WITH(m.fit(train, line::quiet(), [&](const auto&) { m.fit(train, line::quiet()); }),
                    ContainsSubstring("fit: it cannot be called in the step of a fit"));
  CHECK_THROWS_AS(m.fit(train, line::quiet(),
                        [&](const auto& batch) {
                          m.gradients_of(batch);
                          throw std::runtime_error("own");
                        }),
                  std::runtime_error);
  m.fit(train, line::quiet());
  CHECK(m.evaluate(train)["loss"] > 0);
}

TEST_CASE("requests of callbacks reach all processes, whatever a step exchanges") {
  struct Stop : ls::Callback {
    void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
      if (batch == 2) control().stop_training();
    }
  };
  for (int kind = 0; kind < 4; ++kind) {
    std::atomic<std::uint64_t> steps = 0;
    testing::run_workers<Float>({1, 1, 1}, 0, [&](const auto& worker) {
      auto m = classifier_on(worker);
      auto options = line::quiet(3);
      if (worker.process == 1) options.callbacks = {std::make_shared<Stop>()};
      std::uint64_t calls = 0;
      m.fit(batches(), options, [&](const auto& batch) {
        ++calls;
        if (kind >= 1) m.apply(m.gradients_of(batch));
        if (kind == 2) m.test_step(batch);
        if (kind == 3) m.predict(batch);
      });
      steps += calls;
    });
    CHECK(steps == 3 * 4);  // the request travels with the fourth step
  }
}

TEST_CASE("a learning rate that one process sets within a step is that of all from then on") {
  std::atomic<int> wrong = 0;
  testing::run_workers<Float>({1, 1}, 0, [&](const auto& worker) {
    auto m = classifier_on<Noisy>(worker, ls::SGD{.learning_rate = 0.1});
    m.fit(batches(), line::quiet(), [&](const auto& batch) {
      if (worker.process == 1 && m.steps() == 2) m.set_learning_rate(0.25);
      const auto gradients = m.gradients_of(batch);
      m.test_step(batch);
      wrong += gradients.learning_rate() != (m.steps() < 2 ? 0.1 : 0.25);
      m.apply(gradients);
    });
    wrong += m.learning_rate() != 0.25;
  });
  CHECK(wrong == 0);
}

TEST_CASE("moving averages stay where they are in a test, and finalize_weights needs an update") {
  const ls::Adam adam{.learning_rate = 0.01, .with = {.use_ema = true, .ema_momentum = 0.5}};
  auto m = classifier_on<Noisy>(ls::OneDevice<Float>{}, adam);
  const std::string initial = m.weights_sha256();
  m.finalize_weights();
  CHECK(m.weights_sha256() == initial);

  struct Tests : ls::Callback {
    std::function<void()> test;
    void on_epoch_end(int, const ls::Logs&) override { test(); }
  };
  const auto tests = std::make_shared<Tests>();
  const auto data = line::classes(20) | ls::batch(20);
  int calls = 0;
  tests->test = [&] {
    const std::string before = m.weights_sha256();
    const double evaluated = m.evaluate(data)["loss"];
    for (const auto& batch : m.batches(data)) {
      CHECK(m.test_step(batch)["loss"] == evaluated);
      m.input_gradients(batch);
      ++calls;
    }
    CHECK(m.weights_sha256() == before);
  };
  auto options = line::quiet(2);
  options.callbacks = {ls::SwapEMAWeights{.swap_on_epoch = true}, tests};
  m.fit(batches(), options);
  CHECK(calls == 2);
}

TEST_CASE("a network without a layer that computes has gradients of nothing") {
  struct Views : ls::Sequential<ls::Input<3>, ls::Flatten> {};
  ls::Model m{Views{}, ls::OneDevice<Float>{}, ls::MeanSquaredError{}, ls::SGD{}};
  const std::vector<float> x{1, 2, 3};
  CHECK(m.gradients_of(m.batch(x, x)).values().empty());
  CHECK(m.gradients_of(m.batch(x), x).values().empty());
  CHECK_THROWS_WITH(m.input_gradients(m.batch(x, x)),
                    ContainsSubstring("input_gradients: the network has no layer that computes"));
}

TEST_CASE("a step whose loss is the program's own leaves none in the logs") {
  auto m = classifier_on<Noisy>(ls::OneDevice<Float>{});
  double tested = 0;
  const auto history =
      m.fit(line::classes(8) | ls::batch(8), line::quiet(), [&](const auto& batch) {
        const std::vector<float> dy(3 * batch.size());
        m.gradients_of(batch, dy);
        tested = m.gradients_of(batch).logs()["loss"];
      });
  CHECK(history["loss"][0] == tested);
  CHECK_FALSE(m.fit(line::classes(8) | ls::batch(8), line::quiet(), [&](const auto& batch) {
                 const std::vector<float> dy(3 * batch.size());
                 m.apply(m.gradients_of(batch, dy));
               }).contains("loss"));
}

TEST_CASE("a learning rate that one process sets is that of all from the next step on") {
  std::atomic<int> wrong = 0;
  testing::run_workers<Float>({1, 1}, 0, [&](const auto& worker) {
    auto m = classifier_on(worker, ls::SGD{.learning_rate = 0.1});
    for (const auto& batch : m.batches(batches())) {
      if (worker.process == 1 && m.steps() == 2) m.set_learning_rate(0.25);
      const auto gradients = m.gradients_of(batch);
      wrong += gradients.learning_rate() != (m.steps() < 2 ? 0.1 : 0.25);
      m.apply(gradients);
    }
    wrong += m.learning_rate() != 0.25;
    const auto digests = m.job_replica_weights_sha256();
    wrong += digests[0] != digests[1];
  });
  CHECK(wrong == 0);
}

TEST_CASE("a pass that a loop leaves continues with the batch that follows") {
  const auto train = batches();
  auto one = classifier_on(ls::OneDevice<Float>{}), other = classifier_on(ls::OneDevice<Float>{});
  while (one.passes() < 3)
    for (const auto& batch : one.batches(train)) one.train_step(batch);
  for (int breaks = 0; other.passes() < 3; ++breaks)
    for (const auto& batch : other.batches(train)) {
      other.train_step(batch);
      if (breaks % 3 != 2) break;
    }
  CHECK(one.steps() == 18);
  CHECK(other.steps() == 18);
  CHECK(one.weights_sha256() == other.weights_sha256());
}

TEST_CASE("loops over batches of a model do not overlap, nor with fit, nor do they mix data sets") {
  const auto train = batches();
  const auto other = line::classes(16) | ls::batch(4);
  auto m = classifier_on(ls::OneDevice<Float>{});
  for (const auto& batch : m.batches(train)) {
    m.train_step(batch);
    CHECK_THROWS_WITH(
        [&] {
          for (const auto& inner : m.batches(other)) m.train_step(inner);
        }(),
        ContainsSubstring("batches: another loop over batches of this model runs"));
    CHECK_THROWS_WITH(m.fit(train, line::quiet()),
                      ContainsSubstring("fit: a loop over batches of this model runs"));
    break;
  }
  std::size_t count = 0;
  for (const auto& batch : m.batches(other)) count += batch.size();
  CHECK(count == 16);
  m.fit(train, line::quiet());
}

TEST_CASE("class weights and sample weights of the data are those of fit") {
  const auto weighted =
      line::classes(40) | ls::sample_weights(std::vector<float>(40, 1.5F)) | ls::batch(8);
  auto a = classifier_on(ls::OneDevice<Float>{}), b = classifier_on(ls::OneDevice<Float>{});
  auto options = line::quiet();
  options.class_weight = {{0, 2.0}};
  a.fit(weighted, options);
  for (const auto& batch : b.batches(weighted, {.class_weight = {{0, 2.0}}})) b.train_step(batch);
  CHECK(a.weights_sha256() == b.weights_sha256());
}

namespace {

struct Pixels
    : ls::Sequential<ls::Input<3, 2, 1>, ls::Conv2D<4, 3, ls::same>, ls::ReLU, ls::Conv2D<3, 1>> {};

/// Seven images with a label per pixel, of which some are ignored; all of the last one.
template <class T>
struct Images {
  std::vector<T> x, w;
  std::vector<std::int32_t> y;
  Images() {
    ls::Philox g(9);
    for (std::size_t i = 0; i < 7 * 6; ++i) {
      x.push_back(static_cast<T>(static_cast<float>(g.normal())));
      y.push_back(i >= 36 || i % 5 == 0 ? 255 : static_cast<std::int32_t>(i % 3));
      w.push_back(static_cast<T>(1 + i % 4));
    }
  }
};

template <class S>
auto pixels_on(const S& strategy) {
  return ls::Model{Pixels{},
                   ls::Seed{7},
                   strategy,
                   ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = 255},
                   ls::Adam{.learning_rate = 0.01},
                   ls::Accuracy{.ignore_class = 255}};
}

/// Each way to write a training, with ignored labels.
template <class S>
std::vector<std::string> pixel_digests(const S& strategy) {
  const Images<float> all;
  const auto train = ls::tensors(all.x, ls::shape(3, 2, 1), all.y, ls::shape(3, 2)) |
                     ls::shuffle(7) | ls::batch(3);
  auto fitted = pixels_on(strategy), stepped = pixels_on(strategy), looped = pixels_on(strategy);
  fitted.fit(train, line::quiet(2));
  stepped.fit(train, line::quiet(2), [&](const auto& batch) {
    stepped.input_gradients(batch);
    stepped.apply(stepped.gradients_of(batch));
  });
  while (looped.passes() < 2)
    for (const auto& batch : looped.batches(train)) looped.train_step(batch);
  return {fitted.weights_sha256(), stepped.weights_sha256(), looped.weights_sha256()};
}

}  // namespace

TEST_CASE(
    "own steps with a label per pixel: ignored labels have the bits of fit on every strategy") {
  const auto one = pixel_digests(ls::OneDevice<Float>{.virtual_shards = 4});
  CHECK(are_equal(one));
  CHECK(are_equal(pixel_digests(ls::Mirrored<Float>{.replicas = 3})));
  CHECK(pixel_digests(ls::Mirrored<Float>{.replicas = 4, .virtual_shards = 4}) == one);
  std::mutex mutex;
  testing::run_workers<Float>({1, 1}, 4, [&](const auto& worker) {
    const auto found = pixel_digests(worker);
    const std::scoped_lock lock(mutex);
    CHECK(found == one);
  });

  const Images<float> all;
  const auto in_memory = [&](const auto& strategy, auto... scope) {
    auto m = pixels_on(strategy);
    const double loss = m.test_on_batch(scope..., all.x, all.y, all.w)["loss"];
    m.train_on_batch(scope..., all.x, all.y, all.w);
    m.apply(m.gradients_of(m.batch(scope..., all.x, all.y, all.w)));
    const auto dx = m.input_gradients(m.batch(scope..., all.x, all.y));
    return std::pair(m.weights_sha256(), std::vector<double>{loss, static_cast<double>(dx[0])});
  };
  const auto whole = in_memory(ls::OneDevice<Float>{.virtual_shards = 4});
  for (const std::vector<std::size_t>& job : {std::vector<std::size_t>{1, 1}, {2, 2}, {1, 1, 1, 1}})
    testing::run_workers<Float>(job, 4, [&](const auto& worker) {
      const auto found = in_memory(worker, ls::global_batch);
      const std::scoped_lock lock(mutex);
      CHECK(found == whole);
    });
  testing::run_workers<Float>({1, 1}, 4, [&](const auto& worker) {
    const std::size_t first = worker.process == 0 ? 0 : 4, count = worker.process == 0 ? 4 : 3;
    const auto part = [&](const auto& values) {
      return std::span(values).subspan(6 * first, 6 * count);
    };
    auto m = pixels_on(worker);
    const double loss =
        m.test_on_batch(ls::local_batch, part(all.x), part(all.y), part(all.w))["loss"];
    const std::scoped_lock lock(mutex);
    CHECK(loss == whole.second[0]);
  });
}

TEST_CASE(
    "own steps with a label per pixel: gradients of inputs, and weights of images and pixels") {
  const Images<double> all;
  for (const std::size_t shards : {0u, 4u}) {
    const ls::OneDevice<Double> device{.virtual_shards = shards};
    auto m = pixels_on(device);
    const auto batch = m.batch(all.x, all.y, all.w);
    const auto found = m.input_gradients(batch);
    for (std::size_t i = 0; i < all.x.size(); i += 5) {
      const auto loss_at = [&](double change) {
        auto x = all.x;
        x[i] += change;
        return m.test_step(batch.with_inputs(x))["loss"];
      };
      CHECK(std::abs((loss_at(1e-6) - loss_at(-1e-6)) / 2e-6 - found[i]) < 1e-8);
    }
    std::vector<double> of_images, of_pixels;
    for (std::size_t i = 0; i < 7; ++i) {
      of_images.push_back(all.w[i]);
      of_pixels.insert(of_pixels.end(), 6, all.w[i]);
    }
    const auto unweighted = m.batch(all.x, all.y);
    const auto gradients = [&](const auto& weighted) {
      const auto g = m.gradients_of(weighted);
      return std::vector<double>(g.values().begin(), g.values().end());
    };
    CHECK(gradients(unweighted.with_weights(of_images)) ==
          gradients(unweighted.with_weights(of_pixels)));
    CHECK(gradients(m.batch(all.x, all.y, of_images)) ==
          gradients(unweighted.with_weights(of_pixels)));
    CHECK(gradients(unweighted.with_weights(of_images)) != gradients(unweighted));
    CHECK_THROWS_WITH(unweighted.with_weights(std::span<const double>(of_pixels).first(8)),
                      ContainsSubstring("with_weights: 7 examples need 42 values, not 8"));
  }
}
