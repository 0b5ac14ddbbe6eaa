#include "lockstep/data/operations/map.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::range;

namespace {
const auto noise = ls::map([](auto& example, ls::Philox& draws) {
  for (float& v : example.x) v += static_cast<float>(draws.uniform());
});
}  // namespace

TEST_CASE("map changes features and targets in place, in float, then widens") {
  const auto data = range(4) | ls::map([](ls::Example<>& e) {
                      e.x[0] = e.x[0] / 3;
                      e.y[0] = 10 + e.y[0];
                    });
  const auto narrow = gather_all<float>(data);
  const auto wide = gather_all<double>(data);
  CHECK(narrow.x == std::vector{0.0f, 1.0f / 3, 2.0f / 3, 1.0f});
  CHECK(wide.x == std::vector<double>(narrow.x.begin(), narrow.x.end()));
  CHECK(narrow.y == std::vector<std::int32_t>{10, 11, 12, 13});
  CHECK(wide.y == narrow.y);
}

TEST_CASE("map can change real targets, and maps run in order") {
  const auto line = ls::tensors(std::vector{1.f, 2.f}, ls::shape(1), std::vector{1.f, 2.f});
  const auto data = line | ls::map([](ls::Example<float>& e) {
                      e.y[0] += 1;
                      e.x[0] += 1;
                    }) |
                    ls::map([](auto& e) {
                      e.y[0] *= 10;
                      e.x[0] *= 10;
                    });
  CHECK(gather_all<float>(data).y == std::vector{20.f, 30.f});
  CHECK(gather_all<double>(data).y == std::vector{20.0, 30.0});
  CHECK(gather_all<double>(data).x == std::vector{20.0, 30.0});
}

TEST_CASE("a map with a shape writes features of that shape, in float and double alike") {
  const auto data =
      ls::tensors(std::vector{1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, ls::shape(3), std::vector{7.f, 8.f}) |
      ls::map<ls::shape(2)>([](std::span<const float> in, std::span<float> out) {
        out[0] = in[0] + in[1];
        out[1] = in[2];
      });
  CHECK(data.shape() == ls::shape(2));
  CHECK(gather_all<float>(data).x == std::vector{3.f, 3.f, 9.f, 6.f});
  CHECK(gather_all<float>(data).y == std::vector{7.f, 8.f});
  CHECK(gather_all<double>(data).x == std::vector{3.0, 3.0, 9.0, 6.0});
  CHECK(gather_all<double>(data).y == std::vector{7.0, 8.0});
}

TEST_CASE("draws of a random map depend only on seed, pass, map and ordinal") {
  const auto data = range(1) | ls::repeat(64) | noise;  // x is 0, so the result is the draw
  const auto drawn = gather_all<double>(data, {1, 0}).x;
  CHECK(std::set<double>(drawn.begin(), drawn.end()).size() == 64);
  CHECK(drawn == gather_all<double>(data, {1, 0}).x);
  CHECK(gather_all<float>(data, {1, 0}).x == std::vector<float>(drawn.begin(), drawn.end()));
  CHECK(drawn != gather_all<double>(data, {1, 1}).x);
  CHECK(drawn != gather_all<double>(data, {2, 0}).x);

  // Draws depend on the ordinal, not on the position in the call: the last three alone are equal.
  const std::vector<ls::Item> tail{{0, 61}, {0, 62}, {0, 63}};
  std::vector<double> x(3);
  std::vector<std::int32_t> y(3);
  support::gather(data, {1, 0}, tail, x, y);
  CHECK(x == std::vector<double>(drawn.end() - 3, drawn.end()));
}

TEST_CASE("two random maps draw independently, and a plain map between them changes no draw") {
  const auto first = gather_all<double>(range(1) | ls::repeat(8) | noise).x;
  const auto both = gather_all<double>(range(1) | ls::repeat(8) | noise | noise).x;
  const auto apart =
      gather_all<double>(range(1) | ls::repeat(8) | noise | ls::map([](auto&) {}) | noise).x;
  CHECK(both == apart);
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::abs(both[i] - 2 * first[i]) > 1e-6);
}

TEST_CASE("a random map that changes the shape draws too") {
  const auto data =
      range(1) | ls::repeat(4) |
      ls::map<ls::shape(2)>([](std::span<const float>, std::span<float> out, ls::Philox& draws) {
        out[0] = out[1] = static_cast<float>(draws.uniform());
      });
  static_assert(decltype(data)::random_map_count == 1);
  const auto x = gather_all<float>(data).x;
  CHECK(x[0] == x[1]);
  CHECK(std::set<float>(x.begin(), x.end()).size() == 4);
}

TEST_CASE("maps over rescaled bytes see rescaled numbers") {
  const auto bytes =
      ls::tensors(std::vector<std::uint8_t>{0, 128}, ls::shape(1), std::vector{0, 1});
  const auto data =
      bytes | ls::rescale(1.0 / 128) | ls::map([](auto& e) { e.x[0] += 1; }) | ls::rescale(10);
  CHECK(gather_all<float>(data).x == std::vector{10.f, 20.f});
}
