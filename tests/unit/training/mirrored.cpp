#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unit/training/mirrored_support.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace replicas;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;
template <class T>
using Mirrored = ls::Mirrored<ls::Reference<T>>;
using Double = ls::Reference<double>;

/// A network with three buckets and communication within the step.
struct Exchanging : ls::Sequential<ls::Input<2>, ls::Dense<300>, Centre, ls::Tanh, ls::Dense<300>,
                                   Centre, ls::Dense<300>, ls::Dense<3>> {};
struct Trapped
    : ls::Sequential<ls::Input<2>, ls::Dense<300>, Trap, ls::Dense<300>, Trap, ls::Dense<3>> {};

struct Untrap {
  ~Untrap() {
    Trap::when = Trap::When::never;
    Trap::exits = false;
  }
};

/// How a thread that runs `body` ended.
struct ThreadEnd {
  bool returned = false, is_unwound = false, is_cancelled = false;
};
template <class Body>
ThreadEnd run_in_thread(const Body& body) {
  struct Call {
    const Body& body;
    ThreadEnd end{};
  } call{body};
  pthread_t thread{};
  REQUIRE(::pthread_create(
              &thread, nullptr,
              [](void* argument) -> void* {
                struct Unwinding {
                  ThreadEnd& end;
                  ~Unwinding() { end.is_unwound = true; }
                } unwinding{static_cast<Call*>(argument)->end};
                static_cast<Call*>(argument)->body();
                static_cast<Call*>(argument)->end.returned = true;
                return nullptr;
              },
              &call) == 0);
  void* result = nullptr;
  REQUIRE(::pthread_join(thread, &result) == 0);
  call.end.is_cancelled = result == PTHREAD_CANCELED;
  return call.end;
}

}  // namespace

TEST_CASE(
    "replicas compute the hand-computed numbers for every division of a batch, penalties once") {
  for (std::size_t n = 1; n <= 8; ++n)
    for (std::size_t batch = 1; batch <= 10; ++batch) {
      CAPTURE(n, batch);
      ls::Model m{line::Penalised{}, Mirrored<double>{.replicas = n}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.1}};
      m.set_weights("dense/kernel", std::vector{0.5});
      m.set_weights("dense/bias", std::vector{-0.25});
      auto steps = std::make_shared<line::StepLosses>();
      auto options = line::quiet();
      options.callbacks = {steps};
      m.fit(line::points() | ls::batch(batch), options);
      line::ByHand hand{.l2 = 0.25, .l1 = 0.5};
      std::size_t step = 0;
      for (std::size_t first = 0; first < 10; first += batch, ++step)
        CHECK(
            line::near(steps->losses.at(step), hand.step(first, std::min(batch, 10 - first), 0.1)));
      CHECK(step == steps->losses.size());
      CHECK(line::near(m.gradients("dense/kernel")[0], hand.d_w));
      CHECK(line::near(m.weights("dense/kernel")[0], hand.w));
      CHECK(line::near(m.weights("dense/bias")[0], hand.b));
      const double expected = hand.squares(0, 10) / 10 + hand.penalty();
      CHECK(line::near(m.evaluate(line::points() | ls::batch(batch))["loss"], expected));
    }
}

TEST_CASE("shuffle, dropout, metrics, evaluate and predict do not depend on the replicas") {
  for (const std::size_t batch : {1u, 3u, 16u, 64u}) {
    const Result one =
        run<Noisy>(ls::OneDevice<Double>{}, 42, batch, ls::Adam{.learning_rate = 0.01});
    for (std::size_t n = 1; n <= 8; ++n) {
      CAPTURE(batch, n);
      same(run<Noisy>(Mirrored<double>{.replicas = n}, 42, batch, ls::Adam{.learning_rate = 0.01}),
           one);
    }
  }
}

