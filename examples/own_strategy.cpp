// A custom strategy whose replicas exchange rounded gradients; docs/adding-a-strategy.md explains
// each part.
#include <fmt/format.h>
#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/collectives/exchange_at_end.hpp>
#include <lockstep/collectives/thread_group.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
namespace ls = lockstep;

namespace mine {

// --8<-- [start:exchange]
/// Rounds p[0..n) to bfloat16, as if it were sent in half the bytes.
inline void round_to_bfloat16(float* p, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(p[i])) continue;
    auto bits = std::bit_cast<std::uint32_t>(p[i]);
    bits += 0x7FFF + (bits >> 16 & 1);  // to nearest, ties to even
    p[i] = std::bit_cast<float>(bits & 0xFFFF0000);
  }
}

/// One replica's gradient exchange.
class RoundedExchange {
 public:
  explicit RoundedExchange(ls::ThreadGroup::Member member) : exchange_(member) {}
  /// Called with each finished part of the gradients, while backward continues.
  void post(float* p, std::size_t n) {
    round_to_bfloat16(p, n);
    exchange_.post(p, n);
  }
  /// Called with the last part, and the sums of loss and metrics, which are not rounded.
  void finish(float* p, std::size_t n, double* sums, std::size_t m) {
    round_to_bfloat16(p, n);
    exchange_.finish(p, n, sums, m);
  }
  void reset() { exchange_.reset(); }

 private:
  ls::ExchangeAtEnd<ls::ThreadGroup::Member, float> exchange_;
};

static_assert(ls::ExchangesGradients<RoundedExchange, float>);
// --8<-- [end:exchange]

// --8<-- [start:team]
/// A team of threads for the lifetime of the object. The caller of `run` is thread 0.
class Team {
 public:
  using Body = std::function<void(std::size_t)>;

