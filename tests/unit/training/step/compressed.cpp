/// \file
/// Compressed gradients: what is sent and what is kept are the gradients, all replicas get the same bits,
/// the runs are those of a simulation in NumPy, and a checkpoint continues with what was kept.
#include "lockstep/training/step/compressed.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/parameter_server.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/collectives/exchange/communication_thread.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/training/report/profile.hpp"
#include "lockstep/wire.hpp"
#include "support/folder.hpp"
#include "unit/training/model_support.hpp"
#include "unit/training/step/only_all_reduces.hpp"

namespace {

namespace ls = lockstep;
namespace wire = ls::wire;
using Catch::Matchers::ContainsSubstring;
using line::quiet;
using Device = ls::Reference<double>;
using Many = ls::Mirrored<Device>;
using Parts = ls::UpdatedBy<Many, wire::Format>;
using Values = std::vector<double>;

static_assert(ls::Strategy<Parts> && ls::UpdatePolicy<wire::Format, Device>);
static_assert(std::same_as<decltype(Many{} | wire::bfloat16{}), Parts> &&
              std::same_as<decltype(Many{} | wire::TopK{}), Parts> &&
              std::same_as<decltype(Many{} | wire::top_k<100>), Parts> &&
              std::same_as<decltype(Many{} | wire::Format{}), Parts>);
static_assert(wire::Format(wire::top_k<100>).top_k.count == 100);

/// The parameters, buckets and gradients of some steps, the same for all formats.
struct Drawn {
  std::size_t replicas = 1, steps = 4, accumulated = 1;
  bool overlaps = false;  // in a background thread
  std::vector<ls::detail::NamedParameter> parameters{};
  std::vector<std::size_t> buckets{};  // begin of each, in the order of backward, the last one is 0
  std::size_t holds_from = ~std::size_t{0};  // a step
  std::size_t held = 0;                      // the parameter that does not train from there on
  std::vector<Values> gradients{};           // of replica r in step s at [s * replicas + r]

