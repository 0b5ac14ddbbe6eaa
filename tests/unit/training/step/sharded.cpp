/// \file
/// The policy that divides the optimizer's buffers among the replicas: for any number of them, any
/// optimizer and any options it has the bits of ls::Replicated.
#include "lockstep/training/step/sharded.hpp"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/checkpoints.hpp"
#include "lockstep/collectives/exchange/communication_thread.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/sharded.hpp"
#include "lockstep/training/report/profile.hpp"
#include "support/folder.hpp"
#include "unit/training/model_support.hpp"
#include "unit/training/step/only_all_reduces.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using line::quiet;
using Device = ls::Reference<double>;
using Many = ls::Mirrored<Device>;
using Parts = ls::UpdatedBy<Many, ls::Sharded>;

static_assert(ls::Strategy<Parts> && ls::UpdatePolicy<ls::Sharded, Device>);
static_assert(std::same_as<decltype(Many{} | ls::Sharded{}), Parts>);
static_assert(std::same_as<ls::detail::UpdateOf<Parts>, ls::detail::ShardedUpdate<Device>>);

/// The facts of random updates, the same for all policies and numbers of replicas.
struct Drawn {
  std::size_t weights;
  std::vector<ls::detail::UpdateSegment> segments{};
  std::vector<std::size_t> buckets{};  // begin of each, in the order of backward
  bool overlaps;                       // in a background thread
  std::uint64_t seed;
  static constexpr std::uint64_t steps = 5;
};

/// Numbers whose sums are rounded.
double number(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15 + i * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 30) * 0x94d049bb133111eb;
  return std::ldexp(static_cast<double>((x ^ x >> 31) >> 11), -53) - 0.5;
}

/// The function that the facts have.
template <class Op>
auto scratch_of() -> std::size_t (*)(const ls::detail::UpdateSegment&) {
  if constexpr (requires { ls::Kernel<Op, Device>::scratch_bytes({}, {}); })
    return [](const ls::detail::UpdateSegment& s) {
      return ls::Kernel<Op, Device>::scratch_bytes(s.shape, {s.slot});
    };
  else
    return nullptr;
}

/// Weights, slots and the sum over the gradients' replicas after some updates under the policy.
template <class Policy, class O>
std::vector<double> updated(std::size_t replicas, const Drawn& drawn, const O& optimizer) {
  using Op = std::remove_cvref_t<decltype(optimizer.op(0.0, 1))>;
  std::vector<double> summed, values;  // each is written by one replica
  auto session = Many{.replicas = replicas}.open();
  ls::ThreadGroup background({.size = replicas});
  session.each([&](const ls::ReplicaContext<Device>& given) {
    using Member = ls::ThreadGroup::Member;
    std::optional<ls::CommunicationThread<Member, double>> thread;
    ls::ReplicaContext<Device> replica = given;
    if (drawn.overlaps) {
      thread.emplace(Member(background, given.rank));
      replica.exchange = ls::GradientExchange<double>(*thread);
    }
    ls::detail::EnginePlan<Device> plan{};
    plan.weights = drawn.weights;
    ls::detail::PlanEngine<Device> engine(replica.device, plan);
    const ls::detail::UpdateFacts facts{.slot_count = ls::detail::slot_count(optimizer),
                                        .own_slots = optimizer.slot_count(),
                                        .options = ls::detail::options_of(optimizer),
                                        .weight_decay = ls::detail::weight_decay_of(optimizer),
                                        .is_by_elements = ls::ElementwiseUpdate<Op>,
                                        .segments = drawn.segments,
                                        .scratch_bytes = scratch_of<Op>()};
    const ls::Slice all{0, replicas};
    typename Policy::template Replica<Device> policy(
        ls::detail::UpdateSite<Device>{.device = replica.device,
                                       .engine = engine,
                                       .facts = facts,
                                       .rank = replica.rank,
                                       .replicas = replicas,
                                       .roles = {all, all},
                                       .has_final_gradients = false});
    if constexpr (requires { optimizer.slot_start(0); })
      for (std::size_t i = 0; i < optimizer.slot_count(); ++i)
        policy.fill(i, optimizer.slot_start(i));
    for (std::size_t i = 0; i < drawn.weights; ++i)
      engine.weights().data()[i] = number(drawn.seed, i);
    for (std::uint64_t step = 1; step <= Drawn::steps; ++step) {
      const std::uint64_t of_step = drawn.seed + step * 100 + replica.rank;
      for (std::size_t i = 0; i < drawn.weights; ++i)
        engine.gradients().data()[i] = number(of_step, i);
      std::size_t end = drawn.weights;
      for (const std::size_t begin : drawn.buckets) {
        policy.ready(replica, {begin, end - begin});
        end = begin;
      }
      double sums[2] = {1.0 + static_cast<double>(replica.rank), number(of_step, 0)};
      policy.finish(replica, {0, end}, sums, 1, 1);
      const auto rule = [&](std::span<const ls::UpdateIo<Device>> parts) {
        for (const auto& io : parts)
          ls::detail::run_kernel<Device>(optimizer.op(0.1, policy.number(step)), io);
      };
      policy.update(replica, rule, 0.1, step, false);
      if (replica.rank == 0) summed.insert(summed.end(), sums, sums + 2);
    }
    if (ls::detail::options_of(optimizer).use_ema) policy.overwrite_with_average(replica);
    std::vector<double> own(engine.weights().data(), engine.weights().data() + drawn.weights);
    for (std::size_t i = 0; i < facts.slot_count; ++i) {
      std::vector<double> slot(drawn.weights);
      policy.read(i, slot.data());
      policy.complete(replica, slot.data());
      own.insert(own.end(), slot.begin(), slot.end());
    }
    if (replica.rank + 1 == replicas) values = std::move(own);
  });
  values.insert(values.end(), summed.begin(), summed.end());
  return values;
}