TEST_CASE("counting metrics are exact for every division, and metric_state returns the counts") {
  using Matrix = ls::ConfusionMatrix<3>;
  const auto data = line::classes(42);
  const auto count = [&](const auto& strategy, std::size_t batch) {
    ls::Model m{line::Classes{},
                ls::Seed{7},
                strategy,
                crossentropy,
                ls::SGD{.learning_rate = 0.1},
                ls::TopKCategoricalAccuracy{.k = 2},
                Matrix{},
                ls::MeanOf<ls::SparseCategoricalCrossentropy>{{.from_logits = true}}};
    CHECK(m.template metric_state<Matrix>() == std::vector<double>(9));
    const auto history = m.fit(data | ls::batch(batch), line::quiet(2));
    const auto trained = m.template metric_state<Matrix>();
    const auto logs = m.evaluate(data | ls::batch(batch));
    const auto matrix = m.template metric_state<Matrix>();
    CHECK(matrix != trained);
    CHECK(line::near(logs["sparse_categorical_crossentropy"], logs["loss"]));
    // Computed by hand from the outputs.
    const auto predicted = m.predict(data | ls::batch(batch));
    std::vector<double> expected(9);
    double top_2 = 0;
    for (std::size_t i = 0; i < 42; ++i) {
      const auto row = predicted.row(i);
      const auto label = static_cast<std::size_t>(data.targets()[i]);
      expected[label * 3 + static_cast<std::size_t>(std::max_element(row.begin(), row.end()) -
                                                    row.begin())] += 1;
      top_2 += std::min_element(row.begin(), row.end()) != row.begin() + data.targets()[i];
    }
    CHECK(matrix == expected);
    CHECK(logs["top_k_categorical_accuracy"] == top_2 / 42);
    return std::pair(matrix, history["confusion_matrix"]);
  };
  for (const std::size_t batch : {5u, 16u}) {
    const auto one = count(ls::OneDevice<Double>{}, batch);
    for (const std::size_t n : {2u, 3u, 8u})
      CHECK(count(Mirrored<double>{.replicas = n}, batch) == one);
    CHECK(count(Mirrored<double>{.replicas = 2, .virtual_shards = 4}, batch) == one);
  }
}

TEST_CASE("clipping, decay, accumulation and averages do not depend on the replicas") {
  const ls::UpdateOptions with{.global_clipnorm = 0.3,
                               .exclude_from_weight_decay = {"bias"},
                               .use_ema = true,
                               .ema_momentum = 0.9,
                               .ema_overwrite_frequency = 4,
                               .gradient_accumulation_steps = 2};
  const ls::AdamW adamw{.learning_rate = 0.01, .weight_decay = 0.1, .with = with};
  const Result one = run<Noisy>(ls::OneDevice<Double>{}, 42, 5, adamw);
  for (std::size_t n = 1; n <= 8; ++n) {
    CAPTURE(n);
    same(run<Noisy>(Mirrored<double>{.replicas = n}, 42, 5, adamw), one);
  }
  const auto bits = [&](std::size_t n) {
    return run<Noisy>(Mirrored<float>{.replicas = n, .virtual_shards = 8}, 42, 5, adamw).digest;
  };
  const std::string alone = bits(1);
  for (const std::size_t n : {2u, 4u, 8u}) CHECK(bits(n) == alone);
}

TEST_CASE("a layer may sum over the replicas while buckets are in flight") {
  const ls::SGD sgd{.learning_rate = 0.001, .momentum = 0.9};
  const Result one = run<Exchanging>(ls::OneDevice<Double>{}, 23, 9, sgd, 1);
  for (const std::size_t n : {2u, 3u, 8u}) {
    CAPTURE(n);
    same(run<Exchanging>(Mirrored<double>{.replicas = n}, 23, 9, sgd, 1), one);
  }
}

