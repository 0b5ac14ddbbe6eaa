// Writes a device: a context with memory, a type that opens it, and a kernel; the library has the
// other kernels for each device in host memory. Run `./dev custom_device`.
//
// Expected output:
//   agrees with Reference<double> within 1e-4: yes, two replicas: yes
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
namespace ls = lockstep;

// --8<-- [start:device]
struct MyDevice {
  /// One replica's handle to the device. HostMemory allocates, copies and fills.
  struct Context : ls::HostMemory {
    void add(float* y, const float* x, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
    }
    int threads() const { return 1; }
    void synchronize() {}      // nothing is queued: each call finishes before it returns
    int scope() { return 0; }  // a guard, while the replica computes; this device needs none
  };
  using real = float;          // element type
  using fusions = ls::List<>;  // no fused kernels
  static constexpr std::string_view name = "mine", precision = "float32";
  static constexpr bool is_host = true;  // uses the kernels of devices/host
  Context open(std::size_t /*replicas*/, std::size_t /*index*/) const { return {}; }
};
// --8<-- [end:device] --8<-- [start:kernel]
template <>
struct ls::Kernel<ls::DenseOp, MyDevice> : ls::KernelTraits {
  static constexpr bool keeps_x = true;
  using Op = ls::DenseOp;
  /// Calls f with the indices of an output, a weight and an input; the bias has the input 1.
  static void each(const Op& op, const ls::Io<MyDevice>& io, const auto& f) {
    const auto inputs = static_cast<std::size_t>(op.inputs), units = std::size_t(op.units);
    for (std::size_t n = 0; n < io.step.count * op.rows(); ++n)
      for (std::size_t i = 0; i < inputs + (op.bias ? 1 : 0); ++i)
        for (std::size_t u = 0; u < units; ++u)
          f(n * units + u, i * units + u, n * inputs + i, i == inputs);
  }
  static void forward(const Op& op, const ls::Io<MyDevice>& io) {
    std::fill_n(io.y, io.step.count * op.out().size(), 0.0f);
    const float* const in = io.x[0];
    each(op, io, [&](auto y, auto w, auto x, bool b) { io.y[y] += io.w[w] * (b ? 1 : in[x]); });
  }
  static void backward(const Op& op, const ls::Io<MyDevice>& io) {
    std::fill_n(io.dw, op.weights(), 0.0f);
    if (io.dx[0]) std::fill_n(io.dx[0], io.step.count * op.in().size(), 0.0f);  // null: not needed
    each(op, io, [&](auto y, auto w, auto x, bool b) {
      io.dw[w] += io.dy[y] * (b ? 1 : io.x[0][x]);
      if (io.dx[0] && !b) io.dx[0][x] += io.dy[y] * io.w[w];
    });
  }
};
// --8<-- [end:kernel]
struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<10>, ls::GELU> {};

auto trained(auto strategy) {
  ls::Model model{Net{}, ls::Seed{3}, strategy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  const auto x = ls::datasets::digits().train() | ls::take(500) | ls::rescale(1.0f / 255);
  model.fit(x | ls::batch(50), {.progress = ls::ProgressStyle::none});
  return model.weights("dense/kernel");
}

int main() {
  const auto expected = trained(ls::OneDevice<ls::Reference<double>>{});
  const auto agrees = [&](const auto& weights) {
    const auto close = [](double a, double b) { return std::abs(a - b) < 1e-4; };
    return std::ranges::equal(weights, expected, close) ? "yes" : "no";
  };
  fmt::print("agrees with Reference<double> within 1e-4: {}, two replicas: {}\n",
             agrees(trained(ls::OneDevice<MyDevice>{})),
             agrees(trained(ls::Mirrored<MyDevice>{.replicas = 2})));
}
