/// \file
/// The seam of update policies: ls::Replicated, and a policy of the tests that gives each replica a
/// share of the optimizer's buffers, which must train with the same bits.
#include "lockstep/training/step/replicated.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/checkpoints.hpp"
#include "lockstep/training/report/profile.hpp"
#include "support/folder.hpp"
#include "unit/training/model_support.hpp"
#include "unit/training/step/sharded_update.hpp"

namespace {

namespace ls = lockstep;
using line::quiet;
using Device = ls::Reference<double>;
using Many = ls::Mirrored<Device>;
using Sharded = sharded::Sharded<Many>;

static_assert(std::same_as<ls::detail::UpdateOf<Many>, ls::Replicated::Replica<Device>>);
static_assert(std::same_as<ls::detail::UpdateOf<Sharded>, sharded::Update<Device>>);
static_assert(ls::UpdatePolicy<ls::Replicated, Device> &&
              ls::UpdatePolicy<sharded::Policy, Device>);

/// Four parameters of 8, 4, 12 and 3 elements; with a penalty on one kernel, three segments.
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<4>, ls::Tanh, ls::Dense<3>> {};
struct Penalised : ls::Sequential<ls::Input<2>, ls::Dense<4, ls::kernel_regularizer(ls::L2{0.01})>,
                                  ls::BatchNormalization<>, ls::Tanh, ls::Dense<3>> {};

template <class TheNet, class S, class O>
auto model(const S& strategy, const O& optimizer) {
  return ls::Model{TheNet{},  ls::Seed{7},
                   strategy,  ls::SparseCategoricalCrossentropy{.from_logits = true},
                   optimizer, ls::Accuracy{}};
}
auto data() { return line::classes(40) | ls::shuffle(40) | ls::batch(12); }
auto checked(int epochs) {
  auto options = quiet(epochs);
  options.verify_every = 1;
  return options;
}

/// Both policies train with the same bits, for any number of replicas.
template <class TheNet, class O>
void check_bits(const O& optimizer) {
  for (const std::size_t n : {1U, 2U, 3U, 5U, 8U})
    for (const std::size_t shards : {0U, 8U}) {
      if (shards > 0 && shards % n != 0) continue;
      CAPTURE(n, shards);
      const Many strategy{.replicas = n, .virtual_shards = shards};
      auto whole = model<TheNet>(strategy, optimizer);
      auto parts = model<TheNet>(Sharded{strategy}, optimizer);
      const auto expected = whole.fit(data(), checked(3)), found = parts.fit(data(), checked(3));
      CHECK(parts.weights_sha256() == whole.weights_sha256());
      CHECK(found["loss"] == expected["loss"]);
      const auto digests = parts.replica_weights_sha256();
      CHECK(digests == std::vector(n, digests[0]));
    }
}

}  // namespace

TEST_CASE("the default policy owns all weights, and all of its state must be equal") {
  auto m = model<Net>(Many{.replicas = 3}, ls::Adam{});
  CHECK(m.memory().optimizer == 2 * 27 * sizeof(double));
  constexpr ls::EqualParts must = ls::Replicated::Replica<Device>::must_be_equal();
  CHECK((must.weights && must.optimizer));
}

TEST_CASE("a policy that divides the slots trains with the bits of the default one") {
  check_bits<Net>(ls::SGD{.learning_rate = 0.1});
  check_bits<Net>(ls::SGD{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
  check_bits<Net>(ls::Adam{.learning_rate = 0.01});
  check_bits<Penalised>(ls::Adam{.learning_rate = 0.01});
  check_bits<Net>(ls::Adagrad{.learning_rate = 0.1});      // slots that do not begin at 0
  check_bits<Penalised>(ls::Lamb{.learning_rate = 0.01});  // needs whole parameters
}

TEST_CASE("a policy that divides the slots applies the options with the bits of the default one") {
  check_bits<Penalised>(ls::SGD{.learning_rate = 0.1, .momentum = 0.9, .with = {.clipnorm = 0.05}});
  check_bits<Penalised>(
      ls::Adam{.weight_decay = 0.01,
               .with = {.global_clipnorm = 0.1, .exclude_from_weight_decay = {"bias"}}});
  check_bits<Net>(ls::Adam{
      .with = {.use_ema = true, .ema_overwrite_frequency = 3, .gradient_accumulation_steps = 2}});
  check_bits<Net>(ls::SGD{.learning_rate = 0.1, .with = {.clipvalue = 0.01, .use_ema = true}});
  // With eight replicas some own nothing.
  check_bits<Penalised>(
      ls::Adam{.with = {.clipnorm = 0.05, .use_ema = true, .gradient_accumulation_steps = 2}});
}

TEST_CASE("each replica holds its share of the slots") {
  std::size_t all = 0;
  for (const std::size_t n : {1U, 2U, 4U}) {
    const std::size_t bytes = model<Net>(Sharded{{.replicas = n}}, ls::Adam{}).memory().optimizer;
    CHECK(bytes == 2 * sizeof(double) * ((27 + n - 1) / n));
    all += bytes;
  }
  CHECK(all > 0);
}

TEST_CASE("averages are exchanged with the weights of any policy") {
  const ls::Adam adam{.with = {.use_ema = true, .ema_momentum = 0.5}};
  const auto trained = [&](const auto& strategy) {
    auto m = model<Net>(strategy, adam);
    auto options = checked(3);
    options.callbacks = {ls::SwapEMAWeights{.swap_on_epoch = true}};
    m.fit(data(), options);
    std::vector<std::string> digests{m.weights_sha256()};
    m.reset_optimizer();
    m.fit(data(), checked(1));
    digests.push_back(m.weights_sha256());
    return digests;
  };
  CHECK(trained(Sharded{{.replicas = 3}}) == trained(Many{.replicas = 3}));
}

TEST_CASE("a checkpoint of one policy continues with another one, and other replicas") {
  const ls::Adam adam{.learning_rate = 0.01, .with = {.use_ema = true}};
  const testing::Folder folder;
  // With virtual shards the number of replicas does not change bits.
  const auto all = [&](std::size_t n) { return Many{.replicas = n, .virtual_shards = 8}; };
  auto whole = model<Net>(all(2), adam);
  auto parts = model<Net>(Sharded{all(4)}, adam);
  for (int i = 0; i < 2; ++i) {
    whole.fit(data(), checked(1));
    parts.fit(data(), checked(1));
  }
  parts.save_checkpoint(folder / "parts");
  whole.save_checkpoint(folder / "whole");
  auto from_parts = model<Net>(all(1), adam);
  from_parts.load_checkpoint(folder / "parts");
  auto from_whole = model<Net>(Sharded{all(8)}, adam);
  from_whole.load_checkpoint(folder / "whole");
  whole.fit(data(), checked(2));
  from_parts.fit(data(), checked(2));
  from_whole.fit(data(), checked(2));
  CHECK(from_parts.weights_sha256() == whole.weights_sha256());
  CHECK(from_whole.weights_sha256() == whole.weights_sha256());
}

TEST_CASE("a profile restores a model whose slots are divided") {
  auto m = model<Net>(Sharded{{.replicas = 2}}, ls::Adam{});
  auto same = model<Net>(Sharded{{.replicas = 2}}, ls::Adam{});
  m.fit(data(), checked(1));
  same.fit(data(), checked(1));
  static_cast<void>(m.profile(data(), {.steps = 2}));
  m.fit(data(), checked(1));
  same.fit(data(), checked(1));
  CHECK(m.weights_sha256() == same.weights_sha256());
}