  std::size_t weights() const {
    const auto& last = parameters.back();
    return last.offset + last.shape.size();
  }
  void add(const ls::Shape& shape) {
    ls::detail::NamedParameter p{};
    p.shape = shape;
    p.offset = parameters.empty() ? 0 : weights();
    parameters.push_back(p);
  }
  template <class F>
  void fill(const F& value) {
    gradients.assign(steps * replicas, Values(weights()));
    for (Values& all : gradients) std::generate(all.begin(), all.end(), value);
  }
};

/// After each step: the gradients of replica 0, and what each replica keeps.
struct Exchanged {
  std::vector<Values> sums;
  std::vector<std::vector<Values>> kept;
  bool are_equal = true;  // the gradients of all replicas
};

Exchanged exchanged(const Drawn& drawn, const wire::Format& format) {
  const std::size_t n = drawn.weights();
  std::vector<std::vector<Values>> of(drawn.steps, std::vector<Values>(drawn.replicas));
  Exchanged result{{}, of, true};
  auto session = Many{.replicas = drawn.replicas}.open();
  ls::ThreadGroup background({.size = drawn.replicas});
  session.each([&](const ls::ReplicaContext<Device>& given) {
    using Member = ls::ThreadGroup::Member;
    std::optional<ls::CommunicationThread<Member, double>> thread;
    ls::ReplicaContext<Device> replica = given;
    if (drawn.overlaps) {
      thread.emplace(Member(background, given.rank));
      replica.exchange = ls::GradientExchange<double>(*thread);
    }
    ls::detail::EnginePlan<Device> plan{};
    plan.weights = n;
    ls::detail::PlanEngine<Device> engine(replica.device, plan);
    const ls::UpdateOptions options{.gradient_accumulation_steps = drawn.accumulated};
    const ls::detail::UpdateFacts facts{.slot_count = drawn.accumulated > 1 ? 1u : 0u,
                                        .own_slots = 0,
                                        .options = options,
                                        .weight_decay = 0,
                                        .is_by_elements = true,
                                        .segments = {},
                                        .parameters = drawn.parameters};
    const ls::Slice all{0, drawn.replicas};
    ls::detail::CompressedUpdate<Device> policy({.device = replica.device,
                                                 .engine = engine,
                                                 .facts = facts,
                                                 .rank = replica.rank,
                                                 .replicas = drawn.replicas,
                                                 .roles = {all, all},
                                                 .policy = &format,
                                                 .has_final_gradients = false});
    std::vector<ls::detail::UpdateSegment> segments;
    for (const auto& p : drawn.parameters)
      segments.push_back({p.offset, p.offset + p.shape.size(), {}});
    double* const g = engine.gradients().data();
    for (std::size_t step = 0; step < drawn.steps; ++step) {
      if (step == drawn.holds_from) {
        segments[drawn.held].is_held = true;
        policy.set_segments(segments);
      }
      policy.begin_step(step + 1);
      const Values& own = drawn.gradients[step * drawn.replicas + replica.rank];
      std::copy(own.begin(), own.end(), g);
      for (const auto& s : segments)
        if (s.is_held) std::fill(g + s.begin, g + s.end, 0.0);
      std::size_t end = n;
      for (const std::size_t begin : drawn.buckets) {
        if (begin > 0) policy.ready(replica, {begin, end - begin});
        if (begin > 0) end = begin;
      }
      double one = 1;
      policy.finish(replica, {0, end}, &one, 1, 0);
      if (replica.rank == 0) CHECK(one == static_cast<double>(drawn.replicas));
      of[step][replica.rank].assign(g, g + n);
      policy.update(replica, [](std::span<const ls::UpdateIo<Device>>) {}, 0, step + 1, true);
      const double* const kept = policy.kept().data();
      result.kept[step][replica.rank].assign(kept, kept + policy.kept().size());
    }
  });
  for (const std::vector<Values>& step : of) {
    result.sums.push_back(step[0]);
    for (const Values& other : step) result.are_equal = result.are_equal && other == step[0];
  }
  return result;
}

/// Sums over the replicas of gradients up to a step.
Values sum_of(const std::vector<Values>& all, std::size_t first, std::size_t count,
              std::size_t size) {
  Values sum(size);
  for (std::size_t r = first; r < first + count; ++r)
    for (std::size_t i = 0; i < all[r].size(); ++i) sum[i] += all[r][i];
  return sum;
}

Drawn draw(std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Drawn drawn{.replicas = 1 + below(5),
              .steps = 6,
              .accumulated = 1 + below(2) * below(3),
              .overlaps = below(2) == 0};
  const auto extent = [&] { return static_cast<int>(1 + below(12)); };
  for (std::size_t i = 0, count = 1 + below(5); i < count; ++i) {
    const std::size_t way = below(3);
    drawn.add(way == 0   ? ls::shape(extent())
              : way == 1 ? ls::shape(extent(), extent())
                         : ls::shape(3, 2, extent(), extent()));
  }
  for (std::size_t i = 0, count = below(4); i < count; ++i)
    drawn.buckets.push_back(below(drawn.weights()));
  std::sort(drawn.buckets.begin(), drawn.buckets.end(), std::greater<>());
  std::normal_distribution<double> normal;
  drawn.fill([&] { return normal(random); });
  return drawn;
}

double difference(const Values& a, const Values& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// 515 trainable elements.
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<64, ls::kernel_regularizer(ls::L2{0.01})>,
                            ls::BatchNormalization<>, ls::Tanh, ls::Dense<3>> {};
template <class S>
auto model(const S& strategy, const ls::UpdateOptions& with = {}) {
  return ls::Model{Net{},
                   ls::Seed{7},
                   strategy,
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::Adam{.learning_rate = 0.01, .with = with},
                   ls::Accuracy{}};
}
auto data() { return line::classes(40) | ls::shuffle(40) | ls::batch(12); }
auto checked(int epochs) {
  auto options = quiet(epochs);
  options.verify_every = 1;
  return options;
}
const std::vector<wire::Format> formats{
    wire::Uncompressed{}, wire::bfloat16{}, wire::TopK{.fraction = 0.1},
    wire::PowerSgd{.rank = 2, .start = 3, .min_compression_rate = 1}};

/// A group that cannot add bfloat16, and fails in replica 1 if `calls_left` becomes 0.
struct Plain {
  static inline std::atomic<int> calls_left = 0;
  ls::CollectiveRef all;
  void count() const {
    if (all.rank() == 1 && --calls_left == 0) throw std::runtime_error("fault");
  }
  std::size_t rank() const { return all.rank(); }
  std::size_t size() const { return all.size(); }
  void abort() {}
  template <class T>
  void all_reduce(T* p, std::size_t n) {
    count();
    all.all_reduce(p, n);
  }
  void all_gather(const std::byte* p, std::size_t n, std::byte* out) {
    count();
    all.all_gather(p, n, out);
  }
  void broadcast(std::byte* p, std::size_t n, std::size_t root) { all.broadcast(p, n, root); }
};
struct Custom : Many {
  struct Session : Many::Session {
    void each(ls::FunctionRef<void(const ls::ReplicaContext<Device>&)> body) {
      Many::Session::each([&](ls::ReplicaContext<Device> replica) {
        Plain plain{replica.gradients};
        testing::OnlyAllReduces own{replica.exchange};
        replica.gradients = ls::CollectiveRef(plain);
        replica.exchange = ls::GradientExchange<double>(own);
        body(replica);
      });
    }
  };
  Session open() const { return {Many::open()}; }
};

}  // namespace

TEST_CASE("what replicas send and what they keep are their gradients") {
  std::mt19937_64 random(39);
  const auto uniform = [&] { return static_cast<double>(random() % 1000 + 1) / 1000; };
  for (int i = 0; i < 60; ++i) {
    const Drawn drawn = draw(random);
    for (const wire::Format& format :
         {wire::Format(wire::TopK{.fraction = uniform()}),
          wire::Format(wire::TopK{.count = 1 + random() % 20}),
          wire::Format(wire::PowerSgd{
              .rank = 1 + random() % 3, .start = random() % 2, .min_compression_rate = uniform()}),
          wire::Format(wire::Uncompressed{})}) {
      CAPTURE(i, format.text(), drawn.replicas, drawn.accumulated, drawn.weights(), drawn.overlaps);
      const Exchanged found = exchanged(drawn, format);
      CHECK(found.are_equal);
      Values sent(drawn.weights());
      for (std::size_t step = 0; step < drawn.steps; ++step) {
        CAPTURE(step);
        const bool sends = (step + 1) % drawn.accumulated == 0;
        if (!sends) CHECK(found.sums[step] == Values(drawn.weights()));
        for (std::size_t k = 0; k < sent.size(); ++k) sent[k] += found.sums[step][k];
        const Values all = sum_of(drawn.gradients, 0, (step + 1) * drawn.replicas, drawn.weights());
        Values together = sum_of(found.kept[step], 0, drawn.replicas, drawn.weights());
        for (std::size_t k = 0; k < sent.size(); ++k) together[k] += sent[k];
        CHECK(difference(together, all) < 1e-12);
      }
    }
  }
}

TEST_CASE("a parameter that is held does not travel, and the others do as before") {
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    Drawn drawn = draw(random);
    const Drawn all = drawn;
    drawn.holds_from = 3;
    drawn.held = random() % drawn.parameters.size();
    const auto& its = drawn.parameters[drawn.held];
    const std::size_t begin = its.offset, end = begin + its.shape.size();
    for (const wire::Format& format :
         {wire::Format(wire::Uncompressed{}), wire::Format(wire::bfloat16{}),
          wire::Format(wire::TopK{.fraction = 0.3}),
          wire::Format(wire::PowerSgd{.rank = 2, .start = 1, .min_compression_rate = 0})}) {
      CAPTURE(i, format.text(), drawn.replicas, drawn.accumulated, drawn.held, drawn.overlaps);
      const Exchanged found = exchanged(drawn, format), expected = exchanged(all, format);
      CHECK(found.are_equal);
      for (std::size_t step = 0; step < drawn.steps; ++step) {
        CAPTURE(step);
        const bool holds = step >= drawn.holds_from;
        const auto has = [&](const Values& values, const Values& of_all, const Values& of_held) {
          for (std::size_t k = 0; k < values.size(); ++k)
            if ((holds && begin <= k && k < end ? of_held : of_all)[k] != values[k]) return false;
          return true;
        };
        CHECK(has(found.sums[step], expected.sums[step], Values(drawn.weights())));
        for (std::size_t r = 0; r < drawn.replicas; ++r)
          CHECK(has(found.kept[step][r], expected.kept[step][r], found.kept[2][r]));
      }
    }
  }
}

