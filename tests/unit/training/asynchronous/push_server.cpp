/// Servers and workers of asynchronous phases in one process, over pairs of sockets: all servers make the
/// same updates in the same order, each step once, with slices and backup workers, too.
#include "lockstep/training/asynchronous/push_server.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/core/slice.hpp"
#include "lockstep/training/asynchronous/push_client.hpp"
#include "unit/collectives/tcp_places.hpp"

namespace {

using namespace lockstep;
using Catch::Matchers::Message;
using detail::PhaseShape, detail::PushClient, detail::PushReply, detail::PushRequest,
    detail::PushServer;
using Pairs = PushServer::Pairs;

/// The pairs of workers [0, workers) with servers [workers, workers + servers), and of all with the
/// first server.
std::vector<Pairs> connect(std::size_t workers, std::size_t servers) {
  std::vector<Pairs> all(workers + servers);
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = std::max(a + 1, workers); b < all.size(); ++b) {
      if (a >= workers && a != workers) continue;
      auto connections = tcp_test::connect_all(2, detail::Topology::direct, 1, false);
      const auto group = [&](std::size_t member) {
        return TcpGroup(
            std::make_shared<TcpMesh>(TcpMesh::Options{.rank = member,
                                                       .size = 2,
                                                       .channels = 1,
                                                       .topology = detail::Topology::direct,
                                                       .names = {a, b}},
                                      std::move(connections[member])),
            {.timeout = std::chrono::seconds(20)});
      };
      all[a].emplace(b, group(0));
      all[b].emplace(a, group(1));
    }
  return all;
}

struct Job {
  std::size_t workers, servers;
  std::uint64_t steps, staleness;
  std::size_t slices = 1, backups = 0;
};

/// The results of a phase: the weights, the steps in the order of each server, and the records that each
/// process has heard of.
struct Result {
  std::vector<double> weights;
  std::vector<std::vector<std::uint64_t>> orders;
  std::vector<std::vector<double>> records;
  std::uint64_t most_stale = 0, dropped = 0, pushed = 0;
};

