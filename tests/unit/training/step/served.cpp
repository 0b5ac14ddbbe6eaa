/// \file
/// The policy of parameter servers, with processes that are threads: any number of workers and servers
/// has the bits of one device.
#include "lockstep/training/step/served.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "lockstep/trace.hpp"
#include "support/folder.hpp"
#include "support/trace_file.hpp"
#include "support/workers.hpp"
#include "unit/training/mirrored_support.hpp"

namespace {

using namespace replicas;  // NOLINT: the fixture of this file
using Device = ls::Reference<double>;

/// A process of a job whose ranks `computing` are workers and whose last ranks are servers.
struct Process : testing::Worker<Device> {
  using update_policy = ls::Served;
  ls::ReplicaRoles roles;

  class Session : public testing::Worker<Device>::Session {
   public:
    explicit Session(const Process& process)
        : testing::Worker<Device>::Session(process), roles_(process.roles) {}
    ls::ReplicaRoles roles() const { return roles_; }

   private:
    ls::ReplicaRoles roles_;
  };
  Session open() const { return Session(*this); }
};

/// Runs body(process) in each process of a job.
template <class Body>
void run_job(ls::Slice workers, std::size_t servers, std::size_t shards, const Body& body) {
  const std::size_t first = workers.first + workers.count;
  testing::run_workers<Device>(std::vector<std::size_t>(first + servers, 1), shards,
                               [&](const auto& worker) {
                                 Process process{worker, {workers, {first, servers}}};
                                 body(process);
                               });
}

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<9, ls::kernel_regularizer(ls::L2{0.01})>,
                            ls::BatchNormalization<>, ls::Tanh, ls::Dense<3>> {};
/// Each example depends on all examples of the batch.
struct Exchanging : ls::Sequential<ls::Input<2>, ls::Dense<5>, Centre, ls::Tanh, ls::Dense<3>> {};

template <class TheNet, class S, class O>
std::string digest(const S& strategy, const O& optimizer, std::vector<double>* losses = nullptr) {
  ls::Model m{TheNet{}, ls::Seed{5}, strategy, crossentropy, optimizer, ls::Accuracy{}};
  auto options = line::quiet(2);
  options.verify_every = 1;
  const auto data = line::classes(40) | ls::shuffle(40) | ls::batch(12);
  const auto history = m.fit(data, line::classes(7) | ls::batch(3), options);
  if (losses != nullptr) *losses = history["val_loss"];
  return m.weights_sha256();
}

template <class O>
void check_bits(const O& optimizer) {
  const std::string expected = digest<Net>(ls::OneDevice<Device>{.virtual_shards = 8}, optimizer);
  for (const ls::Slice workers : {ls::Slice{0, 1}, ls::Slice{1, 2}, ls::Slice{0, 3}})
    for (const std::size_t servers : {1u, 2u, 5u}) {
      CAPTURE(workers.first, workers.count, servers);
      std::mutex mutex;
      run_job(workers, servers, 8, [&](const Process& process) {
        const std::string found = digest<Net>(process, optimizer);
        const std::scoped_lock lock(mutex);
        CHECK(found == expected);
      });
    }
}

}  // namespace

TEST_CASE("workers and servers train with the bits of one device") {
  check_bits(ls::Adam{.learning_rate = 0.01, .with = {.clipvalue = 0.01}});
  check_bits(ls::Adam{.learning_rate = 0.01, .with = {.global_clipnorm = 0.05}});
  check_bits(ls::Adam{
      .with = {.use_ema = true, .ema_overwrite_frequency = 3, .gradient_accumulation_steps = 2}});
}

