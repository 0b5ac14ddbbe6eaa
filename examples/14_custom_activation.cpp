// Writes an activation twice: Mish as a function that the library differentiates, and by hand, as a
// rule for one value and its derivative. Checks both gradients against finite differences, and trains
// a model with them. Run it with `./dev custom_activation`.
//
// Expected output:
//   gradients agree: yes
//   accuracy above 0.8: yes
#include <fmt/format.h>
#include <cmath>
#include <string_view>

#include <lockstep/cpu.hpp>
#include <lockstep/function.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/training/checks/check_gradients.hpp>
namespace ls = lockstep;

// --8<-- [start:function]
/// Mish (Misra, 2019): y = x tanh(log(1 + e^x)).
inline constexpr auto mish = [](auto x) { return x * tanh(softplus(x)); };

struct Mish : ls::Function<mish> {
  static constexpr std::string_view name = "mish";
};
// --8<-- [end:function]

namespace mine {
// --8<-- [start:activation]
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
// --8<-- [end:activation]
}  // namespace mine

namespace {
struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::activation<Mish>>,
                            ls::Dense<32>, mine::Mish, ls::Dense<10>> {};
}  // namespace

int main() {
  const double error = ls::check_gradients<ls::Input<4, 3>>(Mish{}).error;
  const double by_hand = ls::check_gradients<ls::Input<4, 3>>(mine::Mish{}).error;
  fmt::print("gradients agree: {}\n", error < 1e-8 && by_hand < 1e-8 ? "yes" : "no");

  const auto digits = ls::datasets::digits();
  const auto scale = ls::rescale(1.0f / 255);
  ls::Model model{Net{},
                  ls::Seed{1},
                  ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.003},
                  ls::Accuracy{}};
  model.fit(
      digits.train() | ls::take(2'000) | scale | ls::cache | ls::shuffle(2'000) | ls::batch(50),
      {.epochs = 3, .progress = ls::ProgressStyle::none});
  const auto test = digits.test() | ls::take(500) | scale | ls::batch(100);
  const double accuracy = model.evaluate(test)["accuracy"];
  fmt::print("accuracy above 0.8: {}\n", accuracy > 0.8 ? "yes" : "no");
}
