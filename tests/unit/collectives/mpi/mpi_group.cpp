// Run by mpirun with 1, 2, 3, 4 and 8 processes; the contract with 4 and 8.
#include "lockstep/collectives/mpi/mpi_group.hpp"

#include <signal.h>

#include <algorithm>
#include <array>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/collectives/mpi/mpi_channel.hpp"
#include "ranks.hpp"
#include "unit/collectives/contract.hpp"

namespace {

using namespace std::chrono_literals;
using contract::expect;
using contract::first_error;
using contract::run_members;
using lockstep::MpiGroup;
using lockstep::SumOrder;
using ranks::world;

using Sleeping = ranks::Members<SumOrder::ranks, 0>;
using PollingTree = ranks::Members<SumOrder::tree, 1000>;

/// Numbers whose sums over eight members are exact in every type.
template <class T>
std::vector<T> pattern(std::size_t n, std::size_t rank) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(i % 5 + rank);
  return x;
}
template <class T>
bool is_pattern_sum(const std::vector<T>& x, std::size_t members) {
  const std::size_t of_ranks = members * (members - 1) / 2;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != static_cast<T>(members * (i % 5) + of_ranks)) return false;
  return true;
}

template <class T>
void check_large(MpiGroup& member, std::size_t n) {
  // no sums, sums that just fit in a frame, and larger ones
  for (const std::size_t m : {0u, 256u, 257u, 20'001u}) {
    auto x = pattern<T>(m == 257 ? 0 : n, member.rank());
    auto sums = pattern<double>(m, member.rank());
    member.all_reduce(x.data(), x.size(), sums.data(), m);
    expect(is_pattern_sum(x, member.size()), "all_reduce: not the sum");
    expect(is_pattern_sum(sums, member.size()), "all_reduce: not the sum of the sums");
  }
  auto x = pattern<T>(n, member.rank());
  member.broadcast(x.data(), n, member.size() - 1);
  expect(x == pattern<T>(n, member.size() - 1), "broadcast: not the root's numbers");
  x = pattern<T>(n, member.rank());
  std::vector<T> all(member.size() * n);
  member.all_gather(x.data(), n, all.data());
  for (std::size_t r = 0; r < member.size(); ++r) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(r * n);
    const auto theirs = pattern<T>(n, r);
    expect(std::equal(theirs.begin(), theirs.end(), first), "all_gather: not by rank");
  }
}

/// Runs `body(member, rank)` in all processes. \return each error's text.
template <class Body>
std::vector<std::string> texts_of(ranks::Members<>& members, const Body& body,
                                  const std::vector<std::size_t>& absent = {}) {
  std::vector<std::string> texts;
  for (const auto& error : run_members(members, "a group over MPI", body, absent))
    texts.push_back(contract::text_of(error));
  return texts;
}

}  // namespace

TEMPLATE_TEST_CASE("MpiGroup keeps the contract of a collective", "[contract]", Sleeping,
                   PollingTree) {
  contract::check_collective<TestType>();
}