/// Draws sizes, segments, buckets and options, and compares the two policies.
template <class O>
void check_random(std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(draw() % n); };
  for (std::size_t replicas = 1; replicas <= 8; ++replicas) {
    O optimizer{};
    ls::UpdateOptions& with = optimizer.with;
    const std::size_t clips = below(6);
    if (clips == 0) with.clipnorm = 0.5;
    if (clips == 1) with.global_clipnorm = 0.5;
    if (clips == 2) with.clipvalue = 0.25;
    if (clips == 3) with.block_clipnorm = 0.5;
    with.use_ema = below(2) == 0;
    with.ema_momentum = 0.5;
    if (with.use_ema && below(2) == 0) with.ema_overwrite_frequency = 1 + below(2);
    with.gradient_accumulation_steps = 1 + below(2) * below(3);
    optimizer.weight_decay = below(2) == 0 ? 0.01 : 0;
    if constexpr (requires { optimizer.momentum; }) optimizer.momentum = below(2) == 0 ? 0 : 0.9;
    Drawn drawn{.weights = 1 + below(1500), .overlaps = below(2) == 0, .seed = draw()};
    const auto cuts = [&](std::size_t count) {
      std::vector<std::size_t> at(count);
      for (std::size_t& i : at) i = below(drawn.weights + 1);
      std::sort(at.begin(), at.end());
      return at;
    };
    std::size_t begin = 0;
    std::vector<std::size_t> ends = cuts(below(6));
    ends.push_back(drawn.weights);
    for (const std::size_t end : ends) {
      if (end == begin) continue;
      drawn.segments.push_back({begin, end, {}, below(2) == 0 ? 1.0 : 0.0});
      const std::size_t last = drawn.segments.size() - 1;
      drawn.segments[last].block =
          last > 0 && below(2) == 0 ? drawn.segments[last - 1].block : last;
      if (below(4) == 0) drawn.segments.back().is_held = true;
      if (below(4) == 0) drawn.segments.back().rate = 0.5;
      if (below(2) == 0) drawn.segments.back().penalty.l2 = 0.01f;
      if constexpr (ls::HasParameterRules<O>) {
        ls::detail::UpdateSegment& s = drawn.segments.back();
        const int size = static_cast<int>(end - begin);
        s.shape = size % 3 == 0   ? ls::shape(3, size / 3)
                  : size % 2 == 0 ? ls::shape(size / 2, 2)
                                  : ls::shape(size);
        const ls::ParameterRule rule = optimizer.rule_of("kernel", s.shape);
        s.slot = rule.slot;
        s.is_by_elements = rule.is_by_elements;
      }
      begin = end;
    }
    drawn.buckets = cuts(below(4));
    std::reverse(drawn.buckets.begin(), drawn.buckets.end());
    CAPTURE(O::name, replicas, drawn.weights, drawn.segments.size(), drawn.buckets.size(),
            drawn.overlaps, clips, with.use_ema, with.gradient_accumulation_steps);
    const std::vector<double> expected = updated<ls::Replicated>(replicas, drawn, optimizer);
    const std::vector<double> found = updated<ls::Sharded>(replicas, drawn, optimizer);
    REQUIRE(found.size() == expected.size());
    const auto difference = std::mismatch(found.begin(), found.end(), expected.begin());
    CHECK(difference.first - found.begin() == static_cast<std::ptrdiff_t>(found.size()));
  }
}

