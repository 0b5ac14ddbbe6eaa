#include "lockstep/collectives/algorithms/sum_members.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/collectives/algorithms/sum_parts.hpp"
#include "unit/collectives/members.hpp"

namespace {

using lockstep::SumOrder;

/// a + b, rounded to T.
template <class T>
struct Number {
  T value;
  friend Number operator+(Number a, Number b) { return {static_cast<T>(a.value + b.value)}; }
};

// Both orders, written out for each number of members.
template <class N>
N by_ranks(const std::vector<N>& x) {
  switch (x.size()) {
    case 1:
      return x[0];
    case 2:
      return x[0] + x[1];
    case 3:
      return (x[0] + x[1]) + x[2];
    case 4:
      return ((x[0] + x[1]) + x[2]) + x[3];
    case 5:
      return (((x[0] + x[1]) + x[2]) + x[3]) + x[4];
    case 6:
      return ((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) + x[5];
    case 7:
      return (((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) + x[5]) + x[6];
    case 8:
      return ((((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) + x[5]) + x[6]) + x[7];
    default:
      return (((((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) + x[5]) + x[6]) + x[7]) + x[8];
  }
}

template <class N>
N by_tree(const std::vector<N>& x) {
  switch (x.size()) {
    case 1:
      return x[0];
    case 2:
      return x[0] + x[1];
    case 3:
      return (x[0] + x[1]) + x[2];
    case 4:
      return (x[0] + x[1]) + (x[2] + x[3]);
    case 5:
      return ((x[0] + x[1]) + x[2]) + (x[3] + x[4]);
    case 6:
      return ((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5]);
    case 7:
      return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]);
    case 8:
      return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    default:
      return (((x[0] + x[1]) + x[2]) + (x[3] + x[4])) + ((x[5] + x[6]) + (x[7] + x[8]));
  }
}

/// The parts of all members, each at a different offset from a cache line.
template <class T>
struct Parts {
  Parts(std::uint64_t set, std::size_t members, std::size_t n) {
    for (std::size_t r = 0; r < members; ++r) numbers.emplace_back(set, n, r);
    for (auto& part : numbers) pointers.push_back(part.data());
  }
  void sum(SumOrder order, std::size_t n) {
    lockstep::detail::sum_members(pointers.data(), pointers.size(), n, order);
  }
  std::vector<contract::Numbers<T>> numbers;
  std::vector<T*> pointers;
};

template <class T>
bool each_holds_the_sum(std::size_t members, std::size_t n, SumOrder order) {
  Parts<T> parts(n, members, n);
  parts.sum(order, n);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<Number<T>> x;
    for (std::size_t r = 0; r < members; ++r)
      x.push_back({contract::value<T>(contract::key_of(n, r), i)});
    const T sum = (order == SumOrder::tree ? by_tree(x) : by_ranks(x)).value;
    for (const auto& part : parts.numbers)
      if (!contract::same_bits(part[i], sum)) return false;
  }
  for (const auto& part : parts.numbers)
    if (!part.guards_intact()) return false;
  return true;
}

}  // namespace

TEMPLATE_TEST_CASE("the members' numbers are added in the order named, to the last bit", "", float,
                   double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                   std::uint32_t, std::int64_t, std::uint64_t) {
  for (const SumOrder order : {SumOrder::ranks, SumOrder::tree})
    for (std::size_t members = 1; members <= 9; ++members)
      for (const std::size_t n : {0u, 1u, 2u, 3u, 17u, 1023u, 1024u, 1025u, 2049u, 3001u}) {
        INFO(members << " members, " << n << " elements, tree " << (order == SumOrder::tree));
        CHECK(each_holds_the_sum<TestType>(members, n, order));
      }
}

TEST_CASE("bfloat16 are added as floats, and each sum is rounded once") {
  using lockstep::bfloat16;
  for (const SumOrder order : {SumOrder::ranks, SumOrder::tree})
    for (std::size_t members = 1; members <= 9; ++members)
      for (const std::size_t n : {0u, 1u, 3u, 1023u, 1024u, 3001u}) {
        INFO(members << " members, " << n << " elements, tree " << (order == SumOrder::tree));
        std::vector<std::vector<bfloat16>> values(members), copies;
        std::vector<bfloat16*> pointers;
        std::vector<const std::byte*> parts;
        for (std::size_t r = 0; r < members; ++r) {
          for (std::size_t i = 0; i < n; ++i)
            values[r].emplace_back(contract::value<float>(contract::key_of(n, r), i));
          copies.push_back(values[r]);
        }
        for (std::vector<bfloat16>& copy : copies) pointers.push_back(copy.data());
        for (const std::vector<bfloat16>& own : values)
          parts.push_back(reinterpret_cast<const std::byte*>(own.data()));
        std::vector<bfloat16> sums(n);
        lockstep::detail::sum_parts<bfloat16>(reinterpret_cast<std::byte*>(sums.data()),
                                              parts.data(), members, 2 * n, order);
        lockstep::detail::sum_members(pointers.data(), members, n, order);
        bool are_sums = true;
        for (std::size_t i = 0; i < n; ++i) {
          std::vector<Number<float>> x;
          for (std::size_t r = 0; r < members; ++r) x.push_back({values[r][i]});
          const bfloat16 sum((order == SumOrder::tree ? by_tree(x) : by_ranks(x)).value);
          are_sums = are_sums && sums[i].bits == sum.bits;
          for (const std::vector<bfloat16>& copy : copies)
            are_sums = are_sums && copy[i].bits == sum.bits;
        }
        CHECK(are_sums);
      }
}

TEST_CASE("an element's sum does not depend on its position or on other elements") {
  constexpr std::size_t members = 5, n = 2500;
  for (const SumOrder order : {SumOrder::ranks, SumOrder::tree}) {
    Parts<float> whole(1, members, n), pieces(1, members, n);
    whole.sum(order, n);
    for (std::size_t at = 0, length = 1; at < n; length = length * 2 + 1) {
      const std::size_t count = std::min(length, n - at);
      std::vector<float*> part;
      for (float* p : pieces.pointers) part.push_back(p + at);
      lockstep::detail::sum_members(part.data(), members, count, order);
      at += count;
    }
    for (std::size_t i = 0; i < n; ++i)
      REQUIRE(contract::same_bits(whole.numbers[0][i], pieces.numbers[0][i]));
  }
}

TEST_CASE("a tree over 8 members is the tree over the sums of its subtrees") {
  constexpr std::size_t n = 1500;
  Parts<float> all(2, 8, n);
  all.sum(SumOrder::tree, n);
  for (const std::size_t branches : {1u, 2u, 4u}) {
    Parts<float> parts(2, 8, n);
    const std::size_t leaves = 8 / branches;
    std::vector<float*> tops;
    for (std::size_t b = 0; b < branches; ++b) {
      lockstep::detail::sum_members(&parts.pointers[b * leaves], leaves, n, SumOrder::tree);
      tops.push_back(parts.pointers[b * leaves]);
    }
    lockstep::detail::sum_members(tops.data(), branches, n, SumOrder::tree);
    for (std::size_t i = 0; i < n; ++i)
      REQUIRE(contract::same_bits(all.numbers[0][i], parts.numbers[0][i]));
  }
}

TEST_CASE("zeros keep their sign") {
  for (const SumOrder order : {SumOrder::ranks, SumOrder::tree})
    for (std::size_t members = 1; members <= 9; ++members) {
      std::vector<float> zeros(members, -0.0f);
      std::vector<float*> parts;
      for (float& zero : zeros) parts.push_back(&zero);
      lockstep::detail::sum_members(parts.data(), members, 1, order);
      for (const float zero : zeros) CHECK(contract::same_bits(zero, -0.0f));
    }
}