TEST_CASE("every member of an MpiGroup gets the sums of all number types") {
  ranks::Members<SumOrder::ranks, 1000> members(world().size());
  CHECK(first_error(run_members(members, "all_reduce", [](auto& member, std::size_t rank) {
          expect(member.rank() == rank && member.size() == world().size(), "its place");
          contract::for_each_number_type([&](auto type) {
            for (const std::size_t n : {0u, 1u, 7u, 511u, 513u, 100'003u})
              contract::check_sum_with_sums<decltype(type)>(member, SumOrder::ranks, n, n, n % 4);
          });
        })) == "");
}

TEST_CASE("data of several chunks is exchanged by an MpiGroup") {
  ranks::Members<> members(world().size());
  const std::size_t bytes = (std::size_t{8} << 20) + 1001;  // two chunks of ChannelGroup
  CHECK(first_error(run_members(members, "several chunks", [&](auto& member, std::size_t) {
          check_large<float>(member, bytes / sizeof(float));
          check_large<std::uint8_t>(member, bytes);
          check_large<std::int16_t>(member, 16'385 * member.size());
        })) == "");
}

TEST_CASE("data that just fit in a frame of MpiChannel, and data that do not, are exchanged") {
  const std::size_t small = lockstep::detail::MpiChannel::small;
  ranks::Members<> members(world().size());
  CHECK(first_error(run_members(members, "frames", [&](auto& member, std::size_t rank) {
          for (const std::size_t bytes : {small - 1, small, small + 1}) {
            contract::check_sum<std::uint8_t>(member, SumOrder::ranks, bytes, bytes);
            for (std::size_t root = 0; root < member.size(); ++root) {
              std::vector<unsigned char> x(bytes, static_cast<unsigned char>(rank));
              member.broadcast(x.data(), bytes, root);
              expect(x == std::vector<unsigned char>(bytes, static_cast<unsigned char>(root)),
                     "broadcast");
            }
            std::vector<unsigned char> mine(bytes, static_cast<unsigned char>(rank)),
                all(member.size() * bytes);
            member.all_gather(mine.data(), bytes, all.data());
            for (std::size_t i = 0; i < all.size(); ++i) expect(all[i] == i / bytes, "all_gather");
          }
        })) == "");
}

TEST_CASE("groups over MPI are used by two threads at once") {
  ranks::Members<> layers(world().size()), gradients(world().size());
  const auto use = [](auto& member, std::uint64_t set) {
    for (std::uint64_t i = 0; i < 30; ++i) {
      contract::check_sum<float>(member, SumOrder::ranks, set + i, 5'000);
      contract::check_sum<double>(member, SumOrder::ranks, set + i, 3);
    }
  };
  CHECK(first_error(run_members(layers, "two threads", [&](auto& member, std::size_t rank) {
          std::string error;
          std::thread other([&] {
            try {
              use(gradients.member(rank), 1000);
            } catch (const std::exception& e) {
              error = e.what();
            }
          });
          try {
            use(member, 0);
          } catch (...) {
            other.join();
            throw;
          }
          other.join();
          expect(error.empty(), "the other thread's group failed");
        })) == "");
}

TEST_CASE("progress counts the parts of operations over MPI, and names the missing member") {
  ranks::Members<> members(world().size(), 10s);
  CHECK(first_error(run_members(members, "progress", [](auto& member, std::size_t rank) {
          const std::size_t last = member.size() - 1;
          member.barrier();
          const auto before = member.progress();
          if (member.size() == 1) return;  // it exchanges nothing
          expect(before.done > 0 && !before.waits_for, "between operations");
          bool saw = rank > 0;
          if (rank == last) std::this_thread::sleep_for(50ms);
          std::thread watch([&] {
            for (const auto end = contract::Clock::now() + 5s;
                 !saw && contract::Clock::now() < end;)
              saw = member.progress().waits_for == last;
          });
          std::vector<float> x(100'000);
          if (rank == last) std::this_thread::sleep_for(100ms);
          member.all_reduce(x.data(), x.size());
          watch.join();
          expect(saw, "the last member was waited for, but not named");
          expect(member.progress().done > before.done, "an operation was not counted");
        })) == "");
}

TEST_CASE("an abort and a loss are reported by the other members over MPI", "[two]") {
  for (const bool lost : {false, true}) {
    ranks::Members<> members(world().size());
    const auto texts = texts_of(members, [&](auto& member, std::size_t rank) {
      if (rank == 0) lost ? member.lose(1) : member.abort();
      bool named = false;
      try {
        member.barrier();
      } catch (const lockstep::CollectiveAborted& e) {
        named = e.peer() == (lost ? 1u : 0u);
        expect(named, "the error names another member");
        throw;
      }
    });
    for (std::size_t r = 0; r < texts.size(); ++r) {
      const std::string name = std::to_string(r);
      if (lost && r == 1)
        CHECK(texts[r] == "barrier: the other replicas have lost this one, replica 1");
      else
        CHECK(texts[r] == "barrier: replica " + name + " stopped because " +
                              (lost ? "a replica was lost (1)" : "another replica failed"));
    }
  }
}

TEST_CASE("an exception that destroys a member of an MpiGroup ends the others' waits", "[two]") {
  const ranks::First all(world().size());
  const contract::Deadline deadline("a destroyed member");
  std::string error;
  try {
    MpiGroup group(lockstep::MpiCommunicator(all.get()), {.timeout = 60s});
    if (group.rank() == 0) throw std::runtime_error("a file is missing");
    group.barrier();
  } catch (const lockstep::CollectiveAborted&) {
    error = "aborted";
  } catch (const std::runtime_error& e) {
    error = e.what();
  }
  CHECK(error == (world().rank() == 0 ? "a file is missing" : "aborted"));
}

TEST_CASE("a member that does not arrive at an operation over MPI is named", "[two]") {
  ranks::Members<> members(2, 400ms);
  const auto call = [](auto& member, std::size_t) {
    float x = 1;
    const auto start = contract::Clock::now();
    try {
      member.all_reduce(&x, 1);
    } catch (const lockstep::CollectiveTimeout& e) {
      expect(contract::Clock::now() - start >= 400ms, "the wait ended before the timeout");
      expect(e.peer() == 1u, "the error names another member");
      throw;
    }
  };
  const auto texts = texts_of(members, call, {1});
  CHECK(texts[0] ==
        "all_reduce: replica 0 waited 400 ms for replica 1, which did not arrive; it hangs, or it "
        "needs a longer timeout");
}

TEST_CASE("calls over MPI that differ are reported with both replicas, operations and sizes",
          "[two]") {
  ranks::Members<> members(2);
  const auto texts = texts_of(members, [](auto& member, std::size_t rank) {
    std::vector<double> x(30'000);  // of one member, more than a frame
    if (rank == 0)
      member.broadcast(x.data(), 3, 0);
    else
      member.all_reduce(reinterpret_cast<std::int64_t*>(x.data()), x.size());
  });
  const std::string first = "replica 0 calls broadcast of 3 elements of float64 from replica 0",
                    second = "replica 1 calls all_reduce of 30000 elements of int64",
                    end = "; all replicas must make the same calls in the same order";
  CHECK(texts[0] == second + ", " + first + end);
  CHECK(texts[1] == first + ", " + second + end);
}

TEST_CASE("a process that does not construct the group is noticed at the timeout", "[two]") {
  const ranks::First all(world().size());
  const contract::Deadline deadline("a group without one process");
  if (world().rank() > 0)
    CHECK_THROWS_AS(MpiGroup(lockstep::MpiCommunicator(all.get()), {.timeout = 400ms}),
                    lockstep::CollectiveTimeout);
  MPI_Barrier(MPI_COMM_WORLD);
}

// mpirun reports the signal, which the test expects.
TEST_CASE("mpirun ends the job of a killed process", "[.killed]") {
  const contract::Deadline deadline("the job of a killed process");
  MpiGroup group(world(), {.timeout = 60s});
  for (int i = 0;; ++i) {
    float x = 1;
    if (i == 100 && group.rank() == 1) ::raise(SIGKILL);
    group.all_reduce(&x, 1);
  }
}
