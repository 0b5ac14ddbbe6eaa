/// \file
/// Gradient checking: compares the gradients of layers and losses with central differences of the
/// loss, for tests of custom layers. Include lockstep/reference.hpp for the kernels. Invariant: all
/// arithmetic is in double on the reference device, and every evaluation uses the same random
/// draws.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/tensor_view.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/checks/model_checks.hpp"
#include "lockstep/training/checks/model_parts.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep {

/// Options of `check_gradients`.
struct GradientCheckOptions {
  double step = 1e-5;          ///< by which each weight is moved up and down
  std::size_t elements = 200;  ///< maximum checked per parameter, evenly spread
  std::uint64_t seed = 1;      ///< of the weights and of random layers
};

/// The gradient with the largest error.
struct GradientCheck {
  double error = 0;         ///< |gradient - slope| / max(1, |slope|); infinite for NaN
  std::string parameter{};  ///< "dense/kernel"; "input/x": the gradient of the layer's input
  std::size_t element = 0;  ///< index within the parameter
  double gradient = 0;      ///< computed by backward
  double slope = 0;         ///< (loss(w + step) - loss(w - step)) / (2 step)
};

namespace detail {

/// y = x + w. Inserted before a layer, its weight gradient is the gradient of the layer's input,
/// summed over the examples.
struct InputOffsetOp {
  Shape in;
  constexpr Shape out() const { return in; }
  constexpr std::size_t weights() const { return in.size(); }
  bool operator==(const InputOffsetOp&) const = default;
};
struct InputOffset {
  static constexpr std::string_view name = "input";
  static constexpr bool accepts(Shape) { return true; }
  static constexpr InputOffsetOp op(Shape in) { return {in}; }
  static constexpr std::array<Parameter, 1> parameters(Shape in) {
    return {Parameter{"x", in, {}, &initialize<zeros>, {}, true, true}};
  }
};

/// A network and its loss as a function f(weights), for fixed examples.
template <class Net, class L>
class WeightFunction {
 public:
  using D = Reference<double>;
  using Target = target_as<typename L::target_type, double>;

  WeightFunction(std::span<const double> x, std::span<const Target> y, const L& loss,
                 std::uint64_t seed)
      : x_(x),
        y_(y),
        loss_(loss),
        seed_(seed),
        count_(TensorView<const double>(x, Net::input_shape).count()) {
    const std::size_t wanted = count_ * L::target_shape(Net::output_shape).size();
    if (count_ == 0 || y.size() != wanted)
      throw UsageError("check_gradients: {} examples need {} target values, not {}", count_, wanted,
                       y.size());
    engine_.prepare(count_);
    initialize_parameters<Net, double>(seed, weights, state_);
    Philox random(mix(seed, hash_name("check_gradients")));
    for (double& w : weights) w += 0.3 * random.normal();
  }

  /// Mean loss over the examples at `weights`.
  double loss() { return run(nullptr); }
  /// Gradients at `weights`, by backward.
  std::vector<double> gradients() {
    // NaN marks elements that backward does not write.
    const std::vector<double> unset(weights.size(), std::numeric_limits<double>::quiet_NaN());
    engine_.gradients().upload(unset.data());
    run(engine_.output_gradient());
    engine_.backward(x_.data(), step(), [](const auto&) {});
    std::vector<double> found(weights.size());
    engine_.gradients().download(found.data());
    return found;
  }

  /// The argument of f; change it between calls.
  std::vector<double> weights = std::vector<double>(Net::graph.weights);

 private:
  /// A training step with the same number each time, so that random layers repeat their draws.
  StepContext step() { return {whole_batch(count_), true, seed_, 0, CollectiveRef(group_)}; }
  /// Forward and loss from the initial state; writes the loss' gradient unless null.
  double run(double* gradient) {
    engine_.weights().upload(weights.data());
    engine_.state().upload(state_.data());
    double sum = 0, examples = static_cast<double>(count_);
    auto op = loss_.op(Net::output_shape);
    if constexpr (requires { typename L::Step; }) {
      const auto counts = loss_.counted(y_.data(), static_cast<const double*>(nullptr), count_,
                                        [](std::size_t, std::size_t) { return true; });
      op.scale = loss_.step(&counts, count_, true).scale;
    }
    if constexpr (IgnoresClass<std::remove_const_t<decltype(op)>>)
      examples = static_cast<double>(count_labels(y_.data(), y_.size(), op.ignored)) /
                 static_cast<double>(op.rows());
    const double share = examples > 0 ? 1 / examples : 0;
    const double* const outputs = engine_.forward(x_.data(), step());
    using Io = LossIo<D, typename L::target_type>;
    if constexpr (Net::graph.ends_in_blocks()) {
      constexpr Shape row = shape(Net::output_shape.channels());
      constexpr std::size_t rows = Net::output_shape.size() / row.size();
      const auto of_row = loss_.op(row);
      engine_.each_block(
          x_.data(), step(), gradient != nullptr,
          [&](const Slice& block, const double* p, double* g) {
            const auto* const y = y_.data() + block.first * L::target_shape(row).size();
            run_kernel<D>(of_row, Io{context_, block.count, p, y, g, share / rows, &sum});
          });
      sum /= rows;
    } else {
      run_kernel<D>(op, Io{context_, count_, outputs, y_.data(), gradient, share, &sum});
    }
    return sum * share;
  }

