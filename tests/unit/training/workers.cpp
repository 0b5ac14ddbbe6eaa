#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/workers.hpp"
#include "unit/training/mirrored_support.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace replicas;  // NOLINT: the fixture of this file
using Double = ls::Reference<double>;
using Float = ls::Reference<float>;
using Replicas = std::vector<std::size_t>;

/// Evaluates after each step, with itself as a callback.
struct Evaluator : ls::Callback, std::enable_shared_from_this<Evaluator> {
  std::function<void(const ls::EvaluateOptions&)> evaluate;
  std::function<void(Callback&, std::size_t)> then;
  void on_train_batch_end(std::size_t b, const ls::Logs&) override {
    evaluate({.callbacks = {shared_from_this()}});
    then(*this, b);
  }
};

const std::vector<Replicas> jobs{{1, 1}, {2, 1}, {1, 3}, {1, 1, 1, 1}, {2, 1, 3}};

}  // namespace

TEST_CASE("processes train, evaluate and predict as one device, and all get all results") {
  const ls::Adam adam{.learning_rate = 0.01};
  for (const std::size_t batch : {1u, 3u, 16u}) {
    const Result one = run<Noisy>(ls::OneDevice<Double>{}, 42, batch, adam);
    for (const Replicas& job : jobs) {
      std::mutex mutex;
      testing::run_workers<Double>(job, 0, [&](const auto& worker) {
        const Result result = run<Noisy>(worker, 42, batch, adam);
        const std::scoped_lock lock(mutex);
        same(result, one);
      });
    }
  }
}

TEST_CASE("virtual shards give several processes the same bits as one device") {
  const ls::Adam adam{.learning_rate = 0.01};
  const Result alone = run<Noisy>(ls::OneDevice<Float>{.virtual_shards = 8}, 150, 16, adam, 4);
  for (const Replicas& job : {Replicas{1, 1}, Replicas{2, 2}, Replicas{1, 1, 1, 1}, Replicas{4, 4}})
    testing::run_workers<Float>(job, 8, [&](const auto& worker) {
      const Result result = run<Noisy>(worker, 150, 16, adam, 4);
      if (result.digest != alone.digest || result.predicted != alone.predicted)
        throw std::logic_error("different bits");
    });
}

TEST_CASE("each process gets the digests of all replicas of the job, in rank order") {
  std::mutex mutex;
  std::vector<std::vector<std::string>> found;
  testing::run_workers<Double>({1, 2}, 0, [&](const auto& worker) {
    ls::Model m{Small{}, worker, crossentropy, ls::SGD{}};
    auto kernel = m.weights("dense_1/kernel");
    if (worker.process == 0) kernel[0] += 1;
    m.set_weights("dense_1/kernel", kernel);
    const auto all = m.job_replica_weights_sha256();
    if (m.local_replicas() != worker.process + 1 || m.replicas() != 3)
      throw std::logic_error("wrong number of replicas");
    const std::scoped_lock lock(mutex);
    const bool is_here = all.at(worker.process) == m.weights_sha256();
    found.push_back(is_here ? all : std::vector<std::string>{});
  });
  REQUIRE(found.size() == 2);
  REQUIRE(found[0].size() == 3);
  CHECK(found[0] == found[1]);
  CHECK(found[0][0] != found[0][1]);
  CHECK(found[0][1] == found[0][2]);
}

TEST_CASE("the digests of a job of one process are those of its replicas") {
  ls::Model m{Small{}, ls::Mirrored<Double>{.replicas = 2}, crossentropy, ls::SGD{}};
  CHECK(m.job_replica_weights_sha256().size() == 2);
  CHECK(m.local_replicas() == 2);
  CHECK(m.replicas() == 2);
  CHECK(m.job_replica_weights_sha256() == m.replica_weights_sha256());
}

TEST_CASE("a stop of one process stops all after the same step") {
  for (const bool by_token : {true, false}) {
    std::mutex mutex;
    std::vector<std::uint64_t> steps;
    std::vector<std::size_t> epochs;
    testing::run_workers<Double>({1, 2, 1}, 0, [&](const auto& worker) {
      ls::Model m{Small{}, worker, crossentropy, ls::SGD{}};
      std::stop_source stop;
      auto options = line::quiet(5);
      options.stop = stop.get_token();
      struct Stopper : ls::Callback {
        std::function<void(Callback&, std::size_t)> f;
        void on_train_batch_end(std::size_t b, const ls::Logs&) override { f(*this, b); }
      };
      auto stopper = std::make_shared<Stopper>();
      stopper->f = [&](ls::Callback& callback, std::size_t b) {
        if (worker.process != 1 || b != 2) return;
        if (by_token)
          stop.request_stop();
        else
          callback.control().stop_training();
      };
      options.callbacks = {stopper};
      const auto history = m.fit(line::classes(40) | ls::batch(4), options);
      // A later run is not stopped.
      m.evaluate(line::classes(40) | ls::batch(4));
      const std::scoped_lock lock(mutex);
      steps.push_back(m.steps());
      epochs.push_back(history.epoch.size());
    });
    CHECK(steps == std::vector<std::uint64_t>(3, 4));  // one step after the request
    CHECK(epochs == std::vector<std::size_t>(3, by_token ? 0 : 1));
  }
}