/// A phase whose step s adds s + i to weight i, in each of its slices; workers pause at random. Those
/// that are backups stop in the middle of the phase until the others have made its steps.
Result run(const Job& job, unsigned seed, std::uint64_t stop_after = ~std::uint64_t{0}) {
  constexpr std::size_t each = 5;
  std::vector<Pairs> pairs = connect(job.workers, job.servers);
  Result result;
  result.weights.resize(job.servers * each);
  result.orders.resize(job.servers);
  result.records.resize(pairs.size());
  std::vector<std::vector<double>> states(job.servers, std::vector<double>(2));
  const PhaseShape shape{.state = 2 * sizeof(double),
                         .record = 2,
                         .steps = job.steps,
                         .staleness = job.staleness,
                         .slices = job.slices,
                         .copies = job.backups,
                         .slice_state = 3 * sizeof(double),
                         .sums = 2};
  const auto bytes = [](std::span<double> values) { return std::as_writable_bytes(values); };
  std::vector<std::uint64_t> stale(job.servers);
  std::atomic<bool> is_whole = true, are_slices_right = true, are_sums_right = true,
                    waits_in_vain = false;
  std::atomic<std::uint64_t> known = 0, pushed = 0;
  const auto errors = tcp_test::in_threads(pairs.size(), [&](std::size_t rank) {
    std::vector<double>& heard = result.records[rank];
    const auto keep = [&](const std::vector<double>& records) {
      heard.insert(heard.end(), records.begin(), records.end());
    };
    if (rank >= job.workers) {
      const std::size_t index = rank - job.workers;
      const std::span<double> mine(result.weights.data() + index * each, each);
      const Slice own{index * each * sizeof(double), each * sizeof(double)};
      PushServer server(shape, pairs[rank], rank, {job.workers, job.servers}, {own, {own}},
                        bytes(result.weights), bytes(states[index]));
      server.start();
      std::size_t next = 0;  // slice
      const auto apply = [&](const PushServer::Push& push) {
        std::vector<double> gradients(each), after(2), before(2);
        std::memcpy(gradients.data(), push.gradients, each * sizeof(double));
        for (std::size_t i = 0; i < each; ++i) mine[i] += gradients[i];
        if (!push.is_whole) is_whole = false;
        if (push.slice + 1 == job.slices) {
          double sums[] = {static_cast<double>(index + 1), push.record[0]};
          server.sum(sums);
          const auto n = static_cast<double>(job.servers);
          if (job.servers > 1 && (sums[0] != n * (n + 1) / 2 || sums[1] != n * push.record[0]))
            are_sums_right = false;
        }
        if (job.slices > 1) {
          double part[3];
          std::memcpy(part, push.state, sizeof part);
          const double step = push.record[0];
          if (push.slice != next || part[0] != step || part[1] != static_cast<double>(next) ||
              part[2] != push.record[1])
            are_slices_right = false;
          next = (next + 1) % job.slices;
          states[index][0] += 1.0 / static_cast<double>(job.slices);
          states[index][1] += step / static_cast<double>(job.slices);
          return;
        }
        std::memcpy(after.data(), push.state, sizeof(double) * 2);
        std::memcpy(before.data(), push.pulled, sizeof(double) * 2);
        for (std::size_t i = 0; i < 2; ++i) states[index][i] += after[i] - before[i];
      };
      while (server.serve(apply, std::chrono::milliseconds(20))) keep(server.take_records());
      result.orders[index].assign(server.steps_made().begin(), server.steps_made().end());
      stale[index] = server.most_stale();
      if (index == 0) result.dropped = server.dropped();
      return;
    }
    std::vector<PushClient::Server> servers;
    for (std::size_t i = 0; i < job.servers; ++i) {
      const Slice own{i * each * sizeof(double), each * sizeof(double)};
      servers.push_back({job.workers + i, {own, {own}}});
    }
    PushClient client(shape, pairs[rank], servers);
    std::mt19937 draw(static_cast<unsigned>(seed * 100 + rank));
    std::vector<double> weights(result.weights.size()), own(2);
    for (;;) {
      const PushReply reply = client.next(heard.size() / 2 / job.slices >= stop_after);
      keep(client.take_records());
      if (rank == job.workers - 1) known = heard.size() / 2 / job.slices;
      if (reply.kind == PushReply::Kind::done) break;
      if (reply.kind == PushReply::Kind::wait) continue;
      client.pull(reinterpret_cast<std::byte*>(weights.data()), bytes(own));
      if (rank < job.backups && reply.step >= job.steps / 2)
        for (int i = 0; i < 20'000 && known < job.steps - 1; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (rank < job.backups && reply.step >= job.steps / 2 && known < job.steps - 1)
        waits_in_vain = true;
      if (draw() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 500));
      std::vector<double> gradients(weights.size());
      for (std::size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = static_cast<double>(reply.step + i);
      own[0] += 1;
      own[1] += static_cast<double>(reply.step);
      const double record[] = {static_cast<double>(reply.step), static_cast<double>(rank)};
      double part[] = {record[0], static_cast<double>(reply.slice), record[1]};
      client.push(reply.step, reinterpret_cast<const std::byte*>(gradients.data()), record,
                  job.slices > 1 ? bytes(part) : bytes(own));
      ++pushed;
    }
    client.end();
  });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  CHECK(is_whole);
  CHECK(are_slices_right);
  CHECK(are_sums_right);
  CHECK_FALSE(waits_in_vain);
  result.pushed = pushed;
  for (const std::uint64_t of : stale) result.most_stale = std::max(result.most_stale, of);
  for (const auto& state : states) {
    CHECK(std::abs(state[0] - static_cast<double>(result.orders[0].size())) < 1e-9);
    CHECK(state == states[0]);
  }
  return result;
}

/// Checks a result, of which the first `steps` steps were made.
void check(const Result& result, const Job& job, std::uint64_t steps) {
  CAPTURE(job.workers, job.servers, job.steps, job.staleness, job.slices, job.backups, steps);
  for (const auto& order : result.orders) CHECK(order == result.orders[0]);
  std::vector<std::uint64_t> sorted = result.orders[0];
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::uint64_t> all(steps);
  for (std::uint64_t i = 0; i < steps; ++i) all[i] = i;
  CHECK(sorted == all);
  for (std::size_t i = 0; i < result.weights.size(); ++i)
    CHECK(result.weights[i] ==
          static_cast<double>(job.slices * (steps * (steps - 1) / 2 + steps * i)));
  CHECK(result.dropped + steps * job.slices == result.pushed);
  CHECK(result.most_stale <= job.staleness);
  for (const auto& records : result.records) {
    CHECK(records == result.records[0]);
    REQUIRE(records.size() == 2 * steps * job.slices);
    for (std::size_t i = 0; i < steps * job.slices; ++i)
      CHECK(records[2 * i] == static_cast<double>(result.orders[0][i / job.slices]));
  }
}

}  // namespace

TEST_CASE("all servers make the same updates in the same order, each step once") {
  std::mt19937 draw(3);
  for (unsigned round = 0; round < 30; ++round) {
    const Job job{1 + draw() % 4, 1 + draw() % 3, 1 + draw() % 40, draw() % 8};
    check(run(job, round), job, job.steps);
  }
}

TEST_CASE("each slice of a step counts once, and no step waits for the backup workers") {
  std::mt19937 draw(5);
  for (unsigned round = 0; round < 30; ++round) {
    const std::size_t workers = 1 + draw() % 4, backups = draw() % workers;
    const std::size_t slices = draw() % 2 == 0 ? workers - backups : 1 + draw() % 6;
    const Job job{workers, 1 + draw() % 3, 2 + draw() % 20, 0, slices, backups};
    const Result result = run(job, round);
    check(result, job, job.steps);
    CHECK(std::is_sorted(result.orders[0].begin(), result.orders[0].end()));
  }
}

