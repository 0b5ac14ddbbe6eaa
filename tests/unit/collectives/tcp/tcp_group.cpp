#include "lockstep/collectives/tcp/tcp_group.hpp"

#include <sys/socket.h>

#include <array>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <map>
#include <memory>
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