TEST_CASE("formats that send everything have the sums of the gradients") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 60; ++i) {
    Drawn drawn = draw(random);
    drawn.accumulated = 1;
    for (const wire::Format& format :
         {wire::Format(wire::TopK{.fraction = 1}),
          wire::Format(wire::PowerSgd{.rank = 99, .start = 0, .min_compression_rate = 0}),
          wire::Format(wire::PowerSgd{.rank = 1, .start = 99}),
          wire::Format(wire::Uncompressed{})}) {
      CAPTURE(i, format.text(), drawn.replicas, drawn.weights());
      const Exchanged found = exchanged(drawn, format);
      for (std::size_t step = 0; step < drawn.steps; ++step) {
        const Values sum =
            sum_of(drawn.gradients, step * drawn.replicas, drawn.replicas, drawn.weights());
        CHECK(difference(found.sums[step], sum) < 1e-12);
      }
    }
  }
}

TEST_CASE("top-k sends the largest elements of each parameter, and the first of equal ones") {
  Drawn drawn{.steps = 2};
  drawn.add(ls::shape(2, 3));
  drawn.add(ls::shape(4));
  drawn.gradients = {{1, -5, 3, 3, 0, -3, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 0, 0, 0, 0}};
  const Exchanged found = exchanged(drawn, wire::TopK{.count = 2});
  CHECK(found.sums[0] == Values{0, -5, 3, 0, 0, 0, 2, 2, 0, 0});
  CHECK(found.kept[0][0] == Values{1, 0, 0, 3, 0, -3, 0, 0, 2, 2});
  CHECK(found.sums[1] == Values{2, 0, 0, 4, 0, 0, 0, 0, 2, 2});
  CHECK(found.kept[1][0] == Values{0, 1, 1, 0, 1, -2, 0, 0, 0, 0});
}

