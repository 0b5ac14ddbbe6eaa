#include "lockstep/collectives/exchange/communication_thread.hpp"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/thread_group.hpp"
#include "support/signals.hpp"
#include "unit/collectives/exchange/shares.hpp"
#include "unit/collectives/members.hpp"

namespace {

using namespace std::chrono_literals;
using contract::Deadline;
using lockstep::CommunicationThread;

/// Records a collective's calls, and can block it or make it fail.
class Stage {
 public:
  /// One exchange of p[0..n).
  void play(const float* p, std::size_t n, std::thread::id thread) {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    if (fails_ && --*fails_ == 0) {
      fails_.reset();
      throw std::runtime_error("exchange failed");
    }
    ranges_.emplace_back(p, n);
    threads_.push_back(thread);
  }
  void open(bool open) {
    {
      const std::scoped_lock lock(mutex_);
      open_ = open;
    }
    changed_.notify_all();
  }
  /// The k-th exchange from now on throws, counted from 1.
  void fail_at(int k) {
    const std::scoped_lock lock(mutex_);
    fails_ = k;
  }
  void wait_until_entered(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_ >= count; });
  }
  std::size_t entered() {
    const std::scoped_lock lock(mutex_);
    return entered_;
  }
  std::vector<std::pair<const float*, std::size_t>> ranges() {
    const std::scoped_lock lock(mutex_);
    return ranges_;
  }
  std::vector<std::thread::id> threads() {
    const std::scoped_lock lock(mutex_);
    return threads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  std::size_t entered_ = 0;
  std::optional<int> fails_;
  std::vector<std::pair<const float*, std::size_t>> ranges_;
  std::vector<std::thread::id> threads_;
};

struct Staged {
  Stage* stage;
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void abort() {}
  void all_reduce(float* p, std::size_t n) { stage->play(p, n, std::this_thread::get_id()); }
  void all_reduce(float* p, std::size_t n, double* sums, std::size_t m) {
    all_reduce(p, n);
    for (std::size_t i = 0; i < m; ++i) sums[i] = -sums[i];
  }
};
using Exchange = CommunicationThread<Staged, float>;
static_assert(lockstep::ExchangesGradients<Exchange, float>);

}  // namespace

TEST_CASE("ranges are exchanged in the order of posting, the last one in finish") {
  const Deadline deadline("order of ranges");
  Stage stage;
  Exchange exchange(Staged{&stage});
  std::vector<float> x(1000);
  double sums[2] = {3, 4};
  std::vector<std::pair<const float*, std::size_t>> posted;
  for (std::size_t i = 999; i > 0; --i) {  // far more than the capacity
    exchange.post(x.data() + i, i % 7);
    posted.emplace_back(x.data() + i, i % 7);
  }
  exchange.finish(x.data(), 1, sums, 2);
  posted.emplace_back(x.data(), 1);
  CHECK(stage.ranges() == posted);
  CHECK((sums[0] == -3 && sums[1] == -4));
}

TEST_CASE("before finish, posted ranges are exchanged by one thread other than the caller's") {
  const Deadline deadline("threads");
  Stage stage;
  Exchange exchange(Staged{&stage});
  float x = 0;
  for (int i = 0; i < 20; ++i) exchange.post(&x, 1);
  exchange.reset();
  exchange.finish(&x, 1, nullptr, 0);
  const auto threads = stage.threads();
  REQUIRE(threads.size() == 21);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(threads[i] == threads[0]);
    CHECK(threads[i] != std::this_thread::get_id());
  }
}

TEST_CASE("the thread blocks all signals") {
  const auto takers = testing::threads_that_take(SIGINT);
  Stage stage;
  const Exchange exchange(Staged{&stage});
  CHECK(testing::threads_that_take(SIGINT) == takers);
}

TEST_CASE("post returns while the collective is still running") {
  const Deadline deadline("overlap");
  Stage stage;
  stage.open(false);
  Exchange exchange(Staged{&stage});
  float x[3] = {};
  exchange.post(x, 1);
  stage.wait_until_entered(1);  // blocked in the first range
  exchange.post(x + 1, 1);
  exchange.post(x + 2, 1);
  CHECK(stage.ranges().empty());
  stage.open(true);
  exchange.finish(x, 1, nullptr, 0);
  CHECK(stage.ranges().size() == 4);
}

TEST_CASE("the 65th range waits until the first is done") {
  const Deadline deadline("capacity");
  Stage stage;
  stage.open(false);
  Exchange exchange(Staged{&stage});
  std::vector<float> x(66);
  for (std::size_t i = 0; i < Exchange::capacity; ++i) exchange.post(&x[i], 1);
  CHECK(Exchange::capacity == 64);
  std::future<void> next = std::async(std::launch::async, [&] { exchange.post(&x[64], 1); });
  CHECK(next.wait_for(30ms) == std::future_status::timeout);
  stage.open(true);
  next.get();
  exchange.finish(&x[65], 1, nullptr, 0);
  const auto ranges = stage.ranges();
  REQUIRE(ranges.size() == 66);
  for (std::size_t i = 0; i < 66; ++i) CHECK(ranges[i].first == &x[i]);
}

