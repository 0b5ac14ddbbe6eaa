#include "lockstep/devices/cpu/fused/softmax_crossentropy.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "unit/devices/cpu/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

using CrossentropyOp = SparseCategoricalCrossentropyOp;
template <class T>
struct Loss {
  double sum = 0;
  std::vector<T> gradient;
};

template <class D>
Loss<typename D::real> run_loss(const CrossentropyOp& op, const std::vector<float>& logits,
                                const std::vector<std::int32_t>& labels,
                                const std::vector<float>& weights, bool want_gradient,
                                const D& device = {}) {
  using T = typename D::real;
  auto context = device.open(1, 0);
  const auto scope = context.scope();
  const std::vector<T> p = as<T>(logits), w = as<T>(weights);
  Loss<T> result;
  result.gradient.assign(logits.size(), std::numeric_limits<T>::quiet_NaN());
  Kernel<CrossentropyOp, D>::run(op, {.device = context,
                                      .count = labels.size(),
                                      .prediction = p.data(),
                                      .target = labels.data(),
                                      .gradient = want_gradient ? result.gradient.data() : nullptr,
                                      .scale = 1.0 / 77,
                                      .sum = &result.sum,
                                      .weight = weights.empty() ? nullptr : w.data()});
  return result;
}

}  // namespace

TEST_CASE("softmax with cross-entropy of generated rows agrees with the reference") {
  Philox g(31);
  for (int i = 0; i < generated_shapes; ++i) {
    const CrossentropyOp op{one_of(g, 2, 10, 15, 16, 17, 31, 32, 33, 64, 100, 1000, 1003),
                            one_of(g, 0, 3) > 0};
    const auto count = static_cast<std::size_t>(one_of(g, 0, 1, 5, 63, 64, 65, 200));
    const bool weighted = one_of(g, 0, 1) == 0, want_gradient = one_of(g, 0, 3) > 0;
    INFO(op.classes << " classes, " << count << " examples, logits " << op.from_logits
                    << ", weighted " << weighted);
    auto logits = as<float>(normal_values(count * op.size(), g.below(1000)));
    for (float& p : logits) p = op.from_logits ? 8 * p : std::abs(p) * 0.4f;
    std::vector<std::int32_t> labels(count);
    for (auto& label : labels)
      label = static_cast<std::int32_t>(g.below(static_cast<std::uint32_t>(op.classes)));
    std::vector<float> weights;
    for (std::size_t n = 0; weighted && n < count; ++n)
      weights.push_back(static_cast<float>(n % 3) * 0.5f);
    const auto expected = run_loss<Reference<double>>(op, logits, labels, weights, want_gradient);
    for (const int threads : {1, 2}) {
      const auto cpu =
          run_loss(op, logits, labels, weights, want_gradient, Cpu{.threads = threads});
      CHECK(std::abs(cpu.sum - expected.sum) <= 1e-6 * std::abs(expected.sum));
      if (want_gradient) CHECK(relative_error(cpu.gradient, expected.gradient) < 1e-6);
    }
  }
}

TEST_CASE("softmax with cross-entropy gives equal bits for any number of threads") {
  const CrossentropyOp op{1000, true};
  const auto logits = as<float>(normal_values(300 * op.size(), 3));
  const std::vector<std::int32_t> labels(300, 7);
  const auto one = run_loss(op, logits, labels, {}, true, Cpu{.threads = 1});
  const auto two = run_loss(op, logits, labels, {}, true, Cpu{.threads = 2});
  CHECK(one.sum == two.sum);
  CHECK(one.gradient == two.gradient);
  const CrossentropyOp of_pixels{1000, true, 100, 7};
  std::vector<std::int32_t> some(300, 7);
  some[250] = 3;
  const auto ignoring = [&](int threads) {
    auto context = Cpu{.threads = threads}.open(1, 0);
    const auto scope = context.scope();
    std::pair<double, std::vector<float>> result{0, std::vector<float>(logits.size(), 1)};
    Kernel<CrossentropyOp, Cpu>::run(of_pixels, {.device = context,
                                                 .count = 3,
                                                 .prediction = logits.data(),
                                                 .target = some.data(),
                                                 .gradient = result.second.data(),
                                                 .scale = 1,
                                                 .sum = &result.first});
    return result;
  };
  CHECK(ignoring(1).first > 0);
  CHECK(ignoring(1) == ignoring(2));
}

TEST_CASE("softmax with cross-entropy of extreme logits") {
  const CrossentropyOp op{32, true};
  std::vector<float> logits(32, -1e30f);
  logits[3] = 1e30f;
  logits[20] = -60.0f;
  auto certain = run_loss<Cpu>(op, logits, {3}, {}, true);
  CHECK(certain.sum == 0);
  for (const float g : certain.gradient) CHECK(g == 0);

  // Far below the largest logit: tiny, but still a normal number.
  std::vector<float> spread(32, 0.0f);
  spread[9] = 80.0f;
  const auto expected = run_loss<Reference<double>>(op, spread, {9}, {}, true);
  const auto cpu = run_loss<Cpu>(op, spread, {9}, {}, true);
  for (std::size_t k = 0; k < 32; ++k)
    if (k != 9)
      CHECK(std::abs(static_cast<double>(cpu.gradient[k]) / expected.gradient[k] - 1) < 1e-6);

  for (const std::size_t at : {0u, 5u, 31u}) {
    std::vector<float> broken(32, 1.0f);
    broken[at] = std::numeric_limits<float>::quiet_NaN();
    const auto lost = run_loss<Cpu>(op, broken, {4}, {}, true);
    CHECK(std::isnan(lost.sum));
  }
}