TEST_CASE("random jobs with parameter servers have the bits of one device") {
  std::mt19937 draw(38);
  const auto below = [&](unsigned n) { return static_cast<std::size_t>(draw() % n); };
  for (int job = 0; job < 60; ++job) {
    const ls::Slice workers{below(2), 1 + below(4)};
    const std::size_t servers = 1 + below(4), shards = std::size_t{8} << below(2);
    const std::size_t examples = 1 + below(50), batch = 1 + below(20), way = below(4);
    const ls::Seed seed{draw()};
    ls::UpdateOptions with;
    if (below(3) == 0)
      with.clipnorm = 0.1;
    else if (below(3) == 0)
      with.global_clipnorm = 0.1;
    if (below(3) == 0) with.gradient_accumulation_steps = 1 + below(3);
    with.use_ema = below(3) == 0;
    if (with.use_ema && below(2) == 0) with.ema_overwrite_frequency = 1 + below(3);
    const double decay = below(2) == 0 ? 0.01 : 0.0;
    auto options = line::quiet(1 + static_cast<int>(below(3)));
    options.steps_per_execution = 1 + below(3);
    options.verify_every = below(3);
    if (below(2) == 0) options.class_weight = {{1, 2.0}};
    const std::size_t steps = (2 * examples + batch - 1) / batch;  // of two passes
    if (way != 1 && below(3) == 0)
      options.steps_per_epoch =
          std::max<std::size_t>(steps / static_cast<std::size_t>(options.epochs), 1);
    if (options.steps_per_epoch && steps < static_cast<std::size_t>(options.epochs))
      options.epochs = 1;
    CAPTURE(job, workers.first, workers.count, servers, shards, examples, batch, way);
    CAPTURE(with.clipnorm, with.global_clipnorm, with.gradient_accumulation_steps, with.use_ema,
            with.ema_overwrite_frequency, decay, options.class_weight.size());
    const auto trained = [&](const auto& strategy) {
      ls::Model m{Net{},
                  seed,
                  strategy,
                  crossentropy,
                  ls::Adam{.learning_rate = 0.01, .weight_decay = decay, .with = with},
                  ls::Accuracy{}};
      const auto data =
          line::classes(examples) | ls::shuffle(16) | ls::repeat(2) | ls::batch(batch);
      std::vector<double> all;
      if (way == 0) {
        const auto history = m.fit(data, line::classes(5) | ls::batch(2), options);
        for (const char* name : {"loss", "accuracy", "val_loss"})
          all.insert(all.end(), history[name].begin(), history[name].end());
      } else if (way == 1) {
        for (const auto& b : m.batches(data)) all.push_back(m.train_step(b)["loss"]);
      } else if (way == 2) {
        m.fit(data, options, [&](const auto& b) {
          auto gradients = m.gradients_of(b);
          all.push_back(gradients.norm());
          m.apply(gradients);
        });
      } else {
        m.fit(data, options);
        m.reset_optimizer();
        m.fit(data, options);
        all.push_back(m.evaluate(data)["loss"]);
      }
      const std::string its = m.weights_sha256();
      all.insert(all.end(), its.begin(), its.end());
      return all;
    };
    const auto expected = trained(ls::OneDevice<Device>{.virtual_shards = shards});
    std::mutex mutex;
    run_job(workers, servers, shards, [&](const Process& process) {
      const auto found = trained(process);
      const std::scoped_lock lock(mutex);
      CHECK(found == expected);
    });
  }
}

TEST_CASE("each worker passes its part of a batch, and the others an empty one") {
  const std::size_t examples = 11, shards = 8;
  std::vector<double> x;
  std::vector<std::int32_t> y;
  for (std::size_t i = 0; i < examples; ++i) {
    x.push_back(std::sin(static_cast<double>(i)));
    x.push_back(std::cos(static_cast<double>(i)));
    y.push_back(static_cast<std::int32_t>(i % 3));
  }
  ls::Model alone{Net{}, ls::Seed{5}, ls::OneDevice<Device>{.virtual_shards = shards}, crossentropy,
                  ls::Adam{.learning_rate = 0.1}};
  alone.train_on_batch(x, y);
  const std::string expected = alone.weights_sha256();
  for (const ls::Slice workers : {ls::Slice{0, 2}, ls::Slice{1, 2}}) {
    std::mutex mutex;
    run_job(workers, 2, shards, [&](const Process& process) {
      ls::Model m{Net{}, ls::Seed{5}, process, crossentropy, ls::Adam{.learning_rate = 0.1}};
      // 11 examples in 8 slices: three of two, and five of one.
      const std::size_t rank = process.process - workers.first;
      const bool computes = process.process >= workers.first && rank < workers.count;
      const std::size_t first = computes && rank == 1 ? 7 : 0, count = !computes   ? 0
                                                                       : rank == 0 ? 7
                                                                                   : 4;
      const auto part = [&](const auto& all, std::size_t width) {
        const auto* const begin = all.data() + first * width;
        return std::vector(begin, begin + count * width);
      };
      m.train_on_batch(ls::local_batch, part(x, 2), part(y, 1));
      const std::scoped_lock lock(mutex);
      CHECK(m.weights_sha256() == expected);
    });
  }
}