TEST_CASE("finish returns when all posted ranges are done") {
  const Deadline deadline("finish");
  Stage stage;
  stage.open(false);
  Exchange exchange(Staged{&stage});
  float x[3] = {};
  exchange.post(x, 1);
  exchange.post(x + 1, 1);
  auto finish = std::async(std::launch::async, [&] { exchange.finish(x + 2, 1, nullptr, 0); });
  CHECK(finish.wait_for(30ms) == std::future_status::timeout);
  CHECK(stage.entered() == 1);  // the last range does not overtake earlier ones
  stage.open(true);
  finish.get();
  CHECK(stage.ranges().size() == 3);
}

TEST_CASE("an error is thrown by each post and finish, and nothing is exchanged until reset") {
  const Deadline deadline("error of the collective");
  Stage stage;
  Exchange exchange(Staged{&stage});
  float x[5] = {};
  for (int round = 0; round < 3; ++round) {
    const std::size_t before = stage.entered();
    stage.open(false);
    stage.fail_at(2);
    for (int i = 0; i < 4; ++i) exchange.post(x + i, 1);
    stage.open(true);
    CHECK_THROWS_AS(exchange.finish(x, 1, nullptr, 0), std::runtime_error);
    CHECK_THROWS_AS(exchange.post(x, 1), std::runtime_error);
    CHECK_THROWS_AS(exchange.finish(x, 1, nullptr, 0), std::runtime_error);
    CHECK(stage.entered() == before + 2);
    exchange.reset();
    exchange.post(x, 2);
    exchange.finish(x + 2, 3, nullptr, 0);
    CHECK(stage.entered() == before + 4);
    CHECK(stage.ranges().back().first == x + 2);
  }
}

TEST_CASE("an error in finish also ends the exchanges until reset") {
  const Deadline deadline("error in finish");
  Stage stage;
  Exchange exchange(Staged{&stage});
  float x[2] = {};
  exchange.post(x, 1);
  exchange.reset();
  stage.fail_at(1);
  CHECK_THROWS_AS(exchange.finish(x + 1, 1, nullptr, 0), std::runtime_error);
  CHECK_THROWS_AS(exchange.post(x, 1), std::runtime_error);
  CHECK_THROWS_AS(exchange.finish(x, 1, nullptr, 0), std::runtime_error);
  CHECK(stage.entered() == 2);
  exchange.reset();
  exchange.post(x, 1);
  exchange.finish(x, 1, nullptr, 0);
  CHECK(stage.entered() == 4);
}

TEST_CASE("a post that waits for a free slot throws the error") {
  const Deadline deadline("error while a post waits");
  Stage stage;
  stage.open(false);
  stage.fail_at(1);
  Exchange exchange(Staged{&stage});
  float x = 0;
  for (std::size_t i = 0; i < Exchange::capacity; ++i) exchange.post(&x, 1);
  auto next = std::async(std::launch::async, [&] { exchange.post(&x, 1); });
  CHECK(next.wait_for(30ms) == std::future_status::timeout);
  stage.open(true);
  CHECK_THROWS_AS(next.get(), std::runtime_error);
  exchange.reset();
  CHECK(stage.entered() == 1);
}

TEST_CASE("reset waits until the collective no longer touches the posted memory") {
  const Deadline deadline("reset");
  Stage stage;
  stage.open(false);
  Exchange exchange(Staged{&stage});
  float x = 0;
  exchange.post(&x, 1);
  stage.wait_until_entered(1);
  auto was_reset = std::async(std::launch::async, [&] { exchange.reset(); });
  CHECK(was_reset.wait_for(30ms) == std::future_status::timeout);
  stage.open(true);
  was_reset.get();
}

TEST_CASE("the destructor of a communication thread waits for posted ranges") {
  const Deadline deadline("destructor");
  for (const bool fails : {false, true}) {
    Stage stage;
    stage.open(false);
    if (fails) stage.fail_at(2);
    float x = 0;
    auto exchange = std::make_unique<Exchange>(Staged{&stage});
    for (int i = 0; i < 5; ++i) exchange->post(&x, 1);
    auto end = std::async(std::launch::async, [&] { exchange.reset(); });
    CHECK(end.wait_for(30ms) == std::future_status::timeout);
    stage.open(true);
    end.get();
    CHECK(stage.entered() == (fails ? 2 : 5));
  }
}

TEST_CASE("a thousand communication threads start and stop, idle or not") {
  const Deadline deadline("coming and going");
  Stage stage;
  float x = 0;
  std::size_t posted = 0;
  for (int i = 0; i < 1000; ++i) {
    Exchange exchange(Staged{&stage});
    for (int k = 0; k < i % 3; ++k, ++posted) exchange.post(&x, 1);
  }
  CHECK(stage.entered() == posted);
}