TEST_CASE("virtual shards give the same bits for 1, 2, 4 and 8 replicas") {
  const ls::Adam adam{.learning_rate = 0.01};
  // 200 steps; the last batch of an epoch has 6 examples, fewer than slices.
  const auto digest = [&](const auto& strategy) { return run<Noisy>(strategy, 150, 16, adam, 20); };
  const Result alone = digest(ls::OneDevice<ls::Reference<float>>{.virtual_shards = 8});
  CHECK(alone.step_losses.size() == 200);
  for (const std::size_t n : {1u, 2u, 4u, 8u}) {
    CAPTURE(n);
    const Result many = digest(Mirrored<float>{.replicas = n, .virtual_shards = 8});
    CHECK(many.digest == alone.digest);
    CHECK(many.step_losses == alone.step_losses);
    CHECK(many.epoch == alone.epoch);
    CHECK(many.tested == alone.tested);
    CHECK(many.predicted == alone.predicted);
  }
  // Without virtual shards the bits depend on the number of replicas; otherwise the test proves
  // nothing.
  CHECK(digest(Mirrored<float>{.replicas = 4}).digest !=
        digest(Mirrored<float>{.replicas = 2}).digest);
}

TEST_CASE("virtual shards stay close to the result without them") {
  const ls::Adam adam{.learning_rate = 0.01};
  const Result one = run<Noisy>(ls::OneDevice<Double>{}, 42, 16, adam);
  for (const std::size_t shards : {1u, 2u, 4u, 16u, 64u}) {
    CAPTURE(shards);
    same(run<Noisy>(ls::OneDevice<Double>{.virtual_shards = shards}, 42, 16, adam), one);
  }
}

TEST_CASE("virtual shards need buffers of partial gradients, which memory() counts") {
  const auto memory = [](const auto& strategy) {
    return ls::Model{Noisy{}, strategy, crossentropy, ls::SGD{}}.memory();
  };
  const auto plain = memory(Mirrored<float>{.replicas = 2});
  CHECK(memory(Mirrored<float>{.replicas = 2, .virtual_shards = 8}).gradients ==
        3 * plain.gradients);
  CHECK(memory(Mirrored<float>{.replicas = 2, .virtual_shards = 2}).gradients == plain.gradients);
}

TEST_CASE("a layer that communicates within the step rejects virtual shards") {
  const auto make = [](std::size_t shards) {
    return ls::Model{Exchanging{}, ls::OneDevice<Double>{.virtual_shards = shards}, crossentropy,
                     ls::SGD{}};
  };
  CHECK_NOTHROW(make(0));
  CHECK_THROWS_AS(make(2), ls::UsageError);
  CHECK_THROWS_WITH(make(2),
                    ContainsSubstring("virtual_shards: layer centre communicates between"));
}

TEST_CASE("diverged replicas are detected every K steps, with replica and tensor") {
  ls::Model m{Small{}, Mirrored<double>{.replicas = 3}, crossentropy,
              Unfair{.lies_at = 5, .liar = 2}};
  const auto data = line::classes(40) | ls::batch(4);
  auto options = line::quiet();
  options.verify_every = 3;
  try {
    m.fit(data, options);
    FAIL("nothing was found");
  } catch (const ls::ReplicasDiverged& e) {
    CHECK(e.replica() == 2);
    CHECK(e.tensor() == "dense_1/bias");
    CHECK_THAT(e.what(),
               ContainsSubstring("after step 6, replica 2 holds a different dense_1/bias"));
  }
  CHECK(m.steps() == 6);
  // The next fit checks first; set_weights makes the replicas equal again.
  CHECK_THROWS_AS(m.fit(data, line::quiet()), ls::ReplicasDiverged);
  for (const auto& p : m.parameters()) m.set_weights(p.name, m.weights(p.name));
  CHECK_NOTHROW(m.fit(data, line::quiet()));
  const auto digests = m.replica_weights_sha256();
  CHECK(digests == std::vector<std::string>(3, m.weights_sha256()));
}

