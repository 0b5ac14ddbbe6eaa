#include "lockstep/collectives/tcp/tcp_group.hpp"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unit/collectives/contract.hpp"
#include "unit/collectives/tcp_places.hpp"

namespace {

using contract::run_members;
using lockstep::SumOrder;
using lockstep::TcpGroup;
using lockstep::detail::Topology;
using namespace std::chrono_literals;
using tcp_test::Places;

using Plain = Places<SumOrder::ranks, Topology::direct, false>;
using Sealed = Places<SumOrder::tree, Topology::direct, true>;
struct Chain : Places<SumOrder::ranks, Topology::tree, false> {
  static constexpr bool sees_neighbors = true;
  using Places::Places;
};
struct Tree : Places<SumOrder::tree, Topology::tree, true> {
  static constexpr bool sees_neighbors = true;
  using Places::Places;
};
using Striped = Places<SumOrder::ranks, Topology::direct, false, 3, 400>;

}  // namespace

TEMPLATE_TEST_CASE("data of several pieces travel over TCP", "", Plain, Striped) {
  const std::size_t bytes = (std::size_t{9} << 20) + 1;
  for (const std::size_t size : {2u, 3u}) {
    TestType maker(size, contract::no_timeout);
    CHECK(contract::first_error(run_members(maker, "pieces", [&](auto& member, std::size_t) {
            contract::check_broadcast<std::uint8_t>(member, 1, bytes, size - 1);
            contract::check_gather<std::uint8_t>(member, 2, bytes);
          })) == "");
  }
}

TEMPLATE_TEST_CASE("TcpGroup keeps the contract of a collective", "", Plain, Sealed, Chain, Tree,
                   Striped) {
  contract::check_collective<TestType>();
}