TEST_CASE("a phase that is to stop ends after the steps that have begun") {
  for (unsigned round = 0; round < 5; ++round) {
    const Job job{3, 2, 1'000'000, 5};
    const Result result = run(job, round, 10);
    const std::uint64_t steps = result.orders[0].size();
    CHECK(steps >= 10);
    CHECK(steps < 30);
    check(result, job, steps);
  }
}

TEST_CASE("a server whose client is lost throws, and ends the others") {
  std::vector<Pairs> pairs = connect(2, 1);
  double weights[5] = {};
  const Slice all{0, sizeof weights};
  const PhaseShape shape{.record = 1, .steps = 10, .staleness = 4};
  const auto errors = tcp_test::in_threads(3, [&](std::size_t rank) {
    if (rank == 0) {
      pairs[0].clear();
      return;
    }
    if (rank == 1) {
      PushClient client(shape, pairs[1], {{2, {all, {all}}}});
      while (client.next(false).kind != PushReply::Kind::done) {
      }
      return;
    }
    PushServer server(shape, pairs[2], 2, {2, 1}, {all, {all}},
                      std::as_writable_bytes(std::span(weights)), {});
    server.start();
    while (server.serve([](const PushServer::Push&) {}, std::chrono::milliseconds(20))) {
    }
  });
  CHECK_FALSE(errors[0]);
  CHECK_THROWS_AS(std::rethrow_exception(errors[1]), CollectiveError);
  CHECK_THROWS_AS(std::rethrow_exception(errors[2]), CollectiveError);
}

TEST_CASE("a server refuses a push that is not of a step that it has handed out") {
  double weights[1] = {};
  const Slice all{0, sizeof weights};
  struct Wrong {
    std::uint64_t step;
    double record;
    std::size_t copies;
    bool is_twice;
  };
  for (const Wrong& wrong : {Wrong{5, 5, 0, false}, Wrong{5, 5, 1, false}, Wrong{10, 10, 0, false},
                             Wrong{0, 1, 0, false}, Wrong{0, 0, 0, true}}) {
    CAPTURE(wrong.step, wrong.record, wrong.copies, wrong.is_twice);
    const PhaseShape shape{.record = 1, .element = 8, .steps = 10, .copies = wrong.copies};
    std::vector<Pairs> pairs = connect(1, 1);
    const auto errors = tcp_test::in_threads(2, [&](std::size_t rank) {
      if (rank == 1) {
        PushServer server(shape, pairs[1], 1, {1, 1}, {all, {all}},
                          std::as_writable_bytes(std::span(weights)), {});
        server.start();
        while (server.serve([](const PushServer::Push&) {}, std::chrono::milliseconds(20)))
          (void)server.take_records();
        return;
      }
      PushClient client(shape, pairs[0], {{1, {all, {all}}}});
      const double gradients[1] = {};
      const auto* bytes = reinterpret_cast<const std::byte*>(gradients);
      while (client.next(false).kind != PushReply::Kind::step) {
      }
      client.push(wrong.step, bytes, {&wrong.record, 1}, {});
      if (wrong.is_twice) {
        // The push counts; the second report of the same step does not.
        PushRequest request{.kind = PushRequest::Kind::next, .step = 0};
        for (int i = 0; i < 2; ++i) {
          PushReply reply;
          double record = 0;
          pairs[0].at(1).send(&request, 1);
          pairs[0].at(1).receive(&reply, 1);
          if (reply.count > 0) pairs[0].at(1).receive(&record, 1);
          request.known += reply.count;
        }
      }
    });
    CHECK_THROWS_AS(std::rethrow_exception(errors[0]), CollectiveError);
    CHECK_THROWS_MATCHES(
        std::rethrow_exception(errors[1]), Error,
        Message("parameter server: rank 0 sent numbers that are not of this phase of 10 steps"));
  }
}

TEST_CASE("a server refuses a number of updates that not all servers can have made") {
  std::vector<Pairs> pairs = connect(1, 2);
  double weights[1] = {};
  const Slice all{0, sizeof weights};
  const PhaseShape shape{.record = 1, .element = 8, .steps = 10};
  const auto errors = tcp_test::in_threads(2, [&](std::size_t rank) {
    if (rank == 0) {  // instead of the first server
      PushRequest request;
      pairs[1].at(2).receive(&request, 1);
      PushReply reply{.finished = 1'000'000'000};
      pairs[1].at(2).send(&reply, 1);
      return;
    }
    PushServer server(shape, pairs[2], 2, {1, 2}, {all, {all}},
                      std::as_writable_bytes(std::span(weights)), {});
    server.start();
    while (server.serve([](const PushServer::Push&) {}, std::chrono::milliseconds(20)))
      (void)server.take_records();
  });
  CHECK_FALSE(errors[0]);
  CHECK_THROWS_MATCHES(std::rethrow_exception(errors[1]), Error,
                       Message("parameter server: rank 1 names 1000000000 updates that all "
                               "servers have made, after 0, of 0 of this one"));
}