/// 515 trainable elements, which are nine blocks of at most 64.
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<64, ls::kernel_regularizer(ls::L2{0.01})>,
                            ls::BatchNormalization<>, ls::Tanh, ls::Dense<3>> {};
constexpr std::size_t weights = Net::trainable_count;
static_assert(weights == 515);

template <class S, class O>
auto model(const S& strategy, const O& optimizer) {
  return ls::Model{Net{},     ls::Seed{7},
                   strategy,  ls::SparseCategoricalCrossentropy{.from_logits = true},
                   optimizer, ls::Accuracy{}};
}
auto data() { return line::classes(40) | ls::shuffle(40) | ls::batch(12); }
auto checked(int epochs) {
  auto options = quiet(epochs);
  options.verify_every = 1;
  return options;
}

/// A group without operations on ranges.
struct Plain {
  ls::CollectiveRef all;
  std::size_t rank() const { return all.rank(); }
  std::size_t size() const { return all.size(); }
  void abort() {}
  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all.all_reduce(p, n);
  }
  void all_gather(const std::byte* p, std::size_t n, std::byte* out) { all.all_gather(p, n, out); }
  void broadcast(std::byte* p, std::size_t n, std::size_t root) { all.broadcast(p, n, root); }
};
struct WithoutRanges : Many {
  struct Session : Many::Session {
    void each(ls::FunctionRef<void(const ls::ReplicaContext<Device>&)> body) {
      Many::Session::each([&](ls::ReplicaContext<Device> replica) {
        Plain plain{replica.group};
        replica.gradients = ls::CollectiveRef(plain);
        body(replica);
      });
    }
  };
  Session open() const { return {Many::open()}; }
};

struct WithOwnExchange : Many {
  struct Session : Many::Session {
    void each(ls::FunctionRef<void(const ls::ReplicaContext<Device>&)> body) {
      Many::Session::each([&](ls::ReplicaContext<Device> replica) {
        testing::OnlyAllReduces own{replica.exchange};
        replica.exchange = ls::GradientExchange<double>(own);
        body(replica);
      });
    }
  };
  Session open() const { return {Many::open()}; }
};

}  // namespace

TEMPLATE_TEST_CASE("random updates of shares have the bits of whole updates", "", ls::SGD, ls::Adam,
                   ls::AdamW, ls::Adadelta, ls::Adafactor, ls::Adagrad, ls::Adamax, ls::Ftrl,
                   ls::Lamb, ls::Lion, ls::Muon, ls::Nadam, ls::RMSprop) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) check_random<TestType>(seed);
}

