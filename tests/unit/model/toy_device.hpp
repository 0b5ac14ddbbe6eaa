/// \file
/// Devices for the tests of the plan: the reference kernels with fusion rules, and an engine with
/// known weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/model/residual.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace toy {

namespace ls = lockstep;

/// Two consecutive ops. Either may be a Pair.
template <class A, class B>
struct Pair {
  A first{};
  B second{};
  constexpr Pair() = default;
  constexpr Pair(const A& a, const B& b) : first(a), second(b) {}
  /// Three ops: the first two become a Pair.
  template <class X, class Y>
  constexpr Pair(const X& x, const Y& y, const B& b) : first(x, y), second(b) {}
  constexpr ls::Shape out() const { return second.out(); }
  bool operator==(const Pair&) const = default;
  /// Rejects one kernel size, to test rules for convolutions.
  static constexpr bool fits(const ls::Conv2DOp& op, const ls::ReLUOp&) {
    return op.kernel.height != 1;
  }
};

template <class... Rules>
struct Fusing : ls::Reference<float> {
  using fusions = ls::List<Rules...>;
  Context open(std::size_t, std::size_t) const { return {}; }
};

template <class A, class... Rest>
struct Folded {
  using type = A;
};
template <class A, class B, class... Rest>
struct Folded<A, B, Rest...> : Folded<Pair<A, B>, Rest...> {};
/// The rule that fuses Ops.
template <class... Ops>
using Rule = ls::Fuse<typename Folded<Ops...>::type, Ops...>;

constexpr std::size_t weights_of(const auto& op) {
  if constexpr (requires { op.kernel_size(); })
    return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.out().channels()) : 0);
  else
    return 0;
}
template <class A, class B>
constexpr std::size_t weights_of(const Pair<A, B>& op) {
  return weights_of(op.first) + weights_of(op.second);
}

}  // namespace toy

namespace lockstep {

template <class Op, class... Rules>
  requires detail::is_any_of<Op, DenseOp, Conv2DOp, MaxPooling2DOp, AddOp>
struct Kernel<Op, toy::Fusing<Rules...>> : Kernel<Op, Reference<float>> {
  using D = toy::Fusing<Rules...>;
  static Io<Reference<float>> as_reference(const Io<D>& io) {
    return {io.step,  io.device, io.key,     io.x,  io.y,  io.w, io.state,
            io.saved, io.once,   io.scratch, io.dy, io.dx, io.dw};
  }
  template <class... P>
  static void forward(const Op& op, const Io<D>& io, P&... prepared) {
    run(op, io, [](auto&&... all) { Plain::forward(all...); }, prepared...);
  }
  template <class... P>
  static void backward(const Op& op, const Io<D>& io, P&... prepared) {
    run(op, io, [](auto&&... all) { Plain::backward(all...); }, prepared...);
  }

 private:
  using Plain = Kernel<Op, Reference<float>>;
  /// A Pair has no Prepared.
  template <class... P>
  static void run(const Op& op, const Io<D>& io, const auto& pass, P&... prepared) {
    if constexpr (sizeof...(P) == 0 && requires { typename Plain::Prepared; }) {
      typename D::Context context;
      auto own = Plain::prepare(op, context, io.step.count);
      pass(op, as_reference(io), own);
    } else {
      pass(op, as_reference(io), prepared...);
    }
  }
};

/// Keeps the value between the two ops, and the data saved by each, in `saved`.
template <class A, class B, class... Rules>
struct Kernel<toy::Pair<A, B>, toy::Fusing<Rules...>> : KernelTraits {
  using D = toy::Fusing<Rules...>;
  using Op = toy::Pair<A, B>;
  using KA = Kernel<A, D>;
  using KB = Kernel<B, D>;
  static constexpr bool keeps_x = KA::keeps_x, keeps_y = KB::keeps_y;
  static constexpr std::size_t between(const Op& op) {
    return op.first.out().size() * sizeof(float);
  }
  static constexpr std::size_t saved(const Op& op) {
    return between(op) + detail::round_up(KA::saved(op.first)) +
           detail::round_up(KB::saved(op.second));
  }
  static void forward(const Op& op, const Io<D>& io) {
    KA::forward(op.first, first_of(op, io));
    Operands of_second;
    KB::forward(op.second, second_of(op, io, of_second));
  }
  static void backward(const Op& op, const Io<D>& io) {
    std::vector<float> gradient(io.step.count * op.first.out().size());
    Operands of_second;
    of_second.dx[0] = gradient.data();
    Io<D> b = second_of(op, io, of_second);
    KB::backward(op.second, b);
    Io<D> a = first_of(op, io);
    a.dy = gradient.data();
    KA::backward(op.first, a);
  }

