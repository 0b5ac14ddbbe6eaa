#include "lockstep/collectives/gloo_group.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <thread>
#include <vector>

#include "../contract.hpp"
#include "places.hpp"

namespace {

using gloo_test::Meshes;
using lockstep::GlooGroup;
using lockstep::SumOrder;
using namespace std::chrono_literals;

using Ranks = gloo_test::Places<SumOrder::ranks>;
using Tree = gloo_test::Places<SumOrder::tree>;

}  // namespace

TEST_CASE("GlooGroup keeps the contract of a collective") {
  contract::check_collective<gloo_test::Places<SumOrder::ranks, 5>>();
}
TEST_CASE("GlooGroup of up to eight keeps the contract of a collective", "[.slow]") {
  contract::check_collective<Ranks>();
}
TEST_CASE("GlooGroup that adds in a tree keeps the contract of a collective", "[.slow]") {
  contract::check_collective<Tree>();
}

TEST_CASE("more numbers than travel at a time are summed, sent and gathered") {
  // Odd sizes around several rounds of 8 MB, with more sums than fit into one message.
  for (const std::size_t size : {2u, 3u}) {
    Ranks places(size, contract::no_timeout);
    CHECK(contract::first_error(
              contract::run_members(places, "many numbers", [&](auto& member, std::size_t) {
                contract::check_sum_with_sums<float>(member, SumOrder::ranks, 1, 4'500'001, 9'001);
                contract::check_sum_with_sums<std::uint8_t>(member, SumOrder::ranks, 2, 0, 9'001);
                contract::check_broadcast<float>(member, 3, 2'100'001, size - 1);
                contract::check_gather<double>(member, 4, 1'100'001);
              })) == "");
  }
}

TEST_CASE("groups on one mesh exchange beside each other, in other orders in other processes") {
  constexpr std::size_t size = 3;
  Meshes all(size);
  std::vector<GlooGroup> gradients, layers;
  for (std::size_t r = 0; r < size; ++r) {
    gradients.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 0});
    layers.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 1, .order = SumOrder::tree});
  }
  const contract::Deadline deadline("two channels");
  const auto errors = gloo_test::in_threads(size, [&](std::size_t r) {
    std::thread background([&] {
      for (std::uint64_t i = 0; i < 50; ++i)
        contract::check_sum<float>(gradients[r], SumOrder::ranks, i, 30'000);
    });
    if (r == 1) std::this_thread::sleep_for(20ms);
    for (std::uint64_t i = 0; i < 50; ++i)
      contract::check_sum<float>(layers[r], SumOrder::tree, 1000 + i, 7 + 3000 * (i % 3));
    background.join();
  });
  CHECK(contract::first_error(errors) == "");
}

TEST_CASE("an abort of one group ends the waits of all groups of its mesh, in all processes") {
  constexpr std::size_t size = 3;
  Meshes all(size);
  std::vector<GlooGroup> first, second;
  for (std::size_t r = 0; r < size; ++r) {
    first.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 0});
    second.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 1});
  }
  const contract::Deadline deadline("abort of another group");
  std::thread aborting([&] {
    std::this_thread::sleep_for(20ms);
    first[2].abort();  // its process is in no operation
  });
  const auto errors = gloo_test::in_threads(size - 1, [&](std::size_t r) { second[r].barrier(); });
  aborting.join();
  for (const auto& error : errors) CHECK(contract::is<lockstep::CollectiveAborted>(error));
}

TEST_CASE("two groups of a mesh on one channel are refused") {
  Meshes all(2);
  const GlooGroup group(all.meshes[0], {.channel = 3});
  CHECK_THROWS_AS(GlooGroup(all.meshes[0], {.channel = 3}), lockstep::UsageError);
  CHECK_THROWS_AS(GlooGroup(all.meshes[0], {.channel = 255}), lockstep::UsageError);
  CHECK_NOTHROW(GlooGroup(all.meshes[0], {.channel = 4}));
}

TEST_CASE("a timeout counts from the last progress, not from the start of the operation") {
  constexpr std::size_t size = 4;
  Ranks places(size, 800ms);
  const auto errors =
      contract::run_members(places, "late members", [&](auto& member, std::size_t rank) {
        std::this_thread::sleep_for(rank * 400ms);  // the last comes after 1,200 ms
        member.barrier();
      });
  CHECK(contract::first_error(errors) == "");
}