TEST_CASE("bfloat16 sums of 64 replicas do not overflow, and are rounded twice") {
  std::mt19937_64 random(64);
  std::uniform_real_distribution<double> uniform(0.5, 1);
  for (const std::size_t replicas : {1u, 2u, 5u, 64u}) {
    Drawn drawn{.replicas = replicas, .steps = 1};
    drawn.add(ls::shape(40, 30));
    // The mean of numbers near the largest float, of which each replica has its part.
    drawn.fill([&] { return 3.3e38 * uniform(random) / static_cast<double>(replicas); });
    const Exchanged found = exchanged(drawn, wire::bfloat16{});
    CHECK(found.are_equal);
    const Values mean = sum_of(drawn.gradients, 0, replicas, drawn.weights());
    for (std::size_t i = 0; i < mean.size(); ++i)
      CHECK(std::abs(found.sums[0][i] / mean[i] - 1) < 2 * 0x1p-8 + 64 * 0x1p-24);
  }
}

TEST_CASE("a gradient of zeros is sent as zeros, and PowerSGD goes on after it") {
  Drawn drawn{.replicas = 2, .steps = 4};
  drawn.add(ls::shape(8, 9));
  const wire::PowerSgd format{.rank = 2, .start = 0, .min_compression_rate = 1};
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  drawn.fill([&] { return normal(random); });
  for (const std::size_t first : {0u, 2u})
    for (std::size_t r = 0; r < 2; ++r) drawn.gradients[first * 2 + r] = Values(72);
  const Exchanged found = exchanged(drawn, format);
  CHECK(found.sums[0] == Values(72));
  CHECK(found.kept[0][0] == Values(72));
  CHECK(difference(found.sums[1], Values(72)) > 0.1);
  // A matrix of rank 1 has a second column that only rounding would fill.
  for (std::size_t r = 0; r < 8; ++r)
    for (std::size_t i = 0; i < 72; ++i)
      drawn.gradients[r][i] = static_cast<double>((i / 9 + 1) * (i % 9 + 1)) / 3;
  const Exchanged same = exchanged(drawn, format);
  CHECK(difference(same.sums[0], sum_of(drawn.gradients, 0, 2, 72)) < 1e-12);
  CHECK(difference(same.kept[3][0], Values(72)) < 1e-12);
}