TEST_CASE("a model whose slots are divided trains and evaluates with the bits of a whole one") {
  for (const std::size_t n : {1u, 2u, 3u, 5u, 8u})
    for (const std::size_t shards : {0u, 8u})
      for (const bool clips : {false, true}) {
        if (shards > 0 && shards % n != 0) continue;
        CAPTURE(n, shards, clips);
        const ls::Adam adam{.learning_rate = 0.01,
                            .weight_decay = 0.01,
                            .with = {.global_clipnorm = clips ? 0.1 : 0,
                                     .exclude_from_weight_decay = {"bias"},
                                     .use_ema = true,
                                     .ema_overwrite_frequency = 3}};
        const Many strategy{.replicas = n, .virtual_shards = shards};
        auto whole = model(strategy, adam);
        auto parts = model(strategy | ls::Sharded{}, adam);
        const auto expected = whole.fit(data(), checked(3)), found = parts.fit(data(), checked(3));
        CHECK(parts.weights_sha256() == whole.weights_sha256());
        CHECK(found["loss"] == expected["loss"]);
        CHECK(parts.evaluate(data())["loss"] == whole.evaluate(data())["loss"]);
        const auto digests = parts.replica_weights_sha256();
        CHECK(digests == std::vector(n, digests[0]));
      }
}

TEST_CASE("slots, accumulated gradients and averages exist once in the job") {
  const ls::Adam adam{.with = {.use_ema = true, .gradient_accumulation_steps = 2}};
  for (const std::size_t n : {1u, 2u, 3u, 8u}) {
    const auto m = model(Many{.replicas = n} | ls::Sharded{}, adam);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t bytes = m.memory(i).optimizer;
      CHECK(bytes <= 4 * sizeof(double) * (weights / n + 2 * 64));
      sum += bytes;
    }
    CHECK(sum == 4 * sizeof(double) * weights);
    const bool is_part = m.memory().optimizer < sum;
    CHECK_THAT(m.summary(), ContainsSubstring("Optimizer params: 2,060"));
    CHECK((m.summary().find("of this process' first replica") != std::string::npos) == is_part);
  }
}

TEST_CASE("one device owns everything, and exchanges nothing") {
  auto whole = model(ls::OneDevice<Device>{}, ls::Adam{});
  auto parts = model(ls::OneDevice<Device>{} | ls::Sharded{}, ls::Adam{});
  whole.fit(data(), checked(1));
  parts.fit(data(), checked(1));
  CHECK(parts.weights_sha256() == whole.weights_sha256());
  CHECK(parts.memory().optimizer == whole.memory().optimizer);
}

TEST_CASE("averages of parts are swapped and reset as those of whole slots") {
  const auto trained = [&](const auto& strategy) {
    auto m = model(strategy, ls::Adam{.with = {.use_ema = true, .ema_momentum = 0.5}});
    auto options = checked(3);
    options.callbacks = {ls::SwapEMAWeights{.swap_on_epoch = true}};
    m.fit(data(), options);
    std::vector<std::string> digests{m.weights_sha256()};
    m.reset_optimizer();
    m.fit(data(), checked(1));
    digests.push_back(m.weights_sha256());
    return digests;
  };
  CHECK(trained(Many{.replicas = 3} | ls::Sharded{}) == trained(Many{.replicas = 3}));
}

TEST_CASE("a checkpoint of divided slots continues with other replicas, and with whole slots") {
  const ls::Adam adam{.learning_rate = 0.01, .with = {.use_ema = true}};
  const testing::Folder folder;
  // With virtual shards the number of replicas does not change bits.
  const auto all = [&](std::size_t n) { return Many{.replicas = n, .virtual_shards = 8}; };
  auto whole = model(all(2), adam);
  auto parts = model(all(4) | ls::Sharded{}, adam);
  for (int i = 0; i < 2; ++i) {
    whole.fit(data(), checked(1));
    parts.fit(data(), checked(1));
  }
  parts.save_checkpoint(folder / "parts");
  whole.save_checkpoint(folder / "whole");
  auto from_parts = model(all(1), adam);
  from_parts.load_checkpoint(folder / "parts");
  auto from_whole = model(all(8) | ls::Sharded{}, adam);
  from_whole.load_checkpoint(folder / "whole");
  auto with_fewer = model(all(2) | ls::Sharded{}, adam);
  with_fewer.load_checkpoint(folder / "parts");
  whole.fit(data(), checked(2));
  from_parts.fit(data(), checked(2));
  from_whole.fit(data(), checked(2));
  with_fewer.fit(data(), checked(2));
  CHECK(from_parts.weights_sha256() == whole.weights_sha256());
  CHECK(from_whole.weights_sha256() == whole.weights_sha256());
  CHECK(with_fewer.weights_sha256() == whole.weights_sha256());
}

