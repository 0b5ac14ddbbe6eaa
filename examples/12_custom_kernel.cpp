// Writes a kernel: LayerNormalization on the Cpu with sums in float, which the compiler vectorizes.
// It replaces the library's, which sums in double. Run it with `./dev custom_kernel`.
//
// Expected output:
//   outputs agree with Reference<double> within 1e-4: yes
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
namespace ls = lockstep;

template <>
struct ls::Kernel<ls::LayerNormalizationOp, ls::Cpu> : ls::KernelTraits {
  using Op = ls::LayerNormalizationOp;
  static constexpr bool keeps_x = true;  // backward reads x
  /// Bytes per example kept for backward: the mean and 1 / sqrt(variance + epsilon) of each row.
  static constexpr std::size_t saved(const Op& op) { return 2 * op.rows() * sizeof(float); }
  static void forward(const Op& op, const ls::Io<ls::Cpu>& io) {
    const std::size_t c = op.channels();
    const float *const gamma = io.w, *const beta = io.w + (op.scale ? c : 0);
    for (std::size_t row = 0; row < io.step.count * op.rows(); ++row) {
      const float* const x = io.x[0] + row * c;
      float *const y = io.y + row * c, *const saved = reinterpret_cast<float*>(io.saved) + 2 * row;
      const float mean = saved[0] = average(c, [&](auto k) { return x[k]; });
      const float variance = average(c, [&](auto k) { return (x[k] - mean) * (x[k] - mean); });
      const float scale = saved[1] = 1 / std::sqrt(variance + op.epsilon);
      for (std::size_t k = 0; k < c; ++k)
        y[k] = (x[k] - mean) * scale * (op.scale ? gamma[k] : 1) + (op.center ? beta[k] : 0);
    }
  }
  /// With n = (x - mean) scale and g = gamma dy: dx = scale (g - mean(g) - n mean(n g)).
  static void backward(const Op& op, const ls::Io<ls::Cpu>& io) {
    const std::size_t c = op.channels();
    float *const d_gamma = io.dw, *const d_beta = io.dw + (op.scale ? c : 0);
    std::fill_n(io.dw, op.weights(), 0.0f);
    for (std::size_t row = 0; row < io.step.count * op.rows(); ++row) {
      const float *const x = io.x[0] + row * c, *const dy = io.dy + row * c;
      const float* const saved = reinterpret_cast<const float*>(io.saved) + 2 * row;
      const auto n = [=](auto k) { return (x[k] - saved[0]) * saved[1]; };
      const auto g = [&](auto k) { return op.scale ? io.w[k] * dy[k] : dy[k]; };
      for (std::size_t k = 0; op.scale && k < c; ++k) d_gamma[k] += dy[k] * n(k);
      for (std::size_t k = 0; op.center && k < c; ++k) d_beta[k] += dy[k];
      if (io.dx[0] == nullptr) continue;  // no layer before this one has weights
      const float a = average(c, g), b = average(c, [&](auto k) { return n(k) * g(k); });
      for (std::size_t k = 0; k < c; ++k) io.dx[0][row * c + k] = saved[1] * (g(k) - a - n(k) * b);
    }
  }
  /// The mean of f(0) ... f(n - 1). Sixteen partial sums fill a vector register.
  static float average(std::size_t n, const auto& f) {
    float sums[16] = {}, sum = 0;
    for (std::size_t k = 0; k < n / 16 * 16; k += 16)
      for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] += f(k + lane);
    for (std::size_t k = n / 16 * 16; k < n; ++k) sum += f(k);
    for (const float s : sums) sum += s;
    return sum / static_cast<float>(n);
  }
};

struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<100, ls::relu>,
                            ls::LayerNormalization<>, ls::Dense<10>> {};

auto trained(auto strategy) {
  const auto data = ls::datasets::digits().train() | ls::take(500) | ls::rescale(1.0f / 255);
  ls::Model model{Net{}, ls::Seed{3}, strategy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  model.fit(data | ls::batch(50), {.progress = ls::ProgressStyle::none});
  return model.predict(data | ls::batch(50));
}

int main() {
  const auto outputs = trained(ls::OneDevice<ls::Cpu>{});
  const auto exact = trained(ls::OneDevice<ls::Reference<double>>{});
  const bool agree = std::ranges::equal(outputs.elements(), exact.elements(),
                                        [](double a, double b) { return std::abs(a - b) < 1e-4; });
  fmt::print("outputs agree with Reference<double> within 1e-4: {}\n", agree ? "yes" : "no");
}