TEST_CASE("a stop sends a signal to the other processes only if the signal caused it") {
  struct Case {
    bool is_old,
        is_of_token;  // the signal comes before the run; the run has the SignalStop's token
    int sent;
  };
  for (const Case& c : {Case{true, false, 0}, {true, true, SIGINT}, {false, false, SIGINT}}) {
    int sent = -1;
    testing::run_workers<Double>({1, 1}, 0, [&](const auto& worker) {
      ls::Model m{Small{}, worker, crossentropy, ls::SGD{}};
      std::stop_source other;
      std::optional<ls::SignalStop> stop;
      auto options = line::quiet(5);
      if (worker.process == 1) {
        stop.emplace();
        if (c.is_old) ::raise(SIGINT);
        options.stop = c.is_of_token ? stop->token() : other.get_token();
        // The run begins with a stop only in the second case, in which its first step is the last.
        while (c.is_of_token && !options.stop.stop_requested()) std::this_thread::yield();
        options.callbacks = {
            ls::LambdaCallback{.on_train_batch_end = [&](std::size_t b, const ls::Logs&) {
              if (b == 2 && !c.is_old) ::raise(SIGINT);
              if (b == 2) other.request_stop();
              // The processes have agreed on the signal. A new SignalStop shows which one.
              if (b == 3 || c.is_of_token) stop.emplace();
            }}};
      }
      m.fit(line::classes(40) | ls::batch(4), options);
      if (worker.process == 1) sent = stop->signal();
    });
    CHECK(sent == c.sent);
  }
}

TEST_CASE("a callback that evaluates does not lose a stop request, and keeps its control") {
  for (const bool by_token : {true, false}) {
    std::mutex mutex;
    std::vector<std::uint64_t> steps;
    testing::run_workers<Double>({1, 1}, 0, [&](const auto& worker) {
      ls::Model m{Small{}, worker, crossentropy, ls::SGD{}};
      std::stop_source stop;
      auto options = line::quiet(2);
      options.stop = stop.get_token();
      auto callback = std::make_shared<Evaluator>();
      callback->evaluate = [&](const ls::EvaluateOptions& with) {
        m.evaluate(line::classes(8) | ls::batch(4), with);
      };
      callback->then = [&](ls::Callback& self, std::size_t b) {
        if (worker.process != 1 || b != 2) return;
        if (by_token)
          stop.request_stop();
        else
          self.control().stop_training();
      };
      options.callbacks = {callback};
      const auto history = m.fit(line::classes(40) | ls::batch(4), options);
      const std::scoped_lock lock(mutex);
      steps.push_back(m.steps());
    });
    CHECK(steps == std::vector<std::uint64_t>(2, 4));  // one step after the request
  }
}

TEST_CASE("a validation that one process stops midway appears in no process' logs") {
  std::mutex mutex;
  std::vector<std::size_t> values;
  testing::run_workers<Double>({1, 1}, 0, [&](const auto& worker) {
    ls::Model m{Small{}, worker, crossentropy, ls::SGD{}};
    std::stop_source stop;
    auto options = line::quiet(2);
    options.stop = stop.get_token();
    options.callbacks = {ls::LambdaCallback{.on_test_batch_end = [&](std::size_t, const ls::Logs&) {
      if (worker.process == 1) stop.request_stop();
    }}};
    const auto data = line::classes(40) | ls::batch(4);
    const auto history = m.fit(data, data, options);
    const std::scoped_lock lock(mutex);
    values.push_back(history.names().size());
  });
  CHECK(values == std::vector<std::size_t>{1, 1});
}