namespace {

/// A replica's step: buckets from the end of the gradients, then the rest.
void step(const lockstep::GradientExchange<float>& exchange, std::mt19937_64& plan,
          std::mt19937_64& pace, contract::Numbers<float>& gradients,
          contract::Numbers<double>& sums) {
  std::size_t left = gradients.size();
  for (std::uint64_t bucket = plan() % 20; bucket > 0 && left > 0; --bucket) {
    const std::size_t n = plan() % (left + 1) / (1 + plan() % 16);
    left -= n;
    if (pace() % 8 == 0) contract::dawdle(pace);
    exchange.post(gradients.data() + left, n);
  }
  exchange.finish(gradients.data(), left, sums.data(), sums.size());
}

struct Group {
  Group(std::size_t members, lockstep::SumOrder order)
      : group({.size = members, .timeout = 60s, .order = order}) {
    for (std::size_t r = 0; r < members; ++r)
      exchanges.push_back(
          std::make_unique<CommunicationThread<lockstep::ThreadGroup::Member, float>>(
              lockstep::ThreadGroup::Member(group, r)));
  }
  lockstep::ThreadGroup group;
  std::vector<std::unique_ptr<CommunicationThread<lockstep::ThreadGroup::Member, float>>> exchanges;
};

/// Runs body(rank) in a thread per rank. \return the message of the first fault.
template <class Body>
std::string in_threads(Group& group, const Body& body) {
  struct Place {
    Group* group;
    std::size_t rank;
    void abort() const { group->group.abort(); }
  };
  struct Maker {
    std::size_t size() const { return places.size(); }
    Place& member(std::size_t rank) { return places[rank]; }
    std::vector<Place> places;
  } maker;
  for (std::size_t r = 0; r < group.exchanges.size(); ++r) maker.places.push_back({&group, r});
  return contract::first_error(
      contract::run_members(maker, "steps", [&](Place&, std::size_t rank) { body(rank); }));
}

}  // namespace

TEST_CASE("200 random steps of 1 to 8 replicas give bit-exact sums over the replicas") {
  using lockstep::SumOrder;
  for (const auto& [members, order] :
       {std::pair{1, SumOrder::ranks}, std::pair{2, SumOrder::ranks}, std::pair{3, SumOrder::ranks},
        std::pair{5, SumOrder::tree}, std::pair{8, SumOrder::tree}}) {
    const auto size = static_cast<std::size_t>(members);
    const SumOrder adding = order;
    Group group(size, adding);
    INFO(size << " replicas");
    CHECK(in_threads(group, [&](std::size_t rank) {
            std::mt19937_64 plan(size), pace(rank);
            for (std::uint64_t round = 0; round < 200; ++round) {
              contract::Numbers<float> gradients(round, plan() % 2000, rank);
              contract::Numbers<double> sums(round + 1, plan() % 4, rank);
              step(lockstep::GradientExchange<float>(*group.exchanges[rank]), plan, pace, gradients,
                   sums);
              contract::expect(contract::is_sum(gradients, round, size, adding), "gradients");
              contract::expect(contract::is_sum(sums, round + 1, size, adding), "sums");
            }
          }) == "");
  }
}

TEST_CASE(
    "after a replica failed within a step, reset makes its exchanges and its group usable again") {
  constexpr std::size_t size = 4;
  Group group(size, lockstep::SumOrder::ranks);
  for (std::uint64_t round = 0; round < 60; ++round) {
    std::atomic<std::size_t> stopped = 0;
    CHECK(in_threads(group, [&](std::size_t rank) {
            std::mt19937_64 plan(round), pace(round * 10 + rank);
            contract::Numbers<float> gradients(round, 5000, rank);
            contract::Numbers<double> sums(round + 1, 2, rank);
            if (rank == round % size) {
              group.exchanges[rank]->post(gradients.data() + 4000, 1000);
              contract::dawdle(pace);
              group.group.abort();
            } else {
              try {
                group.exchanges[rank]->post(gradients.data() + 4000, 1000);
                step(lockstep::GradientExchange<float>(*group.exchanges[rank]), plan, pace,
                     gradients, sums);
              } catch (const lockstep::CollectiveAborted&) {
                ++stopped;
              }
            }
            group.exchanges[rank]->reset();  // now the gradients may be freed
          }) == "");
    CHECK(stopped == size - 1);
    group.group.reset();
    CHECK(in_threads(group, [&](std::size_t rank) {
            std::mt19937_64 plan(round), pace(rank);
            contract::Numbers<float> gradients(round, 500, rank);
            contract::Numbers<double> sums(round + 1, 2, rank);
            step(lockstep::GradientExchange<float>(*group.exchanges[rank]), plan, pace, gradients,
                 sums);
            contract::expect(contract::is_sum(gradients, round, size, lockstep::SumOrder::ranks),
                             "gradients after an error");
          }) == "");
  }
}

TEST_CASE("shares of ranges are scattered in the background, then the sums follow") {
  using Member = lockstep::ThreadGroup::Member;
  using InBackground = CommunicationThread<Member, float>;
  static_assert(lockstep::ScattersGradients<InBackground, float>);
  contract::check_shares([](Member member) { return std::make_unique<InBackground>(member); });
}
