/// \file
/// A small training job, for simulated workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/testing.hpp"
#include "support/log_lines.hpp"

namespace jobs {

namespace ls = lockstep;
using namespace std::chrono_literals;

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<8>, ls::ReLU, ls::Dense<3>> {};

inline auto examples() {
  constexpr std::size_t count = 96;
  std::vector<float> x(4 * count);
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return ls::tensors(x, ls::shape(4), y) | ls::shuffle(96) | ls::repeat;
}

/// Trains for a number of steps. \return the hash of the weights.
template <class Strategy>
std::string train(const Strategy& strategy, std::size_t steps,
                  std::vector<std::shared_ptr<ls::Callback>> callbacks = {}) {
  ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.01f}};
  model.fit(examples() | ls::batch(12), {.epochs = 1,
                                         .steps_per_epoch = steps,
                                         .callbacks = std::move(callbacks),
                                         .progress = ls::ProgressStyle::none});
  return model.weights_sha256();
}

inline ls::MultiWorkerMirrored<ls::Reference<float>> strategy_of(const ls::testing::Worker& worker) {
  return {.environment = worker.environment()};
}

/// Gives each step a duration.
struct Steps : ls::Callback {
  Steps(const ls::testing::Worker& its_worker, std::chrono::nanoseconds its_time)
      : worker(its_worker), time(its_time) {}
  void on_train_batch_end(std::size_t, const ls::Logs&) override { worker.compute(time); }
  const ls::testing::Worker& worker;
  std::chrono::nanoseconds time;
};

/// How a worker ended. Nothing is set if it was killed.
struct End {
  std::string weights{};              ///< of a worker that has finished
  std::optional<std::size_t> lost{};  ///< the rank of its PeerLost
  std::string what{};                 ///< of its exception
  std::chrono::nanoseconds at{};
};

/// Runs a job whose steps of 10 ms take `steps` x 10 ms. Its log is dropped.
inline std::vector<End> run(std::size_t workers, std::size_t steps,
                            const ls::testing::Network& network,
                            ls::testing::Report* report = nullptr) {
  const ::testing::LogLines quiet;
  std::vector<End> ends(workers);
  const auto done = ls::testing::run_workers(
      workers,
      [&](ls::testing::Worker& worker) {
        End& end = ends[worker.rank()];
        end = {};
        try {
          const std::string weights =
              train(strategy_of(worker), steps, {std::make_shared<Steps>(worker, 10ms)});
          end.weights = weights;
        } catch (const ls::PeerLost& e) {
          end.lost = e.rank();
          end.what = e.what();
        } catch (const std::exception& e) {
          end.what = e.what();
        }
        end.at = worker.time();
      },
      network);
  if (report != nullptr) *report = done;
  return ends;
}

}  // namespace jobs
