/// \file
/// Networks with frozen blocks, and what their gradients must be on any device.
#pragma once

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/shared.hpp"
#include "lockstep/model/statement_graph.hpp"
#include "unit/model/toy_device.hpp"

namespace frozen_nets {

namespace ls = lockstep;

/// y = w x, whose kernel does not know of frozen layers: it always writes dw.
struct GainOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t weights() const { return 1; }
  bool operator==(const GainOp&) const = default;
};
struct Gain {
  static constexpr std::string_view name = "gain";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape) {
    return {ls::Parameter{"w", ls::shape(1), {}, &ls::detail::initialize<ls::ones>, {}}};
  }
  static constexpr GainOp op(ls::Shape in) { return {in}; }
};

template <class... Layers>
using Trained = ls::Sequential<Layers...>;
template <class... Layers>
using Frozen = ls::Frozen<ls::Sequential<Layers...>>;
template <class... Layers>
using Again = ls::Recompute<ls::Frozen<ls::Sequential<Layers...>>>;

/// The same networks with blocks that train and with frozen ones.
template <template <class...> class Block>
struct Nets {
  template <int F>
  using Conv = ls::Conv2D<F, 3, ls::same>;

  struct Images
      : ls::Sequential<ls::Input<6, 6, 2>, Conv<4>,
                       Block<ls::ReLU, Conv<16>, ls::ReLU, ls::DepthwiseConv2D<3>, ls::PReLU<>,
                             ls::Conv2DTranspose<4, 3>, ls::LayerNormalization<>, Gain>,
                       ls::Flatten, ls::Dense<20>,
                       Block<ls::Dense<64, ls::relu>, ls::Dropout<0.3>, ls::Dense<5>>,
                       ls::Dense<3>> {};
  /// A frozen block with two calls, through which the gradient of a layer before it passes.
  struct Shared
      : ls::Graph<ls::In<"left", 5>, ls::In<"right", 5>,
                  ls::Let<"l", ls::From<"left">, ls::Dense<4>>,
                  ls::Let<"a", ls::From<"l">, ls::Shared<"tower", Block<ls::Dense<4>, Gain>>>,
                  ls::Let<"b", ls::From<"a">, ls::Shared<"tower", Block<ls::Dense<4>, Gain>>>,
                  ls::Let<"h", ls::From<"a", "b">, ls::Multiply, ls::Dense<2>>,
                  ls::Out<"y", ls::From<"h">>, ls::Out<"z", ls::From<"right">, ls::Dense<3>>> {};
  /// No gradient is needed before the last layer.
  struct Backbone : ls::Sequential<ls::Input<6, 6, 2>,
                                   Block<Conv<4>, ls::ReLU, ls::MaxPooling2D<>, ls::Flatten, Gain>,
                                   ls::Dense<3>> {};
};
/// Residual blocks, whose last normalization some devices fuse with what follows.
template <template <class...> class Block>
struct Normalized
    : ls::Sequential<
          ls::Input<5, 5, 2>, ls::Conv2D<4, 3, ls::same>,
          Block<ls::Residual<ls::Sequential<ls::BatchNormalization<>, ls::ReLU,
                                            ls::Conv2D<4, 3, ls::same>, ls::BatchNormalization<>>,
                             ls::BatchNormalization<>>>,
          ls::ReLU, ls::Flatten, ls::Dense<3>> {};

/// Copies parameters by name. `from` has all of them as weights.
template <class From, class To, class T>
void copy_parameters(const std::vector<T>& from, std::vector<T>& weights, std::vector<T>& state) {
  for (int i = 0; i < To::graph.parameters; ++i) {
    const auto& p = To::graph.parameter[static_cast<std::size_t>(i)];
    const auto& q = From::graph.parameter[static_cast<std::size_t>(i)];
    REQUIRE(p.name == q.name);
    if (q.trainable)
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(q.offset), q.shape.size(),
                  (p.trainable ? weights : state).begin() + static_cast<std::ptrdiff_t>(p.offset));
  }
}

/// The gradients of what trains are those of the network in which all trains.
template <class Plain, class Net, class D>
void gives_the_gradients_of_all() {
  using T = typename D::real;
  toy::Machine<Plain, D> plain(5);
  toy::Machine<Net, D> machine(5);
  std::vector<T> state(Net::graph.state), after(Net::graph.state);
  copy_parameters<Plain, Net>(plain.weights, machine.weights, state);
  machine.engine.weights().upload(machine.weights.data());
  machine.engine.state().upload(state.data());
  for (const std::size_t count : {5u, 2u, 0u}) {
    plain.examples = machine.examples = count;
    CHECK(machine.forward() == plain.forward());
    const std::vector<T> expected = plain.gradients(), found = machine.gradients();
    std::vector<T> of_trained(Net::graph.weights), others(Net::graph.state);
    copy_parameters<Plain, Net>(expected, of_trained, others);
    CHECK(found == of_trained);
  }
  machine.engine.state().download(after.data());
  CHECK(after == state);
}
template <class D>
void all_nets_give_the_gradients_of_all() {
  using A = Nets<Trained>;
  gives_the_gradients_of_all<typename A::Images, typename Nets<Frozen>::Images, D>();
  gives_the_gradients_of_all<typename A::Images, typename Nets<Again>::Images, D>();
  gives_the_gradients_of_all<typename A::Backbone, typename Nets<Frozen>::Backbone, D>();
  gives_the_gradients_of_all<typename A::Shared, typename Nets<Frozen>::Shared, D>();
}

template <class Net>
std::vector<double> some_state() {
  std::vector<double> state = testing::normal_values(Net::graph.state, 9);
  for (double& v : state) v = std::abs(v) * 0.5 + 0.1;
  return state;
}

/// The gradients of the frozen normalization N on D are `expected`.
template <class N, class D>
void has_gradients(const std::vector<double>& expected, double tolerance) {
  using T = typename D::real;
  toy::Machine<N, D> machine(3);
  machine.engine.state().upload(testing::as<T>(some_state<N>()).data());
  const std::vector<T> found = machine.gradients();
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(static_cast<double>(found[i]) - expected[i]) <
          tolerance * (1 + std::abs(expected[i])));
}

}  // namespace frozen_nets

template <lockstep::HostDevice D>
struct lockstep::Kernel<frozen_nets::GainOp, D> : lockstep::KernelTraits {
  static constexpr bool keeps_x = true;
  static void forward(const frozen_nets::GainOp& op, const Io<D>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) io.y[i] = io.x[0][i] * io.w[0];
  }
  static void backward(const frozen_nets::GainOp& op, const Io<D>& io) {
    io.dw[0] = 0;
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) {
      io.dw[0] += io.x[0][i] * io.dy[i];
      if (io.dx[0] != nullptr) io.dx[0][i] = io.w[0] * io.dy[i];
    }
  }
};
