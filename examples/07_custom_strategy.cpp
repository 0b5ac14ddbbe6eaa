// Writes a strategy: replicas that round their gradients to bfloat16 before they are summed, as if
// messages had half the bytes. It wraps any strategy of the library, and shows how much such an
// exchange changes the result. Run it with `./dev custom_strategy`.
//
// Expected output:
//   exact gradients:   accuracy 0.9...
//   rounded gradients: accuracy 0.9...
//   the same weights: no
#include <fmt/format.h>
#include <cstddef>
#include <string_view>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

// --8<-- [start:exchange]
/// One replica's exchange of gradients: rounds them and passes them on.
template <class T>
struct RoundedExchange {
  ls::GradientExchange<T> exact;
  /// p[0..n) is complete. The other layers' backward passes follow.
  void post(T* p, std::size_t n) {
    round(p, n);
    exact.post(p, n);
  }
  /// The last part, with the sums of loss and metrics, which are not rounded.
  void finish(T* p, std::size_t n, double* sums, std::size_t m) {
    round(p, n);
    exact.finish(p, n, sums, m);
  }
  static void round(T* p, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<T>(ls::bfloat16(p[i]));
  }
};
// --8<-- [end:exchange] --8<-- [start:strategy]
template <ls::Strategy S>
struct Rounded {
  using device = typename S::device;
  static_assert(ls::HostDevice<device>, "Rounded: gradients must be in host memory");
  static constexpr std::string_view name = "rounded";
  S inner{};

  /// The opened strategy: has all members of the wrapped one, with another exchange in `each`.
  struct Session : S::Session {
    void each(auto&& body) {
      S::Session::each([&](ls::ReplicaContext<device> replica) {
        RoundedExchange<typename device::real> rounded{replica.exchange};
        replica.exchange = ls::GradientExchange<typename device::real>(rounded);
        body(replica);
      });
    }
  };
  Session open() const { return {inner.open()}; }
};
// --8<-- [end:strategy]

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::relu>, ls::Dense<10>> {};

auto trained(auto strategy) {
  const ls::SparseCategoricalCrossentropy loss{.from_logits = true};
  ls::Model model{Net{}, ls::Seed{3}, strategy, loss, ls::Adam{}, ls::Accuracy{}};
  const auto data = ls::datasets::digits().train() | ls::take(2'000) | ls::rescale(1.0f / 255);
  model.fit(data | ls::batch(50),
            {.epochs = 5, .verify_every = 10, .progress = ls::ProgressStyle::none});
  return model;
}

int main() {
  const ls::Mirrored<ls::Cpu> mirrored{.replicas = 2, .on = {.threads = 1}};
  auto exact = trained(mirrored);
  auto rounded = trained(Rounded<ls::Mirrored<ls::Cpu>>{mirrored});
  const auto test = ls::datasets::digits().test() | ls::take(500) | ls::rescale(1.0f / 255);
  const double a = exact.evaluate(test | ls::batch(100))["accuracy"];
  const double b = rounded.evaluate(test | ls::batch(100))["accuracy"];
  fmt::print("exact gradients:   accuracy {:.3f}\nrounded gradients: accuracy {:.3f}\n", a, b);
  const bool same = rounded.weights_sha256() == exact.weights_sha256();
  fmt::print("the same weights: {}\n", same ? "yes" : "no");
}
