#include "lockstep/collectives/exchange/exchange_at_end.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/thread_group.hpp"
#include "unit/collectives/exchange/shares.hpp"
#include "unit/collectives/members.hpp"

namespace {

/// A collective that records its calls, and fails on request.
struct Noting {
  struct Seen {
    std::vector<std::pair<const float*, std::size_t>> ranges;
    std::vector<std::thread::id> threads;
    std::vector<std::size_t> sums;
    bool fails = false;
  };
  Seen* seen;
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void abort() {}
  void all_reduce(float* p, std::size_t n) { all_reduce(p, n, nullptr, 0); }
  void all_reduce(float* p, std::size_t n, double*, std::size_t m) {
    if (seen->fails) throw std::runtime_error("exchange failed");
    seen->ranges.emplace_back(p, n);
    seen->threads.push_back(std::this_thread::get_id());
    seen->sums.push_back(m);
  }
};
using Exchange = lockstep::ExchangeAtEnd<Noting, float>;
static_assert(lockstep::ExchangesGradients<Exchange, float>);

using Ranges = std::vector<std::pair<const float*, std::size_t>>;

}  // namespace

TEST_CASE("adjacent ranges leave in one message, in the caller's thread, with the sums") {
  Noting::Seen seen;
  Exchange exchange(Noting{&seen});
  std::vector<float> x(1000);
  double sums[3] = {};
  for (int step = 1; step <= 3; ++step) {
    exchange.post(x.data() + 700, 300);
    exchange.post(x.data() + 200, 500);
    CHECK(seen.ranges.size() + 1 == static_cast<std::size_t>(step));  // not exchanged yet
    exchange.finish(x.data(), 200, sums, 3);
    CHECK(seen.ranges.back() == std::pair<const float*, std::size_t>(x.data(), 1000));
    CHECK(seen.threads.back() == std::this_thread::get_id());
    CHECK(seen.sums.back() == 3);
  }
}

TEST_CASE("ranges with a gap in between leave separately, in the order of posting") {
  Noting::Seen seen;
  Exchange exchange(Noting{&seen});
  std::vector<float> x(1000);
  exchange.post(x.data() + 700, 300);
  exchange.post(x.data() + 100, 500);
  exchange.post(x.data() + 50, 50);
  exchange.finish(x.data(), 10, nullptr, 0);
  CHECK(seen.ranges == Ranges{{x.data() + 700, 300}, {x.data() + 50, 550}, {x.data(), 10}});
}

TEST_CASE("without a posted range only the sums are exchanged") {
  Noting::Seen seen;
  Exchange exchange(Noting{&seen});
  std::vector<float> x(10);
  double sums[2] = {};
  exchange.finish(x.data(), 0, sums, 2);
  CHECK(seen.ranges == Ranges{{x.data(), 0}});
  CHECK(seen.sums == std::vector<std::size_t>{2});
}

TEST_CASE("after an error no range of the failed step is exchanged") {
  Noting::Seen seen;
  Exchange exchange(Noting{&seen});
  std::vector<float> x(100);
  SECTION("of the collective") {
    exchange.post(x.data() + 50, 50);
    seen.fails = true;
    CHECK_THROWS_AS(exchange.finish(x.data(), 50, nullptr, 0), std::runtime_error);
    seen.fails = false;
  }
  SECTION("of another replica, before finish") { exchange.post(x.data() + 50, 50); }
  exchange.reset();
  exchange.finish(x.data(), 7, nullptr, 0);
  CHECK(seen.ranges == Ranges{{x.data(), 7}});
}

TEST_CASE("the members of a group of threads get their sums") {
  const contract::Deadline deadline("sums at the end");
  constexpr std::size_t members = 3, n = 1001;
  lockstep::ThreadGroup group({.size = members});
  std::vector<std::vector<float>> x(members, std::vector<float>(n));
  std::vector<double> sums(members);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < members; ++r)
    threads.emplace_back([&, r] {
      lockstep::ExchangeAtEnd<lockstep::ThreadGroup::Member, float> exchange(
          lockstep::ThreadGroup::Member(group, r));
      for (std::size_t i = 0; i < n; ++i) x[r][i] = static_cast<float>(i * (r + 1));
      sums[r] = static_cast<double>(r + 1);
      exchange.post(x[r].data() + 400, n - 400);
      exchange.finish(x[r].data(), 400, &sums[r], 1);
    });
  for (std::thread& t : threads) t.join();
  for (std::size_t r = 0; r < members; ++r) {
    CHECK(sums[r] == 6);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += x[r][i] != static_cast<float>(6 * i);
    CHECK(wrong == 0);
  }
}

TEST_CASE("shares of adjacent ranges are scattered in one operation, then the sums follow") {
  using Member = lockstep::ThreadGroup::Member;
  using AtEnd = lockstep::ExchangeAtEnd<Member, float>;
  static_assert(lockstep::ScattersGradients<AtEnd, float> &&
                !lockstep::ScattersGradients<Exchange, float>);
  contract::check_shares([](Member member) { return std::make_unique<AtEnd>(member); });
}

TEST_CASE("an exchange without operations on ranges all-reduces the parts") {
  Noting::Seen seen;
  Exchange own(Noting{&seen});
  const lockstep::GradientExchange<float> exchange(own);
  std::vector<float> x(100);
  const std::vector<lockstep::Slice> shares{{0, 100}};
  double sum = 0;
  exchange.post(x.data(), {60, 40}, shares);
  exchange.finish(x.data(), {50, 10}, shares, &sum, 1);
  CHECK(seen.ranges == Ranges{{x.data() + 50, 50}});
  CHECK(seen.sums == std::vector<std::size_t>{1});
}
