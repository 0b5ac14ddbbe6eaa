/// \file
/// Bytes and FLOPs of the kernels of a training step on a GPU, derived from the plan.
///
/// A part is one pass of one op. Each of its tensors is counted once, as read or written; data that
/// an earlier part left in a cache are counted too. FLOPs are those of the model's graph: products
/// only. `launches` are the kernels, copies and memsets that lockstep requests; a library call
/// counts as one.
#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/cuda.hpp>
#include <lockstep/lockstep.hpp>

namespace gpu_work {

namespace ls = lockstep;

inline std::string shown(ls::KernelSize k) { return fmt::format("{}x{}", k.height, k.width); }

/// Equal parts of a step.
struct Part {
  std::string op, pass;
  double bytes = 0, flops = 0;  ///< of one of them
  int launches = 1;
  bool in_float = false;  ///< its products run in float32, whatever the precision
  int times = 1;
};

inline std::string shown(ls::Shape s) {
  std::string text;
  for (int i = 0; i < s.rank; ++i) text += fmt::format("{}{}", i > 0 ? "x" : "", s[i]);
  return text;
}

/// The parts of a step on device D.
template <class D>
class Step {
 public:
  explicit Step(std::size_t batch) : batch_(static_cast<double>(batch)) {}

  /// Adds a part: `values` in the activation type per example, and `bytes` per step.
  void add(std::string op, std::string_view pass, double values, double bytes, int launches = 1,
           double flops = 0, bool in_float = false) {
    const Part p{
        std::move(op),  std::string(pass), batch_ * values * static_cast<double>(element) + bytes,
        batch_ * flops, launches,          in_float};
    for (Part& q : parts_)
      if (q.op == p.op && q.pass == p.pass && q.bytes == p.bytes && q.launches == p.launches) {
        ++q.times;
        return;
      }
    parts_.push_back(p);
  }

  void op(const ls::Conv2DOp& c, const ls::detail::PlacedStep& s) { convolution(c, s, false); }
  void op(const ls::ConvReLUOp& c, const ls::detail::PlacedStep& s) {
    convolution(c.conv, s, true);
  }
  void op(const ls::ConvReLUPoolOp& p, const ls::detail::PlacedStep&) {
    const ls::Conv2DOp& c = p.conv;
    const double x = size(c.in), y = size(p.out()),
                 weights =
                     4.0 * static_cast<double>(c.kernel_size()) + (c.bias ? 4.0 * c.filters : 0),
                 winners =
                     batch_ * static_cast<double>(ls::Kernel<ls::ConvReLUPoolOp, D>::saved(p));
    const std::string name = "Conv2D, ReLU, MaxPooling2D " + shown(c.in) + " to " + shown(p.out()) +
                             ", " + shown(c.kernel);
    add(name, "forward", x + y, weights + winners, 1, c.flops(), true);
    // Only the winner of each window counts.
    const double winning = c.flops() / size(c.out()) * y;
    add(name, "gradients of the kernel and the bias", x + y, weights + winners, 1, winning, true);
    spared_ += batch_ * (c.flops() - winning);
  }
  void op(const ls::DenseOp& d, const ls::detail::PlacedStep& s) { dense(d, s, false); }
  void op(const ls::DenseReLUOp& d, const ls::detail::PlacedStep& s) { dense(d.dense, s, true); }
  void op(const ls::BatchNormalizationOp& n, const ls::detail::PlacedStep& s) {
    normalization("BatchNormalization", n, s, false);
  }
  void op(const ls::BatchNormalizationReLUOp& n, const ls::detail::PlacedStep& s) {
    normalization("BatchNormalization, ReLU", n.normalization, s, false);
  }
  void op(const ls::BatchNormalizationAddReLUOp& n, const ls::detail::PlacedStep& s) {
    normalization("BatchNormalization, Add, ReLU", n.normalization, s, true);
  }
  void op(const ls::ReLUOp& r, const ls::detail::PlacedStep& s) {
    add("ReLU " + shown(r.out()), "forward", 2 * size(r.out()), 0);
    if (s.wants_dx) add("ReLU " + shown(r.out()), "backward", 3 * size(r.out()), 0);
  }
  void op(const ls::AddOp& a, const ls::detail::PlacedStep&) {
    add("Add " + shown(a.out()), "forward", 3 * size(a.out()), 0);
    add("Add " + shown(a.out()), "backward", 3 * size(a.out()), 0, 2);
  }
  void op(const ls::MaxPooling2DOp& p, const ls::detail::PlacedStep& s) {
    const double x = size(p.window.in), y = size(p.out());
    const double winners =
        batch_ * static_cast<double>(ls::Kernel<ls::MaxPooling2DOp, D>::saved(p));
    add("MaxPooling2D " + shown(p.window.in), "forward", x + y, winners);
    if (s.wants_dx) add("MaxPooling2D " + shown(p.window.in), "backward", x + y, winners);
  }
  void op(const ls::GlobalAveragePooling2DOp& p, const ls::detail::PlacedStep& s) {
    add("GlobalAveragePooling2D " + shown(p.in), "forward", size(p.in) + size(p.out()), 0);
    if (s.wants_dx)
      add("GlobalAveragePooling2D " + shown(p.in), "backward", size(p.in) + size(p.out()), 0);
  }

