// Writes a loss, a metric and a callback: the quantile loss, the share of targets below the
// prediction, and a stop when that share is right. Run `./dev custom_loss_metric_callback`.
//
// Expected output:
//   stopped by the callback: yes, share of targets below the prediction: ...
#include <fmt/format.h>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {
/// One element of the loss and its derivative by p. The mean is smallest at the 0.9-quantile.
struct QuantileRule {
  template <class T>
  ls::LossTerm<T> operator()(T p, T t) const {
    const T slope = static_cast<T>(p < t ? -0.9 : 0.1);
    return {slope * (p - t), slope};
  }
};
struct Quantile {
  using target_type = float;
  static constexpr std::string_view name = "quantile";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  constexpr ls::ElementwiseLossOp<QuantileRule> op(ls::Shape out) const { return {out.size(), {}}; }
};

/// The metric's state is two sums, so replicas add theirs: targets below p, and all targets.
struct ShareBelowOp {
  using target_type = float;
  constexpr std::size_t size() const { return 1; }
  constexpr std::size_t target_size() const { return 1; }
  template <class T>
  void example(const T* p, const T* t, double* state) const {
    state[0] += *t < *p;
    state[1] += 1;
  }
};
struct ShareBelow {
  static constexpr std::string_view name = "share_below";
  static constexpr std::size_t state_size = 2;
  template <class Target>
  static constexpr bool accepts(ls::Shape out) {
    return std::same_as<Target, float> && out.size() == 1;
  }
  template <class Target>
  constexpr ShareBelowOp op(ls::Shape) const {
    return {};
  }
  double result(const double* state) const { return state[1] > 0 ? state[0] / state[1] : 0; }
};
struct StopAt : ls::Callback {
  void on_epoch_end(int, const ls::Logs& logs) override {
    if (std::abs(logs["share_below"] - 0.9) < 0.005) control().stop_training();
  }
};
struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
}  // namespace

int main() {
  std::vector<float> x(1'000, 1.0f), y(1'000);
  ls::Philox random(3);
  for (float& v : y) v = static_cast<float>(random.normal());
  const auto data = ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::batch(50);
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}}, Quantile{},
                  ls::SGD{.learning_rate = 0.1}, ShareBelow{}};
  const auto stop = std::make_shared<StopAt>();
  const auto none = ls::ProgressStyle::none;
  const bool stopped =
      model.fit(data, {.epochs = 200, .callbacks = {stop}, .progress = none}).epoch.size() < 200;
  fmt::print("stopped by the callback: {}, share of targets below the prediction: {:.3f}\n",
             stopped ? "yes" : "no", model.evaluate(data)["share_below"]);
}