TEST_CASE("with three or more replicas the one that differs from the majority is named") {
  const auto found = [](std::size_t replicas, std::size_t liar) {
    ls::Model m{Small{}, Mirrored<double>{.replicas = replicas}, crossentropy,
                Unfair{.lies_at = 2, .liar = liar}};
    auto options = line::quiet();
    options.verify_every = 2;
    std::string message = "nothing was found";
    try {
      m.fit(line::classes(12) | ls::batch(4), options);
    } catch (const ls::ReplicasDiverged& e) {
      message = fmt::format("{}: {}", e.replica(), e.what());
    }
    // Only the weights are wrong, which evaluate and predict detect, too.
    CHECK_THROWS_AS(m.evaluate(line::classes(12) | ls::batch(4)), ls::ReplicasDiverged);
    CHECK_THROWS_AS(m.predict(line::classes(12) | ls::batch(4)), ls::ReplicasDiverged);
    return message;
  };
  CHECK_THAT(found(3, 0),
             ContainsSubstring("0: replicas: after step 2, replica 0 holds a different "
                               "dense_1/bias than 2 of the 3 replicas; a step"));
  CHECK_THAT(found(4, 2), ContainsSubstring("2: ") && ContainsSubstring("than 3 of the 4"));
  CHECK_THAT(found(2, 0), ContainsSubstring("1: ") && ContainsSubstring("than replica 0; a step"));
}

TEST_CASE("without verify_every the end of the epoch and the next fit detect a divergence") {
  ls::Model m{Small{}, Mirrored<double>{.replicas = 2}, crossentropy,
              Unfair{.lies_at = 5, .liar = 1}};
  std::size_t hooks = 0;
  auto options = line::quiet(2);
  options.callbacks = {ls::LambdaCallback{.on_epoch_end = [&](int, const ls::Logs&) { ++hooks; }}};
  CHECK_THROWS_AS(m.fit(line::classes(40) | ls::batch(4), options), ls::ReplicasDiverged);
  CHECK(m.steps() == 10);  // the divergence is of step 5
  CHECK(hooks == 0);       // no hook has saved these weights
  const auto digests = m.replica_weights_sha256();
  CHECK(digests[0] != digests[1]);
  CHECK_THROWS_AS(m.fit(line::classes(40) | ls::batch(4), line::quiet()), ls::ReplicasDiverged);
}

TEST_CASE("an error in a kernel of one replica ends fit, once, and a new model trains") {
  const Untrap untrap;
  const Mirrored<double> strategy{.replicas = 4, .timeout = std::chrono::seconds(60)};
  const auto data = line::classes(40) | ls::batch(10);
  for (const auto when : {Trap::When::forward, Trap::When::backward})
    for (const std::size_t guilty : {0u, 3u}) {
      CAPTURE(guilty);
      Trap::step = 2;
      Trap::guilty = guilty;
      Trap::when = when;
      ls::Model m{Trapped{}, strategy, crossentropy, ls::SGD{}};
      CHECK_THROWS_AS(m.fit(data, line::quiet()), Trap::Sprung);
      CHECK(m.steps() == 2);
      Trap::when = Trap::When::never;
      CHECK_NOTHROW(m.fit(data, line::quiet()));  // no replica was updated, so all agree
      ls::Model fresh{Trapped{}, strategy, crossentropy, ls::SGD{}};
      CHECK_NOTHROW(fresh.fit(data, line::quiet()));
    }
}

