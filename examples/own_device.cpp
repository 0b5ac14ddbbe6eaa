// A custom device over host memory; docs/adding-a-device.md explains each part.
#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
namespace ls = lockstep;

namespace mine {

// --8<-- [start:context]
/// One replica's handle to the device: host memory, with a count of the bytes allocated.
class Context : public ls::HostMemory {
 public:
  std::byte* allocate(std::size_t bytes) {
    *now_ += bytes;
    return HostMemory::allocate(bytes);
  }
  void release(std::byte* p, std::size_t bytes) {
    *now_ -= bytes;
    HostMemory::release(p, bytes);
  }
  explicit Context(std::shared_ptr<std::atomic<std::size_t>> now) : now_(std::move(now)) {}

  /// y += x. Called to sum the gradients of a value that two layers read.
  void add(float* y, const float* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
  }
  int threads() const { return 1; }
  void synchronize() {}  // nothing is queued: each call finishes before it returns
  struct Scope {
    ~Scope() {}
  };
  Scope scope() { return {}; }

 private:
  std::shared_ptr<std::atomic<std::size_t>> now_;
};
// --8<-- [end:context]

// --8<-- [start:device]
/// A device that counts the bytes of all its contexts.
struct Counting {
  using real = float;             // element type
  using Context = mine::Context;  // returned by `open`
  using fusions = ls::List<>;     // no fused kernels
  static constexpr std::string_view name = "counting", precision = "float32";
  static constexpr bool is_host = true;  // uses the kernels of devices/host

  std::shared_ptr<std::atomic<std::size_t>> bytes = std::make_shared<std::atomic<std::size_t>>();
  bool operator==(const Counting&) const = default;

  Context open(std::size_t /*replicas*/, std::size_t /*index*/) const { return Context(bytes); }
};

static_assert(ls::Device<Counting> && ls::HostDevice<Counting>);
// --8<-- [end:device]

}  // namespace mine

// --8<-- [start:kernels]
template <>
struct ls::Kernel<ls::DenseOp, mine::Counting> : ls::KernelTraits {
  static constexpr bool keeps_x = true;

  static void forward(const ls::DenseOp& op, const ls::Io<mine::Counting>& io) {
    const auto inputs = static_cast<std::size_t>(op.inputs),
               units = static_cast<std::size_t>(op.units), rows = io.step.count * op.rows();
    const float* const kernel = io.w;                   // (inputs, units)
    const float* const bias = io.w + op.kernel_size();  // (units)
    for (std::size_t n = 0; n < rows; ++n) {
      float* const y = io.y + n * units;  // (units)
      for (std::size_t u = 0; u < units; ++u) y[u] = op.bias ? bias[u] : 0;
      for (std::size_t i = 0; i < inputs; ++i)
        for (std::size_t u = 0; u < units; ++u)
          y[u] += io.x[n * inputs + i] * kernel[i * units + u];
    }
  }

  static void backward(const ls::DenseOp& op, const ls::Io<mine::Counting>& io) {
    const auto inputs = static_cast<std::size_t>(op.inputs),
               units = static_cast<std::size_t>(op.units), rows = io.step.count * op.rows();
    const float* const kernel = io.w;                // (inputs, units)
    float* const d_bias = io.dw + op.kernel_size();  // (units)
    std::fill_n(io.dw, op.weights(), 0.0f);
    for (std::size_t n = 0; n < rows; ++n) {
      const float* const x = io.x + n * inputs;   // (inputs)
      const float* const dy = io.dy + n * units;  // (units)
      for (std::size_t u = 0; op.bias && u < units; ++u) d_bias[u] += dy[u];
      for (std::size_t i = 0; i < inputs; ++i) {
        float* const d_kernel = io.dw + i * units;  // (units)
        float dx = 0;
        for (std::size_t u = 0; u < units; ++u) {
          d_kernel[u] += x[i] * dy[u];
          dx += kernel[i * units + u] * dy[u];
        }
        if (io.dx != nullptr) io.dx[n * inputs + i] = dx;
      }
    }
  }
};
// --8<-- [end:kernels]

namespace {

// --8<-- [start:train]
struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<16>, ls::GELU,
                            ls::Dropout<ls::rate(0.2f)>, ls::Dense<10>> {};

template <class Strategy>
auto model_on(Strategy strategy) {
  return ls::Model{Net{},
                   ls::Seed{3},
                   std::move(strategy),
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::Adam{.learning_rate = 0.003f},
                   ls::Accuracy{}};
}

/// Trains one epoch. \returns all weights.
std::vector<double> train(auto& model) {
  const auto data = ls::datasets::digits().train() | ls::take(1'000) | ls::rescale(1.0f / 255) |
                    ls::shuffle(1'000) | ls::batch(50);
  model.fit(data, {.epochs = 1, .progress = ls::ProgressStyle::none});
  std::vector<double> all;
  for (const ls::ParameterInfo& p : model.parameters())
    for (const auto w : model.weights(p.name)) all.push_back(static_cast<double>(w));
  return all;
}
// --8<-- [end:train]

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

int main() {
  const mine::Counting device;
  auto oracle = model_on(ls::OneDevice<ls::Reference<double>>{});
  const std::vector<double> expected = train(oracle);
  {
    auto one = model_on(ls::OneDevice<mine::Counting>{.on = device});
    fmt::print("one device agrees: {}\n",
               largest_difference(train(one), expected) < 1e-4 ? "yes" : "no");
    fmt::print("holds at least its weights, gradients and two slots: {}\n",
               *device.bytes >= 4 * sizeof(float) * expected.size() ? "yes" : "no");
  }
  fmt::print("bytes left: {}\n", device.bytes->load());
  auto two = model_on(ls::Mirrored<mine::Counting>{.replicas = 2, .on = device});
  fmt::print("two replicas agree: {}\n",
             largest_difference(train(two), expected) < 1e-4 ? "yes" : "no");
}