  explicit Team(std::size_t size) : start_(count(size)), done_(count(size)) {
    for (std::size_t i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Team() {
    body_ = nullptr;
    start_.arrive_and_wait();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Runs body(i) in each thread i; returns when all have finished. The body must not throw.
  void run(const Body& body) {
    body_ = &body;
    start_.arrive_and_wait();
    body(0);
    done_.arrive_and_wait();
  }

 private:
  static std::ptrdiff_t count(std::size_t size) { return static_cast<std::ptrdiff_t>(size); }
  void serve(std::size_t i) {
    while (true) {
      start_.arrive_and_wait();
      if (body_ == nullptr) return;
      (*body_)(i);
      done_.arrive_and_wait();
    }
  }

  std::barrier<> start_, done_;
  const Body* body_ = nullptr;
  std::vector<std::jthread> threads_;  // last member, so joined before the others are destroyed
};
// --8<-- [end:team]

// --8<-- [start:strategy]
/// Replicas in threads of one process, whose gradients are rounded before they are summed.
template <ls::HostDevice D>
struct Rounded {
  using device = D;
  static constexpr std::string_view name = "rounded";

  std::size_t replicas = 2;
  D on{};

  class Session;
  Session open() const {
    if (replicas == 0) throw ls::UsageError("rounded: 0 replicas; there must be at least 1");
    return Session(*this);
  }
};
// --8<-- [end:strategy]

// --8<-- [start:session]
template <ls::HostDevice D>
class Rounded<D>::Session : public ls::SessionOfOneProcess {
 public:
  explicit Session(const Rounded& options) : state_(std::make_unique<State>(options)) {}

  /// Runs body(ReplicaContext) once in each replica's thread.
  template <class Body>
  void each(Body&& body) {
    state_->each([&](std::size_t i, ReplicaState& replica) {
      [[maybe_unused]] const auto scope = replica.context->scope();
      body(ls::ReplicaContext<D>{i, i, ls::CollectiveRef(replica.layers),
                                 ls::GradientExchange<float>(replica.gradients), *replica.context});
    });
  }
  std::size_t local_replicas() const { return state_->states.size(); }
  std::size_t replicas() const { return local_replicas(); }
  std::size_t first_replica() const { return 0; }
  std::size_t virtual_shards() const { return 0; }  // one slice per replica

 private:
  /// The objects of one replica.
  struct ReplicaState {
    ReplicaState(ls::ThreadGroup& of_layers, ls::ThreadGroup& of_gradients, std::size_t i)
        : layers(of_layers, i), gradients(ls::ThreadGroup::Member(of_gradients, i)) {}
    ls::ThreadGroup::Member layers;
    RoundedExchange gradients;
    std::optional<typename D::Context> context;
  };

  struct State {
    explicit State(const Rounded& options)
        : layers({.size = options.replicas}),
          gradients({.size = options.replicas}),
          errors(options.replicas),
          team(options.replicas) {
      for (std::size_t i = 0; i < options.replicas; ++i)
        states.push_back(std::make_unique<ReplicaState>(layers, gradients, i));
      // A device must be opened in the thread that will use it.
      each([&](std::size_t i, ReplicaState& replica) {
        replica.context.emplace(options.on.open(options.replicas, i));
      });
    }

    /// Runs f(i, replica) in each thread. An exception in one replica aborts the waits of the others;
    /// it is rethrown when all have finished, and the session can be used again.
    template <class F>
    void each(const F& f) {
      team.run([&](std::size_t i) {
        errors[i] = nullptr;
        try {
          f(i, *states[i]);
        } catch (...) {
          errors[i] = std::current_exception();
          layers.abort();
          gradients.abort();
        }
      });
      if (std::all_of(errors.begin(), errors.end(), [](const auto& e) { return e == nullptr; }))
        return;
      for (const auto& replica : states) replica->gradients.reset();
      layers.reset();
      gradients.reset();
      throw_cause();
    }

    /// Rethrows the cause: the first error that is not merely the notification of an abort.
    void throw_cause() const {
      std::exception_ptr cause;
      for (const std::exception_ptr& error : errors) {
        if (!error || (cause && only_notified(error))) continue;
        cause = error;
        if (!only_notified(cause)) break;
      }
      std::rethrow_exception(cause);
    }

    static bool only_notified(const std::exception_ptr& error) {
      try {
        std::rethrow_exception(error);
      } catch (const ls::CollectiveAborted&) {
        return true;
      } catch (...) {
        return false;
      }
    }

    ls::ThreadGroup layers, gradients;  // two channels, so that neither waits for the other
    std::vector<std::unique_ptr<ReplicaState>> states;
    std::vector<std::exception_ptr> errors;
    Team team;
  };
  std::unique_ptr<State> state_;  // on the heap: addresses stay valid when the session moves
};

static_assert(ls::Strategy<Rounded<ls::Reference<float>>>);
// --8<-- [end:session]

}  // namespace mine

namespace {

// --8<-- [start:train]
struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<16, ls::relu>, ls::Dense<10>> {};

template <class Strategy>
auto trained_on(Strategy strategy) {
  ls::Model model{Net{},
                  ls::Seed{3},
                  std::move(strategy),
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.003f},
                  ls::Accuracy{}};
  const auto data = ls::datasets::digits().train() | ls::take(2'000) | ls::rescale(1.0f / 255) |
                    ls::cache | ls::shuffle(2'000) | ls::batch(50);
  model.fit(data, {.epochs = 3, .verify_every = 10, .progress = ls::ProgressStyle::none});
  return model;
}
// --8<-- [end:train]

using Device = ls::Reference<float>;

double accuracy(auto& model) {
  return model.evaluate(ls::datasets::digits().test() | ls::take(500) | ls::rescale(1.0f / 255) |
                        ls::batch(100))["accuracy"];
}

/// Whether a session can be used after an error in one of its replicas.
bool survives_an_error() {
  auto session = mine::Rounded<Device>{.replicas = 3}.open();
  try {
    session.each([](const auto& replica) {
      if (replica.rank == 1) throw ls::UsageError("rank 1 has no data");
      float sum = 1;
      replica.group.all_reduce(&sum, 1);
    });
    return false;
  } catch (const ls::UsageError&) {
  }
  std::vector<float> sums(3, 1);
  session.each([&](const auto& replica) { replica.group.all_reduce(&sums[replica.rank], 1); });
  return sums == std::vector<float>(3, 3);
}

}  // namespace

int main() {
  auto mirrored = trained_on(ls::Mirrored<Device>{.replicas = 2});
  auto rounded = trained_on(mine::Rounded<Device>{.replicas = 2});
  fmt::print("replicas: {}\n", rounded.replicas());
  fmt::print("accuracy within 0.02 of exact gradients: {}\n",
             std::abs(accuracy(rounded) - accuracy(mirrored)) < 0.02 ? "yes" : "no");
  fmt::print("the same bits as exact gradients: {}\n",
             rounded.weights_sha256() == mirrored.weights_sha256() ? "yes" : "no");
  fmt::print("learned: {}\n", accuracy(rounded) > 0.8 ? "yes" : "no");
  fmt::print("survives an error: {}\n", survives_an_error() ? "yes" : "no");
}