TEST_CASE("what is not finite reaches all replicas") {
  for (const wire::Format& format : formats)
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      Drawn drawn{.replicas = 3, .steps = 5};
      drawn.add(ls::shape(20, 10));
      drawn.fill([] { return 1.0; });
      drawn.gradients[4 * 3 + 1][77] = bad;
      const Values sum = exchanged(drawn, format).sums[4];
      CHECK_FALSE(std::all_of(sum.begin(), sum.end(), [](double v) { return std::isfinite(v); }));
    }
}

TEST_CASE("replicas that compress train as a simulation in NumPy does") {
  const golden::GoldenFile file("compressed");
  const auto batches = golden::served_batches(file);
  const Values init = file.values("init");
  const auto check = [&](const std::string& run, const wire::Format& format,
                         std::size_t accumulated) {
    CAPTURE(run);
    const Values expected = file.values(run + "/weights");
    ls::Model m{golden::ServedNet{}, Many{.replicas = 3} | format,
                ls::SparseCategoricalCrossentropy{.from_logits = true},
                ls::SGD{.learning_rate = 0.1,
                        .momentum = 0.9,
                        .with = {.gradient_accumulation_steps = accumulated}}};
    golden::set_served_weights(m, init);
    for (std::size_t step = 0; step < batches.size(); ++step) {
      CAPTURE(step);
      m.train_on_batch(ls::global_batch, batches[step].x, batches[step].labels);
      const auto row = expected.begin() + static_cast<std::ptrdiff_t>(step * init.size());
      const Values weights(row, row + static_cast<std::ptrdiff_t>(init.size()));
      CHECK(testing::relative_error(golden::served_weights(m), weights) <
            golden::tolerance<Device>);
    }
    const auto digests = m.replica_weights_sha256();
    CHECK(digests == std::vector(3, digests[0]));
  };
  check("bfloat16", wire::bfloat16{}, 1);
  check("bfloat16_accumulated", wire::bfloat16{}, 2);
  check("top_k", wire::TopK{.fraction = 0.1}, 1);
  check("top_k_warm_up", wire::TopK{.fraction = 0.1, .warm_up = 5}, 1);
  check("top_k_accumulated", wire::TopK{.count = 3}, 2);
  check("power_sgd", wire::PowerSgd{.start = 2}, 1);
  check("power_sgd_2", wire::PowerSgd{.rank = 2, .start = 0, .min_compression_rate = 1}, 1);
  check("power_sgd_accumulated", wire::PowerSgd{.rank = 2, .start = 1, .min_compression_rate = 1},
        3);
}