TEMPLATE_TEST_CASE("messages of two members arrive in order, without a wait of the sender", "",
                   Plain, Sealed, Striped) {
  TestType maker(2, contract::no_timeout);
  std::atomic<bool> has_sent = false;
  const auto value = [](std::size_t message, std::size_t i) {
    return static_cast<std::uint32_t>(message * 1'000'003 + i * 7);
  };
  CHECK(contract::first_error(run_members(maker, "messages", [&](auto& member, std::size_t rank) {
          const auto exchange = [&](std::size_t message, std::size_t n, std::size_t sender) {
            std::vector<std::uint32_t> data(n);
            if (rank == sender) {
              for (std::size_t i = 0; i < n; ++i) data[i] = value(message, i);
              return member.send(data.data(), n);
            }
            member.receive(data.data(), n);
            for (std::size_t i = 0; i < n; ++i)
              if (data[i] != value(message, i)) throw lockstep::Error("message {}", message);
          };
          for (int i = 0; rank == 1 && !has_sent; ++i) {
            if (i == 10'000) throw lockstep::Error("the sender waits");
            std::this_thread::sleep_for(1ms);
          }
          for (const std::size_t n : {1u, 0u, 100u, 3u}) exchange(n, n, 0);
          has_sent = true;
          float sum = 1;
          member.all_reduce(&sum, 1);
          if (sum != 2) throw lockstep::Error("sum {}", sum);
          std::mt19937 draw(6);
          for (std::size_t message = 0; message < 60; ++message) {
            const std::size_t n = draw() % (draw() % 4 == 0 ? 300'000 : 50), sender = draw() % 2;
            exchange(message, n, sender);
          }
        })) == "");
}

TEST_CASE("a message of another size is refused by the receiver, and the sender hears of it") {
  Plain maker(2, contract::no_timeout);
  const auto errors = run_members(maker, "sizes", [](TcpGroup& member, std::size_t rank) {
    int data[7] = {};
    if (rank == 1) return member.receive(data, 7);
    member.send(data, 5);
    member.receive(data, 1);
  });
  for (const std::exception_ptr& error : errors) {
    REQUIRE(error);
    CHECK_THROWS_AS(std::rethrow_exception(error), lockstep::UsageError);
  }
  CHECK_THAT(contract::first_error(errors),
             Catch::Matchers::ContainsSubstring("message of 5 elements of int32") &&
                 Catch::Matchers::ContainsSubstring("message of 7 elements of int32"));
}

TEST_CASE("messages need a group of two") {
  int one = 1;
  CHECK_THROWS_WITH(
      lockstep::ProcessGroup().send(&one, 1),
      "send, receive: the group has 1 members, so that the other one is not determined; "
      "make a group of two, or use broadcast");
  Plain maker(3, contract::no_timeout);
  for (const auto& error : run_members(maker, "three", [](TcpGroup& member, std::size_t) {
         int number = 0;
         member.receive(&number, 1);
       }))
    CHECK_THROWS_AS(std::rethrow_exception(error), lockstep::UsageError);
}

TEST_CASE("groups on one mesh exchange concurrently, in a different order in each process") {
  constexpr std::size_t size = 3;
  const auto meshes = tcp_test::connect_meshes(size);
  std::vector<TcpGroup> gradients, layers;
  for (const auto& mesh : meshes) {
    gradients.emplace_back(mesh, TcpGroup::Options{.channel = 0});
    layers.emplace_back(mesh, TcpGroup::Options{.channel = 1, .order = SumOrder::tree});
  }
  const contract::Deadline deadline("two channels");
  const auto errors = tcp_test::in_threads(2 * size, [&](std::size_t i) {
    const std::size_t r = i / 2;
    if (i % 2 == 0)
      for (std::uint64_t k = 0; k < 50; ++k)
        contract::check_sum<float>(gradients[r], SumOrder::ranks, k, 30'000);
    if (r == 1) std::this_thread::sleep_for(20ms);
    if (i % 2 == 1)
      for (std::uint64_t k = 0; k < 50; ++k)
        contract::check_sum<float>(layers[r], SumOrder::tree, 1000 + k, 7 + 3000 * (k % 3));
  });
  CHECK(contract::first_error(errors) == "");
}

TEST_CASE("an abort of one group ends the waits of all groups of its mesh, in all processes") {
  constexpr std::size_t size = 3;
  const auto meshes = tcp_test::connect_meshes(size);
  std::vector<TcpGroup> first, second;
  for (const auto& mesh : meshes) {
    first.emplace_back(mesh, TcpGroup::Options{.channel = 0});
    second.emplace_back(mesh, TcpGroup::Options{.channel = 1});
  }
  const contract::Deadline deadline("abort of another group");
  const auto errors = tcp_test::in_threads(size, [&](std::size_t r) {
    if (r < 2) return second[r].barrier();
    std::this_thread::sleep_for(20ms);
    first[2].abort();  // its process is not in an operation
  });
  CHECK(!errors[2]);
  for (const std::size_t r : {0u, 1u}) CHECK(contract::is<lockstep::CollectiveAborted>(errors[r]));
}

TEST_CASE("two groups of a mesh on one channel are refused") {
  const auto meshes = tcp_test::connect_meshes(2);
  const TcpGroup group(meshes[0], {.channel = 0});
  CHECK_THROWS_AS(TcpGroup(meshes[0], {.channel = 0}), lockstep::UsageError);
  CHECK_THROWS_AS(TcpGroup(meshes[0], {.channel = 2}), lockstep::UsageError);
  CHECK_NOTHROW(TcpGroup(meshes[0], {.channel = 1}));
}

TEST_CASE("a timeout counts from the last progress, not from the start of the operation") {
  Plain places(4, 800ms);
  const auto errors = run_members(places, "late members", [](TcpGroup& member, std::size_t rank) {
    std::this_thread::sleep_for(rank * 400ms);  // the last one arrives after 1,200 ms
    member.barrier();
  });
  CHECK(contract::first_error(errors) == "");
}