  /// All of a model's plan, plus the rest of training: the batch, the loss, a metric, the value of
  /// penalties, SGD.
  template <class Net>
  void model(bool momentum) {
    constexpr auto& plan = ls::detail::PlanOf<Net, D>::plan;
    for (ls::detail::StepId i{}; i < plan.end(); ++i)
      step(plan, plan.step[i], typename ls::detail::PlanOf<Net, D>::ops{});
    const double x = size(Net::input_shape), y = size(Net::output_shape);
    if (half) {
      add("to bfloat16", "the batch", x, batch_ * 4 * x);
      add("to float32", "the output", y, batch_ * 4 * y);
      add("to bfloat16", "the output's gradient", y, batch_ * 4 * y);
    }
    add("SparseCategoricalCrossentropy, Accuracy", "loss and metric", 0, batch_ * (8 * y + 4));

    constexpr auto penalties = ls::detail::penalty_segments<Net>();
    double updated = 0, penalised = 0;
    for (const auto& segment : penalties) {
      const double weights = static_cast<double>(segment.end - segment.begin);
      updated += weights * (momentum ? 20 : 12);
      if (!segment.penalty) continue;
      penalised += weights * 4;
    }
    const bool has_penalty = penalised > 0;
    if constexpr (ls::ScalesLoss<D>)
      add("gradients", "divided by the loss' scale", 0,
          8.0 * static_cast<double>(Net::graph.weights));
    add("SGD", "update", 0, updated + penalised);
    if (has_penalty) add("L2", "value of the penalties", 0, penalised);
    // Resident bytes become a batch; the sums go to the host and are cleared.
    add("rows of the data", "the batch", 0, batch_ * (5 * x + 12));
    add("sums to the host", "", 0, 0);
    if (plan.updates_state) add("copies", "of the state, for a step that fails", 0, 0);
  }

  const std::vector<Part>& parts() const { return parts_; }
  /// FLOPs of the model's graph that no part computes: products with known zeros.
  double spared() const { return spared_; }

 private:
  static constexpr std::size_t element = sizeof(ls::ActivationOf<D>);
  static constexpr bool half = sizeof(ls::ActivationOf<D>) == 2;
  using Precision = std::conditional_t<half, ls::MixedBFloat16, ls::Float32>;

  static double size(ls::Shape s) { return static_cast<double>(s.size()); }

