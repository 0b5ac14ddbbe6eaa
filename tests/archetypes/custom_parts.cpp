/// \file
/// Custom parts as the pages docs/adding-a-*.md describe them: a strategy that wraps the exchange of
/// another one, and a device over host memory that counts its bytes.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace {

namespace ls = lockstep;

/// Doubles the gradients, and counts them.
template <class T>
struct DoublingExchange {
  ls::GradientExchange<T> inner;
  std::atomic<std::size_t>& elements;
  void post(T* p, std::size_t n) {
    change(p, n);
    inner.post(p, n);
  }
  void finish(T* p, std::size_t n, double* sums, std::size_t m) {
    change(p, n);
    inner.finish(p, n, sums, m);
  }
  void change(T* p, std::size_t n) {
    elements += n;
    for (std::size_t i = 0; i < n; ++i) p[i] *= 2;
  }
};

template <ls::Strategy S>
struct Doubling {
  using device = typename S::device;
  static constexpr std::string_view name = "doubling";
  S inner{};
  std::shared_ptr<std::atomic<std::size_t>> elements = std::make_shared<std::atomic<std::size_t>>();

  struct Session : S::Session {
    std::shared_ptr<std::atomic<std::size_t>> elements;
    Session(const S& strategy, std::shared_ptr<std::atomic<std::size_t>> counter)
        : S::Session(strategy.open()), elements(std::move(counter)) {}
    void each(auto&& body) {
      S::Session::each([&](ls::ReplicaContext<device> replica) {
        DoublingExchange<typename device::real> doubling{replica.exchange, *elements};
        replica.exchange = ls::GradientExchange<typename device::real>(doubling);
        body(replica);
      });
    }
  };
  Session open() const { return {inner, elements}; }
};

using Plain = ls::Mirrored<ls::Reference<float>>;
static_assert(ls::Strategy<Doubling<Plain>>);

/// A device that counts the bytes of all its contexts.
struct Counting {
  struct Context : ls::Reference<float>::Context {
    std::shared_ptr<std::atomic<std::size_t>> now;
    explicit Context(std::shared_ptr<std::atomic<std::size_t>> counter) : now(std::move(counter)) {}
    std::byte* allocate(std::size_t n) {
      *now += n;
      return HostMemory::allocate(n);
    }
    void release(std::byte* p, std::size_t n) {
      *now -= n;
      HostMemory::release(p, n);
    }
  };
  using real = float;
  using fusions = ls::List<>;
  static constexpr std::string_view name = "counting", precision = "float32";
  static constexpr bool is_host = true;
  std::shared_ptr<std::atomic<std::size_t>> bytes = std::make_shared<std::atomic<std::size_t>>();
  Context open(std::size_t, std::size_t) const { return Context(bytes); }
};
static_assert(ls::Device<Counting> && ls::HostDevice<Counting>);

struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<16>, ls::GELU,
                            ls::Dropout<ls::rate(0.2f)>, ls::Dense<10>> {};

auto model_on(auto strategy, auto optimizer) {
  return ls::Model{Net{}, ls::Seed{3}, std::move(strategy),
                   ls::SparseCategoricalCrossentropy{.from_logits = true}, optimizer};
}

/// Trains one epoch of 10 steps. \returns all weights.
std::vector<double> train(auto& model) {
  const auto data = ls::datasets::digits().train() | ls::take(500) | ls::rescale(1.0f / 255) |
                    ls::shuffle(500) | ls::batch(50);
  model.fit(data, {.verify_every = 5, .progress = ls::ProgressStyle::none});
  std::vector<double> all;
  for (const ls::ParameterInfo& p : model.parameters())
    for (const auto w : model.weights(p.name)) all.push_back(static_cast<double>(w));
  return all;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

/// The loops of the Reference, since this device has the same memory.
template <>
struct ls::Kernel<ls::DenseOp, Counting> : ls::Kernel<ls::DenseOp, ls::Reference<float>> {
  using Base = ls::Kernel<ls::DenseOp, ls::Reference<float>>;
  static ls::Io<ls::Reference<float>> as_reference(const ls::Io<Counting>& io) {
    return {io.step,  io.device, io.key,     io.x,  io.y,  io.w, io.state,
            io.saved, io.once,   io.scratch, io.dy, io.dx, io.dw};
  }
  static void forward(const ls::DenseOp& op, const ls::Io<Counting>& io, auto&... prepared) {
    Base::forward(op, as_reference(io), prepared...);
  }
  static void backward(const ls::DenseOp& op, const ls::Io<Counting>& io, auto&... prepared) {
    Base::backward(op, as_reference(io), prepared...);
  }
};

TEST_CASE("a strategy that wraps an exchange gets each gradient once, before the sum") {
  const ls::SGD slow{.learning_rate = 0.125}, fast{.learning_rate = 0.25};
  Doubling<Plain> doubling{{.replicas = 3}};
  auto wrapped = model_on(doubling, slow);
  auto plain = model_on(Plain{.replicas = 3}, fast);
  auto slower = model_on(Plain{.replicas = 3}, slow);
  const std::vector<double> weights = train(wrapped);
  CHECK(weights == train(plain));  // factors of two are exact
  CHECK(weights != train(slower));
  CHECK(*doubling.elements == 3 * 10 * weights.size());
  CHECK(wrapped.replicas() == 3);
}

TEST_CASE("a session that wraps another can be used after an error in one replica") {
  auto session = Doubling<Plain>{{.replicas = 3}}.open();
  CHECK_THROWS_MATCHES(session.each([](const auto& replica) {
    if (replica.rank == 1) throw ls::UsageError("rank 1 has no data");
    float* const none = nullptr;
    double sum = 1;
    replica.exchange.finish(none, 0, &sum, 1);
  }),
                       ls::UsageError, Catch::Matchers::Message("rank 1 has no data"));
  std::array<float, 3> sums{1, 2, 3};
  std::array<double, 3> losses{1, 1, 1};  // the sums of loss and metrics are passed on unchanged
  session.each([&](const auto& replica) {
    replica.exchange.finish(&sums[replica.rank], 1, &losses[replica.rank], 1);
  });
  CHECK(sums == std::array<float, 3>{12, 12, 12});
  CHECK(losses == std::array<double, 3>{3, 3, 3});
}

TEST_CASE("a device over host memory trains as the Reference does, and gets its memory back") {
  const ls::Adam adam{.learning_rate = 0.003};
  auto oracle = model_on(ls::OneDevice<ls::Reference<double>>{}, adam);
  const std::vector<double> expected = train(oracle);
  const Counting device;
  {
    auto one = model_on(ls::OneDevice<Counting>{.on = device}, adam);
    CHECK(largest_difference(train(one), expected) < 1e-4);
    // Weights, gradients and the two slots of Adam.
    CHECK(*device.bytes >= 4 * sizeof(float) * expected.size());
    auto two = model_on(ls::Mirrored<Counting>{.replicas = 2, .on = device}, adam);
    CHECK(largest_difference(train(two), expected) < 1e-4);
  }
  CHECK(*device.bytes == 0);
}