TEST_CASE("pthread_cancel and pthread_exit end the thread that trains, and nothing else") {
  const auto check = [](const auto& strategy) {
    ls::Model m{Small{}, strategy, crossentropy, ls::SGD{}};
    const auto data = line::classes(40) | ls::batch(4);
    const auto endless = line::classes(40) | ls::repeat() | ls::batch(4) | ls::prefetch(2);
    const auto end_by = [&](const std::function<void()>& act, bool is_cancelled) {
      const std::uint64_t before = m.steps();
      const ThreadEnd end = run_in_thread([&] {
        auto options = line::quiet();
        options.steps_per_epoch = 1000;
        options.callbacks = {
            ls::LambdaCallback{.on_train_batch_end = [&](std::size_t batch, const ls::Logs&) {
              if (batch == 2) act();
            }}};
        m.fit(endless, options);
      });
      CHECK_FALSE(end.returned);
      CHECK(end.is_unwound);
      CHECK(end.is_cancelled == is_cancelled);
      CHECK(m.steps() == before + 3);
      CHECK_NOTHROW(m.fit(data, line::quiet()));
    };
    end_by([] { ::pthread_exit(nullptr); }, false);
    end_by(
        [] {
          ::pthread_cancel(::pthread_self());
          ::usleep(1);  // a cancellation point, which fit defers to the end of the step
        },
        true);
    // The loop of evaluate, and a program that has disabled cancellation itself.
    const ThreadEnd evaluating = run_in_thread([&] {
      ::pthread_cancel(::pthread_self());
      m.evaluate(data);
    });
    CHECK((!evaluating.returned && evaluating.is_cancelled));
    const ThreadEnd disabled = run_in_thread([&] {
      int before = 0;
      ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
      ::pthread_cancel(::pthread_self());
      m.fit(data, line::quiet());
    });
    CHECK(disabled.returned);
    // In the thread of prefetch, which the program does not own.
    const auto ends_thread = line::classes(40) | ls::map([](auto&) { ::pthread_exit(nullptr); }) |
                             ls::batch(4) | ls::prefetch(2);
    CHECK_THROWS_WITH(m.fit(ends_thread, line::quiet()), ContainsSubstring("pthread_exit"));
    CHECK_NOTHROW(m.fit(data, line::quiet()));
  };
  check(ls::OneDevice<Double>{});
  check(Mirrored<double>{.replicas = 3});
}

TEST_CASE("pthread_exit in a kernel ends its replica's thread, and fit of the others") {
  const Untrap untrap;
  Trap::exits = true;
  Trap::step = 2;
  const auto data = line::classes(40) | ls::batch(10);
  for (const std::size_t guilty : {0u, 2u}) {
    Trap::guilty = guilty;
    Trap::when = Trap::When::backward;
    ls::Model m{Trapped{}, Mirrored<double>{.replicas = 3}, crossentropy, ls::SGD{}};
    std::string error;
    const ThreadEnd end = run_in_thread([&] {
      try {
        m.fit(data, line::quiet());
      } catch (const ls::Error& e) {
        error = e.what();
      }
    });
    CHECK(end.returned == (guilty > 0));  // replica 0 runs in the calling thread
    CHECK((error.find("pthread_exit") != std::string::npos) == (guilty > 0));
    Trap::when = Trap::When::never;
    if (guilty == 0)
      CHECK_NOTHROW(m.fit(data, line::quiet()));
    else
      CHECK_THROWS_WITH(m.fit(data, line::quiet()), ContainsSubstring("create the model again"));
  }
}

TEST_CASE("the next fit detects an update that failed in one replica, even after loading weights") {
  ls::Model m{Small{}, Mirrored<double>{.replicas = 3}, crossentropy, Fragile{.guilty = 1}};
  const auto data = line::classes(40) | ls::batch(4);
  m.fit(data, line::quiet());
  Fragile::fails = true;
  CHECK_THROWS_AS(m.fit(data, line::quiet()), std::bad_alloc);
  Fragile::fails = false;
  CHECK_THROWS_AS(m.fit(data, line::quiet()), ls::ReplicasDiverged);
  for (const auto& p : m.parameters()) m.set_weights(p.name, m.weights(p.name));
  try {
    m.fit(data, line::quiet());
    FAIL("nothing was found");
  } catch (const ls::ReplicasDiverged& e) {
    CHECK(e.replica() == 1);
    CHECK(e.tensor() == "momentum of dense/kernel");
  }
  ls::Model fresh{Small{}, Mirrored<double>{.replicas = 3}, crossentropy, Fragile{}};
  CHECK_NOTHROW(fresh.fit(data, line::quiet()));
}

