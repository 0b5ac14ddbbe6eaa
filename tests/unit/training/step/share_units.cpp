/// Shares of the optimizer's buffers of GPTs: as near to 1/N as whole matrices allow.
#include "lockstep/training/step/share_units.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"
#include "support/gpt.hpp"

namespace {

namespace ls = lockstep;

struct Small : testing::gpt::Gpt<2, 4, 64, 64, 8> {};
/// The sizes of nanoGPT's model of characters, and of GPT-2.
struct Gpt10M : testing::gpt::Gpt<6, 6, 384, 65, 256> {};
struct Gpt2 : testing::gpt::Gpt<12, 12, 768, 50'257, 1024> {};
static_assert(Gpt2::trainable_count == 124'439'808);

/// The most expensive share and the largest whole parameter, in shares of 1/N.
struct Most {
  double share, matrix;
};

template <class Net, class O>
Most most_of(const O& optimizer, std::size_t owners) {
  const auto parameters = ls::detail::named_parameters<Net>();
  std::vector<ls::detail::UpdateSegment> segments(parameters.size());
  segments.resize(
      ls::detail::update_segments(parameters, true, {}, {}, Net::graph.node, segments.data()));
  if constexpr (ls::HasParameterRules<O>)
    ls::detail::set_rules(
        parameters,
        [&](std::string_view name, const ls::Shape& shape) {
          return optimizer.rule_of(name, shape);
        },
        segments.data());
  const auto units = ls::detail::share_units({.slot_count = ls::detail::slot_count(optimizer),
                                              .own_slots = optimizer.slot_count(),
                                              .options = optimizer.with,
                                              .weight_decay = 1,
                                              .is_by_elements = false,
                                              .segments = segments});
  double total = 0, largest = 0, most = 0;
  for (const ls::ShareUnit& u : units) {
    total += static_cast<double>(u.cost);
    if (!u.is_divisible) largest = std::max(largest, static_cast<double>(u.cost));
  }
  const std::vector<ls::Ranges> shares = ls::balanced_shares(units, owners, 64);
  for (const ls::Ranges& share : shares) {
    double cost = 0;
    for (const ls::ShareUnit& u : units)
      share.each_within(u.range, [&](ls::Slice part, std::size_t) {
        cost += static_cast<double>(part.count) * static_cast<double>(u.cost) /
                static_cast<double>(u.range.count);
      });
    most = std::max(most, cost);
  }
  const double even = total / static_cast<double>(owners);
  const Most result{most / even, largest / even};
  std::printf("%4zu owners: %.4f, a matrix %.4f; %zu rounds\n", owners, result.share, result.matrix,
              ls::rounds_of(shares).size() / owners);
  return result;
}

}  // namespace

TEST_CASE("AdamW's buffers of a GPT are divided evenly") {
  using Many = ls::Mirrored<ls::Reference<float>>;
  for (std::size_t n = 1; n <= 8; ++n) {
    CAPTURE(n);
    const ls::Model model{Small{}, Many{.replicas = n} | ls::Sharded{},
                          ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::AdamW{}};
    constexpr double whole = 2.0 * sizeof(float) * Small::trainable_count;
    double sum = 0;
    for (std::size_t r = 0; r < n; ++r) {
      const auto bytes = static_cast<double>(model.memory(r).optimizer);
      CHECK(std::abs(bytes * static_cast<double>(n) / whole - 1) < 0.02);
      sum += bytes;
    }
    CHECK(sum == whole);
  }
}

TEST_CASE("Muon's buffers of GPTs are divided evenly where matrices are small") {
  for (const ls::MuonVariant variant : {ls::MuonVariant::keras, ls::MuonVariant::jordan}) {
    std::printf("variant %d\n", static_cast<int>(variant));
    const ls::Muon muon{.variant = variant};
    for (std::size_t n = 1; n <= 8; ++n) {
      CAPTURE(static_cast<int>(variant), n);
      // The tables fill up what whole matrices leave.
      CHECK(most_of<Gpt2>(muon, n).share < 1.001);
      CHECK(most_of<Gpt10M>(muon, n).share < (variant == ls::MuonVariant::keras ? 1.001 : 1.05));
    }
    const Most many = most_of<Gpt10M>(muon, 32);
    CHECK(many.share < 1 + many.matrix);
  }
}

TEST_CASE("clipping by norms keeps the table of a GPT whole") {
  const ls::AdamW adam{.with = {.global_clipnorm = 1}};
  for (const std::size_t n : {2u, 4u, 8u}) CHECK(most_of<Gpt10M>(adam, n).share < 1.07);
  CHECK(most_of<Gpt2>(adam, 2).share < 1.01);
  CHECK(most_of<Gpt2>(adam, 4).share < 1.25);
  const Most eight = most_of<Gpt2>(adam, 8);
  CHECK(eight.share == eight.matrix);  // its 38,597,376 numbers alone
}
