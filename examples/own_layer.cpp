// A custom layer and a custom activation, with gradient checks, trained on the Cpu;
// docs/adding-a-layer.md explains each part.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/training/checks/check_gradients.hpp>
namespace ls = lockstep;

namespace mine {

// --8<-- [start:activation]
/// Mish (Misra, 2019): y = x tanh(log(1 + e^x)).
struct MishOp {
  static constexpr std::string_view members = "in";
  static constexpr bool from_y = false;  // derivative() expects x, not y
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x * std::tanh(std::log1p(std::exp(x)));
  }
  template <class T>
  T derivative(T x) const {
    const T t = std::tanh(std::log1p(std::exp(x)));
    return t + x * (1 - t * t) / (1 + std::exp(-x));
  }
  bool operator==(const MishOp&) const = default;
};

struct Mish : ls::ParameterlessLayer<MishOp> {
  static constexpr std::string_view name = "mish";
};

static_assert(ls::Layer<Mish> && ls::Pointwise<MishOp>);
// --8<-- [end:activation]

// --8<-- [start:op]
/// y = x if x > 0, else alpha x, with one learnt alpha per channel (He et al., 2015).
struct PReLUOp {
  static constexpr std::string_view members = "in";
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t channels() const { return static_cast<std::size_t>(in.channels()); }
  constexpr double flops() const { return static_cast<double>(in.size()); }
  /// Number of elements at io.w: alpha.
  constexpr std::size_t weights() const { return channels(); }
  bool operator==(const PReLUOp&) const = default;
};
// --8<-- [end:op]

// --8<-- [start:layer]
/// Keras' PReLU with all axes shared except the last. Parameter `alpha` (channels), initially 0.
struct PReLU {
  static constexpr std::string_view name = "p_re_lu";
  static constexpr bool accepts(ls::Shape in) { return in.rank >= 1; }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape in) {
    return {ls::Parameter{.name = "alpha",
                          .shape = ls::shape(in.channels()),
                          .fans = {},
                          .initializer = &zero,
                          .penalty = {}}};
  }
  static constexpr PReLUOp op(ls::Shape in) { return {in}; }

 private:
  static void zero(ls::Philox&, const ls::Shape&, ls::Fans, std::span<double> values) {
    std::fill(values.begin(), values.end(), 0.0);
  }
};

static_assert(ls::Layer<PReLU>);
// --8<-- [end:layer]

}  // namespace mine

// --8<-- [start:kernel]
template <ls::HostDevice D>
struct ls::Kernel<mine::PReLUOp, D> : ls::KernelTraits {
  using T = typename D::real;
  static constexpr bool keeps_x = true;  // backward reads x

  static void forward(const mine::PReLUOp& op, const ls::Io<D>& io) {
    const std::size_t channels = op.channels(), rows = io.step.count * op.in.size() / channels;
    const T* const alpha = io.w;  // (channels)
    for (std::size_t row = 0; row < rows; ++row) {
      const T* const x = io.x + row * channels;  // (channels)
      T* const y = io.y + row * channels;        // (channels)
      for (std::size_t k = 0; k < channels; ++k) y[k] = x[k] > 0 ? x[k] : alpha[k] * x[k];
    }
  }

  static void backward(const mine::PReLUOp& op, const ls::Io<D>& io) {
    const std::size_t channels = op.channels(), rows = io.step.count * op.in.size() / channels;
    const T* const alpha = io.w;  // (channels)
    T* const d_alpha = io.dw;     // (channels)
    std::fill_n(d_alpha, channels, T(0));
    for (std::size_t row = 0; row < rows; ++row) {
      const T* const x = io.x + row * channels;    // (channels)
      const T* const dy = io.dy + row * channels;  // (channels)
      for (std::size_t k = 0; k < channels; ++k)
        if (x[k] <= 0) d_alpha[k] += dy[k] * x[k];
      if (io.dx == nullptr) continue;        // not needed: no weights before this layer
      T* const dx = io.dx + row * channels;  // (channels)
      for (std::size_t k = 0; k < channels; ++k) dx[k] = x[k] > 0 ? dy[k] : alpha[k] * dy[k];
    }
  }
};

static_assert(ls::HasKernel<mine::PReLUOp, ls::Cpu> &&
              ls::HasKernel<mine::PReLUOp, ls::Reference<double>>);
// --8<-- [end:kernel]

namespace {

// --8<-- [start:check]
struct Checked : ls::Sequential<ls::Input<4, 3>, mine::PReLU, ls::Flatten, ls::Dense<5>, mine::Mish,
                                mine::PReLU, ls::Dense<2>> {};

/// Checks both layers alone, and within a model on given data.
bool gradients_agree() {
  ls::Philox random(7);
  std::vector<double> x(6 * 12), y(6 * 2);
  for (double& v : x) v = random.normal();
  for (double& v : y) v = random.normal();
  return ls::check_gradients<ls::Input<4, 3>>(mine::PReLU{}).error < 1e-8 &&
         ls::check_gradients<ls::Input<4, 3>>(mine::Mish{}).error < 1e-8 &&
         ls::check_gradients(Checked{}, x, y).error < 1e-8;
}
// --8<-- [end:check]

// --8<-- [start:train]
struct Slope : ls::Sequential<ls::Input<1>, mine::PReLU> {};

/// Learns y = x above zero and 0.3 x below it.
float learnt_slope() {
  std::vector<float> x, y;
  for (int i = -50; i < 50; ++i) {
    x.push_back(static_cast<float>(i) / 25);
    y.push_back(x.back() > 0 ? x.back() : 0.3f * x.back());
  }
  const auto data =
      ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::shuffle(100) | ls::batch(10);
  ls::Model model{Slope{}, ls::Mirrored<ls::Cpu>{.replicas = 2}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.1}};
  model.fit(data, {.epochs = 20, .progress = ls::ProgressStyle::none});
  return model.weights("p_re_lu/alpha").front();
}
// --8<-- [end:train]

}  // namespace

int main() {
  fmt::print("gradients agree: {}\n", gradients_agree() ? "yes" : "no");
  fmt::print("learnt slope: {:.4f}\n", static_cast<double>(learnt_slope()));
}