TEST_CASE("a callback may train another model, and models train from any thread") {
  const Mirrored<double> strategy{.replicas = 2};
  const auto data = line::classes(40) | ls::batch(8);
  const auto train = [&](ls::FitOptions options) {
    ls::Model m{Noisy{}, strategy, crossentropy, ls::SGD{}};
    m.fit(data, options);
    return m.weights_sha256();
  };
  const std::string expected = train(line::quiet());
  std::string inner, second;
  auto options = line::quiet();
  options.callbacks = {ls::LambdaCallback{
      .on_train_batch_end = [&](std::size_t, const ls::Logs&) { inner = train(line::quiet()); }}};
  CHECK(train(options) == expected);
  CHECK(inner == expected);
  ls::Model m{Noisy{}, strategy, crossentropy, ls::SGD{}};
  std::thread([&] { m.fit(data, line::quiet()); }).join();
  CHECK(m.weights_sha256() == expected);
  std::thread([&] { m.fit(data, line::quiet()); }).join();
  std::thread([&] { second = train(line::quiet()); }).join();
  CHECK(second == expected);
}

TEST_CASE("an exception in a callback ends fit and leaves the replicas equal") {
  struct Mishap {};
  ls::Model m{Small{}, Mirrored<double>{.replicas = 3}, crossentropy, ls::SGD{}};
  auto options = line::quiet();
  options.callbacks = {
      ls::LambdaCallback{.on_train_batch_end = [](std::size_t batch, const ls::Logs&) {
        if (batch == 1) throw Mishap();
      }}};
  CHECK_THROWS_AS(m.fit(line::classes(40) | ls::batch(4), options), Mishap);
  CHECK(m.steps() == 2);
  const auto digests = m.replica_weights_sha256();
  CHECK(digests == std::vector<std::string>(3, digests[0]));
}

TEST_CASE("a stop ends all replicas after the same step") {
  std::stop_source stop;
  ls::Model m{Small{}, Mirrored<double>{.replicas = 3}, crossentropy, ls::SGD{}};
  auto options = line::quiet(5);
  options.stop = stop.get_token();
  options.callbacks = {
      ls::LambdaCallback{.on_train_batch_end = [&](std::size_t batch, const ls::Logs&) {
        if (batch == 2) stop.request_stop();
      }}};
  m.fit(line::classes(40) | ls::batch(4), options);
  CHECK(m.steps() == 3);
  const auto digests = m.replica_weights_sha256();
  CHECK(digests == std::vector<std::string>(3, digests[0]));
}

TEST_CASE("batches in memory and weights files reach all replicas") {
  ls::Model m{line::Net{}, Mirrored<double>{.replicas = 3}, ls::MeanSquaredError{},
              ls::SGD{.learning_rate = 0.1}};
  ls::Model one{line::Net{}, ls::OneDevice<Double>{}, ls::MeanSquaredError{},
                ls::SGD{.learning_rate = 0.1}};
  CHECK(m.weights_sha256() == one.weights_sha256());
  const auto x = line::xs(), y = line::ys();
  CHECK(line::near(m.train_on_batch(x, y)["loss"], one.train_on_batch(x, y)["loss"]));
  CHECK(line::near(m.test_on_batch(x, y)["loss"], one.test_on_batch(x, y)["loss"]));
  const auto ours = m.predict(x, 4), theirs = one.predict(x, 4);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(line::near(ours.row(i)[0], theirs.row(i)[0]));
  m.set_weights("dense/kernel", std::vector{2.0});
  const auto digests = m.replica_weights_sha256();
  CHECK(digests == std::vector<std::string>(3, m.weights_sha256()));
}