TEST_CASE("servers take part in layers that exchange within a step") {
  std::vector<double> expected;
  digest<Exchanging>(ls::OneDevice<Device>{}, ls::Adam{.learning_rate = 0.01}, &expected);
  std::mutex mutex;
  run_job({1, 3}, 2, 0, [&](const Process& process) {
    std::vector<double> found;
    digest<Exchanging>(process, ls::Adam{.learning_rate = 0.01}, &found);
    const std::scoped_lock lock(mutex);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-12);
  });
}

TEST_CASE("a trace has each push and pull with its bytes") {
  struct Wide : ls::Sequential<ls::Input<2>, ls::Dense<64>, ls::Tanh, ls::Dense<3>> {};
  const testing::Folder folder;
  const std::string path = folder / "t.json";
  constexpr std::size_t workers = 2, servers = 2, processes = 1 + workers + servers, steps = 3;
  run_job({1, workers}, servers, 0, [&](const Process& process) {
    ls::Model m{Wide{}, process, crossentropy, ls::SGD{}};
    auto options = line::quiet(1);
    options.callbacks = {ls::Trace{.filename = path, .first_step = 1, .steps = steps}};
    m.fit(line::classes(40) | ls::batch(8), options);
    m.fit(line::classes(40) | ls::batch(8), line::quiet(1));  // which nothing records
  });
  std::ifstream in(path);
  const testing::TraceFile file(std::string(std::istreambuf_iterator<char>(in), {}));
  CHECK(file.overlaps() == 0);
  constexpr auto& plan = ls::plan<Wide, Device>;
  std::size_t pushed = 0, pulled = 0;  // by the servers, in a step
  for (std::size_t rank = 0; rank < processes; ++rank) {
    CAPTURE(rank);
    const auto pushes = file.find(rank, 0, "push", "exchange"),
               pulls = file.find(rank, 0, "pull", "exchange"),
               exchanges = file.find(rank, 0, "gradients", "exchange"),
               updates = file.find(rank, 0, "optimizer", "update");
    CHECK(file.find(rank, 0, "bucket", "exchange").empty());
    REQUIRE(pushes.size() == steps);
    REQUIRE(pulls.size() == steps);
    const bool is_server = rank > workers;
    if (is_server) {
      pushed += pushes[0].bytes;
      pulled += pulls[0].bytes;
    }
    const auto is_within = [](const auto& inner, const auto& labels) {
      constexpr double rounding = 1e-2;
      return std::any_of(labels.begin(), labels.end(), [&](const auto& outer) {
        return outer.begin <= inner.begin + rounding &&
               inner.begin + inner.duration <= outer.begin + outer.duration + rounding;
      });
    };
    for (std::size_t i = 0; i < steps; ++i) {
      if (!is_server) {
        CHECK(pushes[i].bytes == (rank == 0 ? 0 : plan.push_bytes()));
        CHECK(pulls[i].bytes == sizeof(double) * Wide::parameter_count);
      }
      CHECK(pushes[i].bytes == pushes[0].bytes);
      CHECK(pulls[i].bytes == pulls[0].bytes);
      CHECK(is_within(pushes[i], exchanges));
      CHECK(is_within(pulls[i], updates));
    }
  }
  CHECK(pushed == workers * plan.push_bytes());
  CHECK(pulled == plan.pull_bytes(processes));
}
