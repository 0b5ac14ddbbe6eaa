#include "unit/testing/jobs.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "lockstep/cluster.hpp"
#include "lockstep/cluster/network/data_connector.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/log_lines.hpp"

namespace jobs {

namespace {

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<8>, ls::ReLU, ls::Dense<3>> {};

auto examples() {
  constexpr std::size_t count = 96;
  std::vector<float> x(4 * count);
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return ls::tensors(x, ls::shape(4), y) | ls::shuffle(96) | ls::repeat;
}

template <class Strategy>
std::string train_on(const Strategy& strategy, std::size_t steps,
                     std::vector<std::shared_ptr<ls::Callback>> callbacks = {}) {
  ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.01f}};
  model.fit(examples() | ls::batch(12), {.epochs = 1,
                                         .steps_per_epoch = steps,
                                         .callbacks = std::move(callbacks),
                                         .progress = ls::ProgressStyle::none});
  return model.weights_sha256();
}

struct StepTime : ls::Callback {
  StepTime(const ls::testing::Worker& its_worker, std::chrono::nanoseconds its_time)
      : worker(its_worker), time(its_time) {}
  void on_train_batch_end(std::size_t, const ls::Logs&) override { worker.compute(time); }
  const ls::testing::Worker& worker;
  std::chrono::nanoseconds time;
};

}  // namespace

std::string train_replicas(std::size_t replicas, std::size_t steps) {
  return train_on(ls::Mirrored<ls::Reference<float>>{.replicas = replicas}, steps);
}

std::string train(const ls::testing::Worker& worker, std::size_t steps,
                  std::chrono::nanoseconds time) {
  const ls::MultiWorkerMirrored<ls::Reference<float>> strategy{.environment = worker.environment()};
  return train_on(strategy, steps, {std::make_shared<StepTime>(worker, time)});
}

std::vector<End> run(std::size_t workers, std::size_t steps, const ls::testing::Network& network,
                     ls::testing::Report* report) {
  const ::testing::LogLines quiet;
  std::vector<End> ends(workers);
  const auto done = ls::testing::run_workers(
      workers,
      [&](ls::testing::Worker& worker) {
        End& end = ends[worker.rank()];
        end = {};
        try {
          end.weights = train(worker, steps, 10ms);
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

bool waits_for_third(const ls::testing::Network& network) {
  std::map<std::size_t, std::string> places;
  char received = 0;
  ls::testing::run_workers(
      3,
      [&](ls::testing::Worker& worker) {
        const std::size_t rank = worker.rank();
        if (rank == 2) std::this_thread::sleep_for(3500ms);
        ls::DataOptions options{.rank = rank, .per_peer = 1, .address = worker.address()};
        for (std::size_t r = 0; r < 3; ++r)
          if (r != rank) options.peers.push_back(r);
        options.run = "run";
        options.key = ls::Secret("a key of at least sixteen bytes");
        ls::DataConnector connector(std::move(options));
        if (!connector.place().empty()) places[rank] = connector.place();
        std::this_thread::sleep_for(1ms);
        std::map<std::size_t, std::string> lower(places.begin(), places.lower_bound(rank));
        const auto all = connector.connect(lower, std::chrono::steady_clock::now() + 10s, [] {});
        for (const ls::DataConnection& connection : all) {
          if (rank == 0 && connection.rank == 1) ::send(connection.socket.number(), "x", 1, 0);
          if (rank != 1 || connection.rank != 0) continue;
          pollfd input{connection.socket.number(), POLLIN, 0};
          ::poll(&input, 1, 1000);
          ::recv(connection.socket.number(), &received, 1, 0);
        }
      },
      network);
  return received == 'x';
}

}  // namespace jobs
