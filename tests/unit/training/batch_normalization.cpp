/// \file
/// Running statistics when a batch is divided among replicas, or among slices of one replica.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/core/slice.hpp"
#include "support/workers.hpp"
#include "unit/training/mirrored_support.hpp"

namespace {

using namespace replicas;  // NOLINT: the fixture of this file
using Double = ls::Reference<double>;
template <class T>
using Mirrored = ls::Mirrored<ls::Reference<T>>;

struct Plain : ls::Sequential<ls::Input<2>, ls::BatchNormalization<ls::momentum(0.9)>, ls::Dense<6>,
                              ls::BatchNormalization<>, ls::ReLU, ls::Dense<3>> {};
struct Synchronized
    : ls::Sequential<ls::Input<2>, ls::BatchNormalization<ls::synchronized>, ls::Dense<6>,
                     ls::BatchNormalization<ls::momentum(0.9), ls::synchronized>, ls::ReLU,
                     ls::Dense<3>> {};
/// State that training does not change; averaging it over replicas would round it.
struct Both : ls::Sequential<ls::Input<2>, ls::Normalization, ls::Dense<6>,
                             ls::BatchNormalization<ls::synchronized>, ls::Dense<6>,
                             ls::BatchNormalization<>, ls::Dense<3>> {};
struct Trapped : ls::Sequential<ls::Input<2>, ls::BatchNormalization<>, ls::Dense<4>,
                                ls::BatchNormalization<ls::synchronized>, Trap, ls::Dense<3>> {};

ls::SGD sgd() { return {.learning_rate = 0.05, .momentum = 0.9}; }

/// Running statistics of Plain's first layer after one epoch, computed by hand with each batch
/// divided into `slices`.
std::vector<double> moving_by_hand(std::size_t examples, std::size_t batch, std::size_t slices) {
  const auto data = line::classes(examples);
  std::vector<double> moving{0, 0, 1, 1};
  for (std::size_t first = 0; first < examples; first += batch) {
    const std::size_t count = std::min(batch, examples - first);
    std::array<double, 4> mean{};
    for (std::size_t s = 0; s < slices; ++s) {
      const ls::Slice part = ls::slice_of(count, slices, s);
      for (std::size_t k = 0; k < 2 && part.count > 0; ++k) {
        double sum = 0, squares = 0;
        const auto at = [&](std::size_t i) {
          return static_cast<double>(data.features()[2 * (first + part.first + i) + k]);
        };
        for (std::size_t i = 0; i < part.count; ++i) sum += at(i);
        const double m = sum / static_cast<double>(part.count);
        for (std::size_t i = 0; i < part.count; ++i) squares += (at(i) - m) * (at(i) - m);
        mean[k] += sum / static_cast<double>(count);
        mean[2 + k] += squares / static_cast<double>(count);
      }
    }
    for (std::size_t k = 0; k < 4; ++k) moving[k] = 0.9 * moving[k] + 0.1 * mean[k];
  }
  return moving;
}

/// The same statistics, computed by a model.
template <class S>
std::vector<double> moving_by(const S& strategy, std::size_t examples, std::size_t batch) {
  ls::Model m{Plain{}, ls::Seed{3}, strategy, crossentropy, sgd()};
  auto options = line::quiet();
  options.verify_every = 1;
  m.fit(line::classes(examples) | ls::batch(batch), options);
  std::vector<double> moving;
  for (const char* const name : {"moving_mean", "moving_variance"})
    for (const auto v : m.weights(std::string("batch_normalization/") + name))
      moving.push_back(static_cast<double>(v));
  return moving;
}

}  // namespace

TEST_CASE("synchronized normalization trains N replicas as one, for every division of a batch") {
  for (const std::size_t batch : {5u, 16u}) {
    const Result one = run<Synchronized>(ls::OneDevice<Double>{}, 21, batch, sgd());
    for (std::size_t n = 1; n <= 8; ++n) {
      CAPTURE(batch, n);
      same(run<Synchronized>(Mirrored<double>{.replicas = n}, 21, batch, sgd()), one);
    }
  }
}

