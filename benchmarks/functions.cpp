/// \file
/// Times functions (ls::Function) next to the library's kernels of the same formulas on the Cpu, in
/// turn, so that both have the same neighbours: `functions [--elements 65536] [--rounds 400]`.
/// Prints microseconds per pass, and the ratio of the medians and of the minima.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <numbers>
#include <vector>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/function.hpp"
#include "lockstep/lockstep.hpp"
#include "measure.hpp"

namespace {

namespace ls = lockstep;

constexpr auto gelu = [](auto x) { return 0.5 * x * erfc(x * (-std::numbers::sqrt2 / 2)); };
constexpr auto gelu_by_erf = [](auto x) { return 0.5 * x * (1 + erf(x / std::numbers::sqrt2)); };
constexpr auto silu = [](auto x) { return x * sigmoid(x); };
constexpr auto softmax = [](auto x) {
  const auto e = exp(x - stop_gradient(max(x)));
  return e / sum(e);
};
constexpr auto log_softmax = [](auto x) {
  const auto shifted = x - stop_gradient(max(x));
  return shifted - log(sum(exp(shifted)));
};
constexpr auto huber = [](auto p, auto t) {
  const auto e = abs(p - t);
  return select(e <= 1, 0.5 * e * e, e - 0.5);
};

std::vector<float> numbers(std::size_t n, std::uint64_t key) {
  ls::Philox random(key);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(2 * random.normal());
  return values;
}

/// Both in turn, and a line of the table.
void compare(const char* name, std::size_t rounds, const std::function<void()>& ours,
             const std::function<void()>& function) {
  measure::Samples a, b;
  const auto time = [](measure::Samples& to, const std::function<void()>& pass) {
    const auto begin = measure::Clock::now();
    pass();
    to.add(measure::micros(measure::Clock::now() - begin));
  };
  ours();
  function();
  for (std::size_t i = 0; i < rounds; ++i) {
    time(a, ours);
    time(b, function);
  }
  fmt::print("| {} | {:.1f} | {:.1f} | {:.2f} | {:.1f} | {:.1f} | {:.2f} |\n", name, a.median(),
             b.median(), b.median() / a.median(), a.min(), b.min(), b.min() / a.min());
}

struct Memory {
  std::vector<float> x, y, dy, dx;
};

/// A pass of a layer's kernel over a batch.
template <class Op>
std::function<void()> pass(const Op& op, std::size_t count, bool backward, Memory& m,
                           ls::CpuContext<float>& context) {
  using K = ls::Kernel<Op, ls::Cpu>;
  return
      [&m, &context, op, count, backward,
       prepared =
           ls::detail::KernelCalls<Op, ls::Cpu>::prepare(&op, context, count).state.release()]() {
        static ls::SelfGroup alone;
        const ls::StepContext step{ls::whole_batch(count), true, 1, 0, ls::CollectiveRef(alone)};
        const float* const x = m.x.data();
        float* const dx = m.dx.data();
        const ls::Io<ls::Cpu> io{step,        context, 1,       &x,      m.y.data(),
                                 nullptr,     nullptr, nullptr, nullptr, nullptr,
                                 m.dy.data(), &dx,     nullptr};
        using Calls = ls::detail::KernelCalls<Op, ls::Cpu>;
        static_assert(sizeof(K) > 0);
        if (backward)
          Calls::backward(&op, io, prepared);
        else
          Calls::forward(&op, io, prepared);
      };
}

template <class Ours, class Theirs>
void compare_layers(const char* name, ls::Shape shape, std::size_t elements, std::size_t rounds,
                    ls::CpuContext<float>& context) {
  Memory m{numbers(elements, 1), numbers(elements, 2), numbers(elements, 3), numbers(elements, 4)};
  const std::size_t count = elements / shape.size();
  const auto ours = Ours::op(shape);
  const auto function = Theirs::op(shape);
  for (const bool backward : {false, true})
    compare(fmt::format("{}, {}", name, backward ? "backward" : "forward").c_str(), rounds,
            pass(ours, count, backward, m, context), pass(function, count, backward, m, context));
}

template <class Ours, class Theirs>
void compare_losses(const char* name, ls::Shape shape, std::size_t elements, std::size_t rounds,
                    ls::CpuContext<float>& context) {
  const auto p = numbers(elements, 1), t = numbers(elements, 2);
  std::vector<float> g(elements);
  double sum = 0;
  const auto run = [&](const auto& op) {
    return [&, op] {
      ls::detail::run_kernel<ls::Cpu>(
          op, ls::LossIo<ls::Cpu, float>{context, elements / shape.size(), p.data(), t.data(),
                                         g.data(), 1.0, &sum});
    };
  };
  compare(name, rounds, run(Ours{}.op(shape)), run(Theirs{}.op(shape)));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"functions next to the library's kernels of the same formulas"};
  std::size_t elements = 65536, rounds = 400;
  app.add_option("--elements", elements, "floats in a batch, a multiple of 1280");
  app.add_option("--rounds", rounds, "passes of each");
  CLI11_PARSE(app, argc, argv);
  auto context = ls::Cpu{.threads = 1}.open(1, 0);
  const auto scope = context.scope();
  const measure::Neighbours neighbours;
  fmt::print("{}, {} elements, {} rounds\n", measure::machine(), elements, rounds);
  fmt::print("| pass | ours, us | Function | ratio | least: ours | Function | ratio |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  compare_layers<ls::GELU, ls::Function<gelu>>("GELU", ls::shape(256), elements, rounds, context);
  compare_layers<ls::GELU, ls::Function<gelu_by_erf>>("GELU by erf", ls::shape(256), elements,
                                                      rounds, context);
  compare_layers<ls::SiLU, ls::Function<silu>>("SiLU", ls::shape(256), elements, rounds, context);
  compare_layers<ls::Softmax, ls::Function<softmax>>("softmax of 256", ls::shape(256), elements,
                                                     rounds, context);
  compare_layers<ls::LogSoftmax, ls::Function<log_softmax>>("log-softmax of 256", ls::shape(256),
                                                            elements, rounds, context);
  compare_losses<ls::Huber, ls::Function<huber>>("Huber", ls::shape(256), elements, rounds,
                                                 context);
  fmt::print("{:.0f} % of the time of other processes\n", neighbours.percent());
}
