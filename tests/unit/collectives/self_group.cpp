#include "lockstep/collectives/self_group.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <vector>

#include "contract.hpp"

namespace {

struct Self {
  static constexpr std::size_t max_size = 1;
  static constexpr lockstep::SumOrder order = lockstep::SumOrder::ranks;
  static constexpr bool can_end = false;  // there are no peers to wait for

  Self(std::size_t, std::chrono::milliseconds) {}
  std::size_t size() const { return 1; }
  lockstep::SelfGroup& member(std::size_t) { return group; }
  lockstep::SelfGroup group;
};

}  // namespace

TEST_CASE("SelfGroup keeps the contract of a collective") { contract::check_collective<Self>(); }

TEST_CASE("the exchange of a group of one leaves gradients and sums unchanged") {
  lockstep::SelfGroup group;
  std::vector<float> gradients{1, 2, 3};
  double sums[2] = {4, 5};
  const lockstep::GradientExchange<float> exchange(group);
  exchange.post(gradients.data() + 1, 2);
  exchange.finish(gradients.data(), 1, sums, 2);
  const std::vector<lockstep::Slice> shares{{0, 3}};
  exchange.post(gradients.data(), {1, 2}, shares);
  exchange.finish(gradients.data(), {0, 1}, shares, sums, 2);
  CHECK(gradients == std::vector<float>{1, 2, 3});
  CHECK((sums[0] == 4 && sums[1] == 5));
}

TEST_CASE("a group of one stays usable after an abort") {
  lockstep::SelfGroup group;
  group.abort();
  group.abort();
  double x = 7;
  group.all_reduce(&x, 1);
  CHECK(x == 7);
}

TEST_CASE("a CollectiveRef calls the group that it refers to") {
  struct Doubling {
    std::size_t rank() const { return 3; }
    std::size_t size() const { return 4; }
    void abort() {}
    void all_reduce(float* p, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) p[i] *= 2;
    }
    void all_reduce(double* p, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) p[i] *= 3;
    }
    void all_gather(const std::byte* p, std::size_t, std::byte* out) { out[0] = p[1]; }
    void broadcast(std::byte* p, std::size_t n, std::size_t root) {
      p[n] = static_cast<std::byte>(root);
    }
  };
  Doubling group;
  const lockstep::CollectiveRef ref(group);
  float x[2] = {1, 2};
  double y[2] = {1, 2};
  ref.all_reduce(x, 1);
  ref.all_reduce(y, 2);
  CHECK((x[0] == 2 && x[1] == 2));
  CHECK((y[0] == 3 && y[1] == 6));
  const std::byte own[2] = {std::byte{1}, std::byte{2}};
  std::byte all[1] = {};
  ref.all_gather(own, 2, all);
  CHECK(all[0] == std::byte{2});
  std::byte sent[2] = {};
  ref.broadcast(sent, 1, 3);
  CHECK(sent[1] == std::byte{3});
  CHECK(ref.rank() == 3);
  CHECK(ref.size() == 4);
  CHECK_FALSE(ref.has_ranges());
}