  std::span<const double> x_;
  std::span<const Target> y_;
  L loss_;
  std::uint64_t seed_;
  std::size_t count_;
  SelfGroup group_;
  typename D::Context context_ = D{}.open(1, 0);
  Engine<Net, D> engine_{context_};
  std::vector<double> state_ = std::vector<double>(Net::graph.state);
};

/// Layer L on input `In`, with an InputOffset before the layer.
template <class In, class L>
struct CheckedLayer : Sequential<In, InputOffset, L> {};

}  // namespace detail

/// forward: y = x + w; backward: dw = sum of dy over the examples, dx = dy.
template <HostDevice D>
struct Kernel<detail::InputOffsetOp, D> : KernelTraits {
  static void forward(const detail::InputOffsetOp& op, const Io<D>& io) {
    const std::size_t size = op.in.size();
    for (std::size_t i = 0; i < io.step.count * size; ++i) io.y[i] = io.x[0][i] + io.w[i % size];
  }
  static void backward(const detail::InputOffsetOp& op, const Io<D>& io) {
    const std::size_t size = op.in.size();
    std::fill_n(io.dw, size, 0);
    for (std::size_t i = 0; i < io.step.count * size; ++i) io.dw[i % size] += io.dy[i];
    if (io.dx[0] != nullptr) std::copy_n(io.dy, io.step.count * size, io.dx[0]);
  }
};

/// Compares the gradients of a network's parameters with central differences of its loss,
///
///     slope = (loss(w + step) - loss(w - step)) / (2 step)
///
/// in training mode, without penalties; x (examples, input), y (examples, target). Random layers
/// use the same draws each time. A kink, such as ReLU's at 0, gives a large error if a value lies
/// within `step` of it: choose another seed. \throws UsageError if sizes do not match or the model
/// has no trainable parameter.
/// \code
///   struct Net : ls::Sequential<ls::Input<4, 3>, MyLayer, ls::Flatten, ls::Dense<2>> {};
///   assert(ls::check_gradients(Net{}, x, y).error < 1e-8);   // x (6, 4, 3), y (6, 2)
/// \endcode
template <Network Net, class L = MeanSquaredError>
GradientCheck check_gradients(
    Net, std::span<const double> x,
    std::type_identity_t<
        std::span<const target_as<typename detail::ModelParts<Net, L>::Loss::target_type, double>>>
        y,
    const L& loss = {}, const GradientCheckOptions& options = {}) {
  using Strategy = OneDevice<Reference<double>>;
  using Verdict = detail::ModelVerdict<Net, Strategy, L, SGD>;
  static_assert(sizeof(Verdict) > 0);
  GradientCheck worst;
  if constexpr (std::same_as<Verdict, detail::Sound>) {
    if (Net::graph.weights == 0)
      throw UsageError(
          "check_gradients: the model has no trainable parameter; check a single layer with "
          "ls::check_gradients<ls::Input<...>>(Layer{})");
    using Made = detail::ModelParts<Net, L>;
    detail::WeightFunction<Net, typename Made::Loss> f(x, y, Made::bound(loss), options.seed);
    const std::vector<double> gradients = f.gradients();
    for (const ParameterInfo& info : detail::parameters_of<Net>()) {
      if (!info.trainable) continue;
      const std::size_t most = std::max<std::size_t>(options.elements, 1);
      for (std::size_t i = 0; i < info.size(); i += (info.size() + most - 1) / most) {
        double& w = f.weights[info.offset + i];
        const double middle = w, gradient = gradients[info.offset + i];
        w = middle + options.step;
        const double above = f.loss();
        w = middle - options.step;
        const double slope = (above - f.loss()) / (2 * options.step);
        w = middle;
        double error = std::abs(gradient - slope) / std::max(1.0, std::abs(slope));
        if (!detail::is_finite(error)) error = std::numeric_limits<double>::infinity();
        if (error > worst.error || worst.parameter.empty())
          worst = {error, info.name, i, gradient, slope};
      }
    }
  }
  return worst;
}

/// The same for a single layer or block on random examples, including the gradient of its input
/// ("input/x"). Not for layers whose input is an index, such as Embedding.
/// \code
///   const ls::GradientCheck check = ls::check_gradients<ls::Input<4, 3>>(MyLayer{});
///   if (check.error > 1e-8) fmt::print("{}: {}\n", check.parameter, check.error);
/// \endcode
template <class In, class L>
  requires Layer<L> || Composite<L>
GradientCheck check_gradients(L, std::size_t examples = 4,
                              const GradientCheckOptions& options = {}) {
  using Net = detail::CheckedLayer<In, L>;
  GradientCheck worst;
  if constexpr (Net::valid) {
    Philox random(mix(options.seed, hash_name("check_gradients of a layer")));
    std::vector<double> x(examples * Net::input_shape.size()),
        y(examples * Net::output_shape.size());
    for (double& v : x) v = random.normal();
    for (double& v : y) v = random.normal();
    worst = check_gradients(Net{}, x, y, MeanSquaredError{}, options);
  }
  return worst;
}

}  // namespace lockstep