TEST_CASE("models that compress learn, with equal bits in all replicas") {
  for (const std::size_t n : {1u, 3u}) {
    auto whole = model(Many{.replicas = n});
    const auto expected = whole.fit(data(), checked(10))["loss"];
    for (const wire::Format& format : formats) {
      CAPTURE(n, format.text());
      auto m = model(Many{.replicas = n} | format);
      const auto found = m.fit(data(), checked(10))["loss"];
      CHECK(found.back() < 1.3 * expected.back());
      CHECK((m.weights_sha256() == whole.weights_sha256()) ==
            (format.kind == wire::Format::Kind::uncompressed));
      // Adam's two buffers, what is kept before and after a step, and factors.
      const std::size_t buffers = format.kind == wire::Format::Kind::top_k       ? 4
                                  : format.kind == wire::Format::Kind::power_sgd ? 5
                                                                                 : 2;
      CHECK(m.memory().optimizer == buffers * sizeof(double) * Net::trainable_count);
      auto all = model(Many{.replicas = n} | wire::TopK{.fraction = 1});
      all.fit(data(), checked(10));
      CHECK(all.weights_sha256() == whole.weights_sha256());
    }
  }
}

TEST_CASE("one exchange per update has the gradients of an exchange per step, to rounding") {
  const ls::UpdateOptions with{.global_clipnorm = 0.5,
                               .use_ema = true,
                               .ema_overwrite_frequency = 2,
                               .gradient_accumulation_steps = 3};
  auto whole = model(Many{.replicas = 3}, with);
  auto once = model(Many{.replicas = 3} | wire::Uncompressed{}, with);
  const auto expected = whole.fit(data(), checked(3))["loss"];
  const auto found = once.fit(data(), checked(3))["loss"];
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-10);
}

TEST_CASE("a checkpoint has what replicas have kept, and continues with the same bits") {
  for (const wire::Format& format : formats)
    for (const std::size_t accumulated : {1u, 3u}) {
      CAPTURE(format.text(), accumulated);
      const ls::UpdateOptions with{.gradient_accumulation_steps = accumulated};
      const testing::Folder folder;
      auto m = model(Many{.replicas = 3} | format, with);
      m.fit(data(), checked(1));  // four steps, so that one of three is accumulated
      m.save_checkpoint(folder / "run");
      auto next = model(Many{.replicas = 3} | format, with);
      next.load_checkpoint(folder / "run");
      m.fit(data(), checked(1));
      next.fit(data(), checked(1));
      CHECK(next.weights_sha256() == m.weights_sha256());
      m.save_checkpoint(folder / "a");
      next.save_checkpoint(folder / "b");
      static_cast<void>(m.profile(data(), {.steps = 2}));  // restores everything
      m.fit(data(), checked(1));
      next.fit(data(), checked(1));
      CHECK(next.weights_sha256() == m.weights_sha256());
    }
}

TEST_CASE("gradients that nobody applies, and steps that fail, change nothing that is kept") {
  for (const wire::Format& format : {formats[0], formats[2], formats[3]})
    for (const std::size_t accumulated : {1u, 2u}) {
      CAPTURE(format.text(), accumulated);
      const auto trained = [&](bool looks, bool fails) {
        auto m =
            model(Custom{{.replicas = 2}} | format, {.gradient_accumulation_steps = accumulated});
        std::size_t step = 0;
        for (const auto& batch : m.batches(line::classes(96) | ls::batch(12))) {
          if (looks) static_cast<void>(m.gradients_of(batch));
          if (fails && ++step % accumulated == 0) {
            const bool second = format.kind == wire::Format::Kind::power_sgd && step == 8;
            Plain::calls_left = second ? 2 : 1;
            CHECK_THROWS_WITH(m.train_step(batch), "fault");
          }
          m.train_step(batch);
        }
        return m.weights("dense/kernel");
      };
      const auto expected = trained(false, false);
      CHECK(trained(true, false) == expected);
      CHECK(trained(false, true) == expected);
    }
}

