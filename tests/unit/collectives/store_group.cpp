#include "lockstep/collectives/store_group.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "contract.hpp"
#include "lockstep/collectives/algorithms/process_group.hpp"
#include "unit/cluster/rendezvous/support.hpp"

namespace {

using contract::run_members;
using lockstep::CollectiveTimeout;
using lockstep::ExchangeProgress;
using lockstep::PeerLost;
using lockstep::StoreGroup;
using lockstep::SumOrder;
using namespace std::chrono_literals;

/// A job whose ranks are threads of this process.
struct Job {
  explicit Job(std::size_t size) : members(rendezvous_test::join_all(size, lines)) {}
  ~Job() { rendezvous_test::leave_all(members); }
  rendezvous_test::Lines lines;
  std::vector<rendezvous_test::Member> members;
};

/// The jobs of a test, by size: many groups in turn use one job.
std::map<std::size_t, std::unique_ptr<Job>> jobs;
struct EndJobs {
  ~EndJobs() { jobs.clear(); }
};

template <SumOrder sum_order, std::size_t most>
class Groups {
 public:
  static constexpr std::size_t max_size = most;
  static constexpr SumOrder order = sum_order;
  static constexpr bool can_end = true;
  static constexpr bool sees_neighbors = true;  // an error names one absent member

  Groups(std::size_t size, std::chrono::milliseconds timeout) {
    static int number = 0;
    const std::string name = "group " + std::to_string(number++);
    auto& job = jobs[size];
    if (!job) job = std::make_unique<Job>(size);
    for (const auto& member : job->members)
      members_.emplace_back(*member, name,
                            lockstep::GroupOptions{.timeout = timeout, .order = order});
  }
  std::size_t size() const { return members_.size(); }
  StoreGroup& member(std::size_t rank) { return members_[rank]; }

 private:
  std::deque<StoreGroup> members_;
};

template <class E>
std::string text_of(const std::exception_ptr& error) {
  return rendezvous_test::sentence<E>([&] {
    if (error) std::rethrow_exception(error);
  });
}

void wait_at_barrier(StoreGroup& member) {
  while (!member.progress().waits_for) std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_CASE("StoreGroup keeps the contract of a collective") {
  const EndJobs end;
  contract::check_collective<Groups<SumOrder::ranks, 4>>();
}

TEMPLATE_TEST_CASE("StoreGroup of up to eight keeps the contract of a collective", "[.slow]",
                   (Groups<SumOrder::ranks, 8>), (Groups<SumOrder::tree, 8>)) {
  const EndJobs end;
  contract::check_collective<TestType>();
}

TEST_CASE("eight members over the rendezvous get the sums, in the order of ranks and of a tree") {
  const EndJobs end;
  const auto check = [](auto maker) {
    run_members(maker, "sums", [&](auto& member, std::size_t) {
      for (const std::size_t n : {0u, 1u, 1001u, 8193u}) {
        contract::check_sum_with_sums<float>(member, maker.order, n, n, 3);
        contract::check_gather<std::uint16_t>(member, n, n);
        contract::check_broadcast<double>(member, n, n, 7);
      }
    });
  };
  check(Groups<SumOrder::ranks, 8>(8, contract::no_timeout));
  check(Groups<SumOrder::tree, 8>(8, contract::no_timeout));
}

TEST_CASE("the error of each member names the one that never comes, whoever times out first") {
  const EndJobs end;
  Groups<SumOrder::ranks, 4> maker(4, 200ms);
  const auto errors = run_members(maker, "an absent member",
                                  [&](auto& member, std::size_t rank) {
                                    std::this_thread::sleep_for(rank * 30ms);
                                    member.barrier();
                                  },
                                  {2});
  for (const std::size_t rank : {0u, 1u, 3u}) {
    CAPTURE(rank);
    CHECK(text_of<CollectiveTimeout>(errors[rank]) ==
          "barrier: replica " + std::to_string(rank) +
              " waited 200 ms for replica 2, which did not arrive; it hangs, or it needs a longer "
              "timeout");
    REQUIRE(errors[rank]);
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const CollectiveTimeout& e) {
      CHECK(e.peer() == 2);
    }
  }
}

TEST_CASE("a member that dies ends the waits of all others, who name it") {
  for (const std::size_t dies : {1u, 0u}) {
    CAPTURE(dies);
    const EndJobs end;
    Groups<SumOrder::ranks, 3> maker(3, 60s);
    std::thread killer([&] {
      for (std::size_t r = 0; r < 3; ++r)
        if (r != dies) wait_at_barrier(maker.member(r));
      rendezvous_test::Access::kill(*jobs[3]->members[dies]);
    });
    const auto errors = run_members(maker, "a dead member",
                                    [](auto& member, std::size_t) { member.barrier(); }, {dies});
    killer.join();
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == dies) continue;
      const std::string text = text_of<PeerLost>(errors[r]);
      CAPTURE(r, text);
      CHECK(text.find("rank " + std::to_string(dies)) == 0);
      CHECK(text.find("closed its connection") != std::string::npos);
    }
  }
}

TEST_CASE("a member reports finished rounds, and itself while it waits") {
  const EndJobs end;
  Groups<SumOrder::ranks, 2> maker(2, 60s);
  lockstep::ProcessGroup held(maker.member(0));
  std::vector<double> numbers(10'000, 1);
  CHECK(maker.member(0).progress() == ExchangeProgress{});
  run_members(maker, "sums", [&](auto& member, std::size_t rank) {
    std::vector<double> own(numbers);
    rank == 0 ? held.all_reduce(own.data(), own.size()) : member.all_reduce(own.data(), own.size());
  });
  // 160,000 bytes of both members, at most 63 KiB in a round
  CHECK(maker.member(0).progress() == ExchangeProgress{3, {}});
  const auto errors = run_members(maker, "an abort", [&](auto& member, std::size_t rank) {
    if (rank == 0) return member.barrier();
    wait_at_barrier(maker.member(0));
    contract::expect(maker.member(0).progress() == ExchangeProgress{3, 0}, "its progress");
    held.lose(1);
  });
  CHECK(text_of<lockstep::CollectiveAborted>(errors[0]) == "barrier: aborted in this process");
  CHECK_FALSE(errors[1]);
  CHECK(maker.member(0).progress() == ExchangeProgress{3, {}});
}