TEST_CASE("evaluate, predict and fit detect weights that were set in one process only") {
  enum class Call { evaluate, predict, fit };
  const auto message = [](const Replicas& job, Call call, std::size_t setter, int times) {
    std::mutex mutex;
    std::string result;
    testing::run_workers<Double>(job, 0, [&](const auto& worker) {
      ls::Model m{line::Net{}, worker, ls::MeanSquaredError{}, ls::SGD{}};
      const auto data = line::points() | ls::batch(4);
      m.set_weights("dense/bias", std::vector{0.5});
      m.evaluate(data);  // equal weights: no error
      for (int i = 0; i < times; ++i)
        if (worker.process == setter || setter > 9)
          m.set_weights("dense/kernel", std::vector{static_cast<double>(worker.process)});
      try {
        if (call == Call::evaluate) m.evaluate(data);
        if (call == Call::predict) m.predict(data);
        if (call == Call::fit) m.fit(data, line::quiet());
      } catch (const ls::ReplicasDiverged& e) {
        const std::scoped_lock lock(mutex);
        if (result.empty()) result = e.what();
        if (result != e.what()) throw;
        return;
      }
      throw std::logic_error("nothing was found");
    });
    return result;
  };
  for (const Call call : {Call::evaluate, Call::predict, Call::fit})
    CHECK(
        message({1, 1}, call, 1, 2) ==
        "replicas: after step 0, replica 1 (rank 1) holds a different dense/kernel than replica 0 "
        "(rank 0); set_weights or load_weights was called 2 times on rank 1 and 0 times on rank 0 "
        "since the weights were last equal: call it in all processes, with the same values");
  CHECK(message({1, 2, 1}, Call::predict, 0, 1)
            .find("replica 0 (rank 0) holds a different dense/kernel than 3 of the 4 "
                  "replicas; set_weights or load_weights was called 1 times on "
                  "rank 0 and 0 times on rank 1") != std::string::npos);
  CHECK(message({1, 1}, Call::evaluate, 10, 1)
            .find("with different values in different processes: use the same values") !=
        std::string::npos);
}

TEST_CASE("a stop at the end of an epoch in one process ends training in all") {
  std::mutex mutex;
  std::vector<std::uint64_t> steps;
  testing::run_workers<Double>({1, 1}, 0, [&](const auto& worker) {
    ls::Model m{Small{}, worker, crossentropy, ls::SGD{}};
    struct AtEpoch : ls::Callback {
      bool stops = false;
      void on_epoch_end(int epoch, const ls::Logs&) override {
        if (stops && epoch == 1) control().stop_training();
      }
    };
    auto callback = std::make_shared<AtEpoch>();
    callback->stops = worker.process == 0;
    auto options = line::quiet(5);
    options.callbacks = {callback};
    m.fit(line::classes(40) | ls::batch(4), options);
    const std::scoped_lock lock(mutex);
    steps.push_back(m.steps());
  });
  CHECK(steps == std::vector<std::uint64_t>{20, 20});
}

TEST_CASE("decisions of EarlyStopping and ReduceLROnPlateau in one process apply to all") {
  std::mutex mutex;
  std::vector<std::tuple<std::uint64_t, std::size_t, double>> found;  // steps, epochs, rate
  testing::run_workers<Double>({1, 2, 1}, 0, [&](const auto& worker) {
    ls::Model m{Small{}, worker, crossentropy, ls::SGD{.learning_rate = 0.25}};
    auto options = line::quiet(9);
    // No loss falls by 1000: each epoch except the first one counts.
    if (worker.process == 1)
      options.callbacks = {ls::EarlyStopping{.monitor = "loss", .min_delta = 1000, .patience = 3}};
    if (worker.process == 2)
      options.callbacks = {ls::ReduceLROnPlateau{
          .monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 1000}};
    const auto history = m.fit(line::classes(40) | ls::batch(4), options);
    const std::scoped_lock lock(mutex);
    found.emplace_back(m.steps(), history.epoch.size(), m.learning_rate());
  });
  // Epochs 1, 2 and 3 reduce the rate; the last of them stops the training.
  CHECK(found == std::vector(3, std::tuple<std::uint64_t, std::size_t, double>(40, 4, 0.25 / 8)));
}

TEST_CASE("a batch in memory is rejected in a job of several processes") {
  testing::run_workers<Double>({1, 1}, 0, [&](const auto& worker) {
    ls::Model m{line::Net{}, worker, ls::MeanSquaredError{}, ls::SGD{}};
    const auto x = line::xs(), y = line::ys();
    const auto rejected = [](const auto& f) {
      try {
        f();
      } catch (const ls::UsageError&) {
        return;
      }
      throw std::logic_error("not rejected");
    };
    rejected([&] { m.train_on_batch(x, y); });
    rejected([&] { m.predict(x, 4); });
  });
}