TEST_CASE("slots with elements of some parameters only are divided and restored") {
  const ls::Muon muon{.learning_rate = 0.01, .with = {.use_ema = true}};
  const testing::Folder folder;
  const auto all = [&](std::size_t n) { return Many{.replicas = n, .virtual_shards = 4}; };
  auto whole = model(all(2), muon);
  auto parts = model(all(2) | ls::Sharded{}, muon);
  // Muon has a second slot for the 64 + 3 biases and 128 numbers of the normalization.
  const std::size_t elements = 2 * weights + 64 + 3 + 128;
  CHECK(whole.memory().optimizer == elements * sizeof(double));
  CHECK(parts.memory(0).optimizer + parts.memory(1).optimizer == elements * sizeof(double));
  CHECK_THAT(parts.summary(), ContainsSubstring("Optimizer params: 1,225"));
  whole.fit(data(), checked(1));
  parts.fit(data(), checked(1));
  parts.save_checkpoint(folder / "parts");
  auto next = model(all(4) | ls::Sharded{}, muon);
  next.load_checkpoint(folder / "parts");
  auto one = model(all(1), muon);
  one.load_checkpoint(folder / "parts");
  whole.fit(data(), checked(1));
  next.fit(data(), checked(1));
  one.fit(data(), checked(1));
  CHECK(next.weights_sha256() == whole.weights_sha256());
  CHECK(one.weights_sha256() == whole.weights_sha256());
  CHECK_THROWS_WITH(model(all(1), ls::Muon{.exclude_layers = {"head"}}),
                    ContainsSubstring("exclude_layers: no parameter's name contains 'head'"));
}

TEST_CASE("a profile restores a model whose slots are divided") {
  auto m = model(Many{.replicas = 2} | ls::Sharded{}, ls::Adam{});
  auto same = model(Many{.replicas = 2} | ls::Sharded{}, ls::Adam{});
  m.fit(data(), checked(1));
  same.fit(data(), checked(1));
  static_cast<void>(m.profile(data(), {.steps = 2}));
  m.fit(data(), checked(1));
  same.fit(data(), checked(1));
  CHECK(m.weights_sha256() == same.weights_sha256());
}

TEST_CASE("no replica has all gradients of a step, except those that a program asks for") {
  auto m = model(Many{.replicas = 2} | ls::Sharded{}, ls::Adam{});
  auto whole = model(Many{.replicas = 2}, ls::Adam{});
  m.fit(data(), checked(1));
  CHECK_THROWS_WITH(m.gradients("dense/kernel"),
                    ContainsSubstring("gradients: sharded leaves the sum of each gradient to the "
                                      "replica that owns the weight"));
  const auto step = [](auto& trained) {
    for (const auto& batch : trained.batches(data())) {
      auto gradients = trained.gradients_of(batch);
      gradients *= 0.5 / std::max(1.0, gradients.norm());
      trained.apply(gradients);
    }
    return trained.weights_sha256();
  };
  whole.fit(data(), checked(1));
  CHECK(step(m) == step(whole));
}

TEST_CASE("a strategy of its own needs operations on ranges, but no exchange of ranges") {
  const auto fit = [](const auto& strategy) {
    auto m = model(strategy, ls::Adam{});
    m.fit(data(), checked(1));
    return m.weights_sha256();
  };
  CHECK(fit(WithOwnExchange{{.replicas = 3}} | ls::Sharded{}) == fit(Many{.replicas = 3}));
  CHECK_THROWS_WITH(fit(WithoutRanges{{.replicas = 3}} | ls::Sharded{}),
                    ContainsSubstring("sharded: the group of the strategy's replicas has no "
                                      "reduce_scatter and all_gather of ranges; add both"));
}
