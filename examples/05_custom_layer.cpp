// Writes a layer with parameters: a PReLU with one slope below zero per channel. Checks its gradient
// against finite differences, and learns a slope on two replicas. Run it with `./dev custom_layer`.
//
// Expected output:
//   gradients agree: yes
//   learnt slope: 0.300
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/training/checks/check_gradients.hpp>
namespace ls = lockstep;

// --8<-- [start:op]
/// y = x if x > 0, else alpha x, with one learnt alpha per channel (He et al., 2015).
struct SlopeReLUOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t weights() const { return static_cast<std::size_t>(in.channels()); }
  bool operator==(const SlopeReLUOp&) const = default;
};
// --8<-- [end:op] --8<-- [start:layer]
/// As ls::PReLU with all axes shared except the last. Parameter `alpha` (channels), initially 0.
struct SlopeReLU {
  static constexpr std::string_view name = "slope_re_lu";
  static constexpr bool accepts(ls::Shape in) { return in.rank >= 1; }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape in) {
    return {ls::Parameter{"alpha", ls::shape(in.channels()), {}, &zeros, {}, true, true}};
  }
  static constexpr SlopeReLUOp op(ls::Shape in) { return {in}; }
  static void zeros(ls::Philox&, const ls::Shape&, ls::Fans, std::span<double> values) {
    std::fill(values.begin(), values.end(), 0.0);
  }
};
// --8<-- [end:layer] --8<-- [start:kernel]
template <ls::HostDevice D>
struct ls::Kernel<SlopeReLUOp, D> : ls::KernelTraits {
  static constexpr bool keeps_x = true;  // backward reads x
  static void forward(const SlopeReLUOp& op, const ls::Io<D>& io) {
    for (std::size_t i = 0, c = op.weights(); i < io.step.count * op.in.size(); ++i)
      io.y[i] = io.x[0][i] > 0 ? io.x[0][i] : io.w[i % c] * io.x[0][i];
  }
  static void backward(const SlopeReLUOp& op, const ls::Io<D>& io) {
    std::fill_n(io.dw, op.weights(), typename D::real(0));
    for (std::size_t i = 0, c = op.weights(); i < io.step.count * op.in.size(); ++i) {
      const bool above = io.x[0][i] > 0;
      if (!above) io.dw[i % c] += io.dy[i] * io.x[0][i];
      // dx is null if no layer before this one has weights.
      if (io.dx[0] != nullptr) io.dx[0][i] = above ? io.dy[i] : io.w[i % c] * io.dy[i];
    }
  }
};
// --8<-- [end:kernel]

struct Slope : ls::Sequential<ls::Input<1>, SlopeReLU> {};

int main() {
  const double error = ls::check_gradients<ls::Input<4, 3>>(SlopeReLU{}).error;
  fmt::print("gradients agree: {}\n", error < 1e-8 ? "yes" : "no");

  std::vector<float> x, y;
  for (int i = -50; i < 50; ++i) {
    x.push_back(static_cast<float>(i) / 25);
    y.push_back(x.back() > 0 ? x.back() : 0.3f * x.back());
  }
  const auto data = ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::batch(10);
  ls::Model model{Slope{}, ls::Mirrored<ls::Cpu>{.replicas = 2}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.1}};
  model.fit(data, {.epochs = 20, .progress = ls::ProgressStyle::none});
  fmt::print("learnt slope: {:.3f}\n", model.weights("slope_re_lu/alpha").front());
}