TEST_CASE("another number of replicas, or another policy, continues a checkpoint") {
  const testing::Folder folder;
  const wire::Format format = wire::TopK{.fraction = 0.1};
  auto m = model(Many{.replicas = 3} | format);
  m.fit(data(), checked(1));
  m.save_checkpoint(folder / "three");
  // The sum of what is kept is that of before.
  auto two = model(Many{.replicas = 2} | format);
  two.load_checkpoint(folder / "three");
  two.save_checkpoint(folder / "two");
  const auto sum = [&](const std::string& name, std::size_t replicas) {
    std::string path;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / name))
      if (entry.path().filename() == "kept_gradients.safetensors") path = entry.path().string();
    const auto file = ls::SafetensorsFile::read(path);
    Values all(2 * 64);
    for (std::size_t r = 0; r < replicas; ++r) {
      const auto its = file.values<double>("replica_" + std::to_string(r) + "/dense/kernel");
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += its[i];
    }
    return all;
  };
  CHECK(difference(sum("two", 2), sum("three", 3)) < 1e-15);
  CHECK(difference(sum("three", 3), Values(2 * 64)) > 1e-4);
  auto whole = model(Many{.replicas = 2});
  std::string warning;
  const auto log = ls::set_log([&](ls::LogLevel level, std::string_view text) {
    if (level == ls::LogLevel::warning) warning = text;
  });
  whole.load_checkpoint(folder / "three");
  ls::set_log(log);
  CHECK_THAT(warning, ContainsSubstring("it has gradients that replicas had not sent, in "
                                        "kept_gradients.safetensors; this job keeps none"));
  whole.fit(data(), checked(1));
  whole.save_checkpoint(folder / "whole");
  auto power = model(Many{.replicas = 2} | formats[3]);
  power.load_checkpoint(folder / "whole");
  power.load_checkpoint(folder / "two");
  CHECK(power.fit(data(), checked(1))["loss"].back() > 0);
}

TEST_CASE("formats that cannot be are refused") {
  const auto fails = [](const auto& strategy, const char* text) {
    CHECK_THROWS_WITH(model(strategy).fit(data(), checked(1)), ContainsSubstring(text));
  };
  for (const double fraction : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()})
    fails(Many{} | wire::TopK{.fraction = fraction}, "; it must be above 0 and at most 1");
  fails(Many{} | wire::PowerSgd{.rank = 0}, "power_sgd: rank is 0; it must be at least 1");
  fails(Many{} | wire::PowerSgd{.min_compression_rate = -1},
        "power_sgd: min_compression_rate is -1");
  fails(Many{.virtual_shards = 8} | wire::bfloat16{},
        "virtual_shards is 8, but what travels under wire depends on the number of replicas");
  const auto custom = [](const wire::Format& format) {
    return model(Custom{{.replicas = 2}} | format);
  };
  CHECK_THROWS_WITH(custom(wire::bfloat16{}).fit(data(), checked(1)),
                    ContainsSubstring("has no all_reduce_bfloat16"));
  auto own = custom(formats[2]);
  auto built_in = model(Many{.replicas = 2} | formats[2]);
  own.fit(data(), checked(2));
  built_in.fit(data(), checked(2));
  CHECK(own.weights_sha256() == built_in.weights_sha256());
}

TEST_CASE("a checkpoint of a job that compresses has the layers that do not train") {
  const testing::Folder folder;
  auto first = model(Many{.replicas = 2} | formats[2]);
  first.fit(data(), checked(1));
  first.set_trainable("dense", false);
  first.set_rate_multiplier("dense_1", 0.5);
  const auto kernel = first.weights("dense/kernel"), bias = first.weights("dense_1/bias");
  first.fit(data(), checked(1));
  first.save_checkpoint(folder.path().string());
  auto second = model(Many{.replicas = 2} | formats[2]);
  second.load_checkpoint(folder.path().string());
  for (auto* const its : {&first, &second}) its->fit(data(), checked(1));
  CHECK(first.weights("dense/kernel") == kernel);
  CHECK(first.weights("dense_1/bias") != bias);
  CHECK(second.weights_sha256() == first.weights_sha256());
  for (auto* const its : {&first, &second}) {
    its->set_trainable("dense", true);
    its->fit(data(), checked(1));
  }
  CHECK(first.weights("dense/kernel") != kernel);
  CHECK(second.weights_sha256() == first.weights_sha256());
}