 private:
  static Io<D> first_of(const Op& op, Io<D> io) {
    io.y = reinterpret_cast<float*>(io.saved);
    io.saved += io.step.count * between(op);
    return io;
  }
  struct Operands {
    std::array<const float*, 2> x{};
    std::array<float*, 2> dx{};
  };
  /// Reads the value between the two ops, and what an AddOp adds to it.
  static Io<D> second_of(const Op& op, Io<D> io, Operands& operands) {
    operands.x[0] = reinterpret_cast<float*>(io.saved);
    if constexpr (std::is_same_v<B, AddOp>) {
      operands.x[1] = io.x[1];
      operands.dx[1] = io.dx[1];
    }
    io.x = operands.x.data();
    io.dx = operands.dx.data();
    io.saved += io.step.count * (between(op) + detail::round_up(KA::saved(op.first)));
    io.w += toy::weights_of(op.first);
    io.dw += toy::weights_of(op.first);
    return io;
  }
};

}  // namespace lockstep

namespace toy {

/// An engine with random weights and a step of `count` examples.
template <class Net, class D>
struct Machine {
  using T = typename D::real;
  /// A GPU must be current before memory is allocated.
  static auto scope_of(typename D::Context& context) {
    if constexpr (ls::HostDevice<D>)
      return 0;
    else
      return context.scope();
  }
  const T* features() { return context.feed(0, x.data(), x.size()); }
  explicit Machine(std::size_t count, std::uint64_t seed = 1, const D& d = {})
      : examples(count), device(d) {
    weights = testing::as<T>(testing::normal_values(Net::graph.weights, seed));
    for (T& w : weights) w *= T(0.3);
    x = testing::as<T>(testing::normal_values(count * Net::input_shape.size(), seed + 1));
    c = testing::as<T>(testing::normal_values(count * Net::output_shape.size(), seed + 2));
    engine.weights().upload(weights.data());
  }
  ls::StepContext step() {
    return {ls::whole_batch(examples), true, 1, 0, ls::CollectiveRef(group)};
  }
  std::vector<T> forward() {
    engine.prepare(examples);
    const T* const y = engine.forward(features(), step());
    std::vector<T> result(examples * Net::output_shape.size());
    context.download(reinterpret_cast<std::byte*>(result.data()),
                     reinterpret_cast<const std::byte*>(y), result.size() * sizeof(T));
    context.synchronize();
    return result;
  }
  /// Gradients of sum(c * y), initialized to NaN.
  template <class Ready>
  std::vector<T> gradients(Ready&& ready, ls::UpdateRef<T> update = {}) {
    forward();
    const std::vector<T> unset(Net::graph.weights, std::numeric_limits<T>::quiet_NaN());
    engine.gradients().upload(unset.data());
    if (engine.output_gradient() != nullptr)
      context.upload(reinterpret_cast<std::byte*>(engine.output_gradient()),
                     reinterpret_cast<const std::byte*>(c.data()), c.size() * sizeof(T));
    engine.backward(features(), step(), ready, update);
    return now();
  }
  std::vector<T> gradients() {
    return gradients([](const auto&) {});
  }
  std::vector<T> now() {
    std::vector<T> g(Net::graph.weights);
    engine.gradients().download(g.data());
    context.synchronize();
    return g;
  }
  /// sum(c * y) with one weight increased by `by`.
  double objective(std::size_t weight, T by) {
    std::vector<T> moved = weights;
    moved[weight] += by;
    engine.weights().upload(moved.data());
    const std::vector<T> y = forward();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(c[i] * y[i]);
    engine.weights().upload(weights.data());
    return sum;
  }
  /// Central differences.
  std::vector<double> numeric_gradients() {
    std::vector<double> g(Net::graph.weights);
    const T h = T(1e-5);
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] = (objective(i, h) - objective(i, -h)) / (2 * static_cast<double>(h));
    return g;
  }

  std::size_t examples;
  D device;
  typename D::Context context = device.open(1, 0);
  decltype(scope_of(std::declval<typename D::Context&>())) own_scope = scope_of(context);
  ls::SelfGroup group;
  ls::detail::Engine<Net, D> engine{context};
  std::vector<T> weights, x, c;
};

}  // namespace toy