  void convolution(const ls::Conv2DOp& c, const ls::detail::PlacedStep& s, bool relu) {
    const double x = size(c.in), y = size(c.out()), w = 4.0 * static_cast<double>(c.kernel_size()),
                 b = c.bias ? 4.0 * c.filters : 0;
    const std::string name = std::string(relu ? "Conv2D, ReLU " : "Conv2D ") + shown(c.in) +
                             " to " + shown(c.out()) + ", " + shown(c.kernel);
    // In addition to the library's call, weights are packed into its order, once for forward and
    // backward, and their gradient is unpacked.
    add(name, "forward", x + y, w + b, 2, c.flops());
    const int sums =
        ls::detail::cuda::ColumnCut(static_cast<std::int64_t>(batch_ * y / c.filters), c.filters)
            .launches;
    if (relu)
      add(name, c.bias ? "ReLU backward, gradient of the bias" : "ReLU backward", 3 * y, b,
          c.bias ? sums : 1);
    else if (c.bias)
      add(name, "gradient of the bias", y, b, sums);
    add(name, "gradient of the kernel", x + y, w, 2, c.flops());
    if (s.wants_dx) add(name, "gradient of the input", x + y, w, 1, c.flops());
  }
  void dense(const ls::DenseOp& d, const ls::detail::PlacedStep& s, bool relu) {
    const auto rows = static_cast<double>(d.rows());
    const double x = d.inputs * rows, y = d.units * rows,
                 w = 4.0 * static_cast<double>(d.kernel_size()), b = d.bias ? 4.0 * d.units : 0;
    const std::string name =
        fmt::format("{}{} to {}", relu ? "Dense, ReLU " : "Dense ", d.inputs, d.units);
    // cuBLASLt needs weights in the activation type, converted together if they adjoin there, for
    // forward and backward; and aligned.
    const auto copied = [](std::size_t at) { return at * 4 % 16 != 0 ? 1 : 0; };
    const std::size_t bias_at = s.w + d.kernel_size();
    const int both = copied(s.w) + (d.bias ? copied(bias_at) : 0);
    const int packs = d.bias && d.kernel_size() * element % 16 != 0 ? 2 : 1;
    add(name, "forward", x + y, w + b, 1 + (half ? packs : both), d.flops());
    if (ls::detail::cuda::DenseBackward<Precision>::fits(
            d, static_cast<std::size_t>(batch_) * d.rows())) {
      const bool data = s.wants_dx;
      add(name, data ? "all gradients" : "gradients of the weights",
          (data ? 2 : 1) * x + (relu ? 2 : 1) * y, (data ? 2 : 1) * w + b, 1,
          (data ? 2 : 1) * d.flops(), true);
      return;
    }
    if (relu) add(name, "ReLU backward", 3 * y, 0);
    add(name, "gradient of the weights", x + y, w + b, 1 + both, d.flops());
    if (s.wants_dx)
      add(name, "gradient of the input", x + y, w, 1 + (half ? 0 : copied(s.w)), d.flops());
  }

  void normalization(const std::string& what, const ls::BatchNormalizationOp& n,
                     const ls::detail::PlacedStep& s, bool adds) {
    const std::string name = what + " " + shown(n.out());
    const double x = size(n.out());
    const bool second = adds && s.wants_dx2;  // the masked gradient is written for the other branch
    add(name, "statistics", x, 0);
    add(name, "forward", (adds ? 3 : 2) * x, 0);
    add(name, "sums of backward", (adds ? 3 : 2) * x + (second ? x : 0), 0);
    if (s.wants_dx) add(name, "gradient of the input", (adds && !second ? 4 : 3) * x, 0);
  }

  template <class Plan, class... Ops>
  void step(const Plan& plan, const ls::detail::PlacedStep& s, ls::List<Ops...>) {
    int type = 0;
    const auto ask = [&]<class Op>() {
      if (type++ != s.type) return;
      if constexpr (!std::is_same_v<Op, ls::ViewOp>) op(plan.pool.template of<Op>().op[s.op], s);
    };
    (ask.template operator()<Ops>(), ...);
    const auto sum = [&](bool adds, std::size_t values) {
      if (adds)
        add(fmt::format("sum of two gradients, {}", values), "backward",
            3 * static_cast<double>(values), 0);
    };
    sum(s.adds_dx, s.x_size);
    sum(s.adds_dx2, s.x2_size);
  }

  double batch_, spared_ = 0;
  std::vector<Part> parts_;
};

}  // namespace gpu_work