TEST_CASE("plain normalization leaves replicas equal, with the mean of their running statistics") {
  for (const std::size_t batch : {3u, 8u, 16u})
    for (std::size_t n = 1; n <= 8; ++n) {
      CAPTURE(batch, n);
      CHECK(distance(moving_by(Mirrored<double>{.replicas = n}, 21, batch),
                     moving_by_hand(21, batch, n)) < 1e-12);
      CHECK(distance(moving_by(Mirrored<float>{.replicas = n}, 21, batch),
                     moving_by_hand(21, batch, n)) < 1e-6);
    }
}

TEST_CASE("plain normalization of virtual shards gives the same bits for 1, 2, 4 and 8 replicas") {
  const Result alone =
      run<Plain>(ls::OneDevice<ls::Reference<float>>{.virtual_shards = 8}, 70, 16, sgd(), 10);
  for (const std::size_t n : {1u, 2u, 4u, 8u}) {
    CAPTURE(n);
    const Result many =
        run<Plain>(Mirrored<float>{.replicas = n, .virtual_shards = 8}, 70, 16, sgd(), 10);
    CHECK(many.digest == alone.digest);
    CHECK(many.tested == alone.tested);
    CHECK(distance(moving_by(Mirrored<double>{.replicas = n, .virtual_shards = 8}, 21, 5),
                   moving_by_hand(21, 5, 8)) < 1e-12);
  }
}

TEST_CASE("synchronized normalization rejects virtual shards") {
  CHECK_THROWS_WITH(
      (ls::Model{Synchronized{}, ls::OneDevice<Double>{.virtual_shards = 4}, crossentropy, sgd()}),
      Catch::Matchers::ContainsSubstring(
          "virtual_shards: layer batch_normalization communicates between"));
}

TEST_CASE("state that training does not change stays as it is, bit for bit") {
  ls::Model m{Both{}, ls::Seed{3}, Mirrored<float>{.replicas = 3}, crossentropy, sgd()};
  m.set_weights("normalization/mean", std::vector<float>{0.1f, 0.3f});
  m.set_weights("normalization/variance", std::vector<float>{0.7f, 1.1f});
  auto options = line::quiet(3);
  options.verify_every = 1;
  m.fit(line::classes(40) | ls::batch(7), options);
  CHECK(m.weights("normalization/mean") == std::vector<float>{0.1f, 0.3f});
  CHECK(m.weights("normalization/variance") == std::vector<float>{0.7f, 1.1f});
}

TEST_CASE("a failed step restores the running statistics of the step before, in all replicas") {
  struct Untrap {
    ~Untrap() { Trap::when = Trap::When::never; }
  } untrap;
  const auto data = line::classes(40) | ls::batch(10);
  const auto check = [&](const auto& strategy, std::size_t guilty) {
    for (const auto when : {Trap::When::forward, Trap::When::backward}) {
      Trap::step = 2;
      Trap::guilty = guilty;
      Trap::when = when;
      ls::Model m{Trapped{}, strategy, crossentropy, sgd()};
      std::vector<double> last;
      auto options = line::quiet();
      options.callbacks = {
          ls::LambdaCallback{.on_train_batch_end = [&](std::size_t, const ls::Logs&) {
            last = m.weights("batch_normalization/moving_variance");
          }}};
      CHECK_THROWS_AS(m.fit(data, options), Trap::Sprung);
      Trap::when = Trap::When::never;
      CHECK(m.weights("batch_normalization/moving_variance") == last);
      const auto digests = m.replica_weights_sha256();
      CHECK(digests == std::vector<std::string>(digests.size(), m.weights_sha256()));
      CHECK_NOTHROW(m.fit(data, line::quiet()));
    }
  };
  check(ls::OneDevice<Double>{}, 0);
  check(Mirrored<double>{.replicas = 3}, 1);
}

TEST_CASE("replicas of several processes merge statistics as those of one process do") {
  const std::vector<double> one = moving_by(Mirrored<double>{.replicas = 3}, 21, 8);
  const Result synchronized = run<Synchronized>(ls::OneDevice<Double>{}, 21, 8, sgd());
  testing::run_workers<Double>({2, 1}, 0, [&](const testing::Worker<Double>& worker) {
    const auto moving = moving_by(worker, 21, 8);
    const Result many = run<Synchronized>(worker, 21, 8, sgd());
    // Catch2's assertions may be used in one thread only.
    if (distance(moving, one) > 1e-12) throw std::runtime_error("plain: different statistics");
    if (distance(many.weights, synchronized.weights) > 1e-12)
      throw std::runtime_error("synchronized: different weights");
  });
}
