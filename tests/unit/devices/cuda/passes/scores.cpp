/// \file
/// A loss and metrics in one launch, compared with separate launches.
#include "lockstep/devices/cuda/passes/scores.hpp"

#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <vector>

#include "lockstep/losses/losses.hpp"
#include "lockstep/metrics/metrics.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

struct Result {
  std::vector<double> sums;
  std::vector<float> gradient;
  bool operator==(const Result&) const = default;
};

/// Runs twice on the same examples into the same sums: all weights 1, then other weights, which
/// only the loss and the first metric get. `each`: weights of an example.
template <class L, class... Ms>
Result scored(bool together, std::size_t count, Shape out, std::size_t each, const L& loss,
              const Ms&... metrics) {
  using Target = typename L::target_type;
  const auto loss_op = loss.op(out);
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  DeviceArray<Cuda, float> p(context, as<float>(normal_values(count * loss_op.size(), 1)));
  std::vector<target_as<Target, float>> targets(count * loss_op.target_size());
  Philox g(3);
  for (auto& t : targets)
    t = static_cast<target_as<Target, float>>(g.below(static_cast<std::uint32_t>(out.channels())));
  DeviceArray<Cuda, target_as<Target, float>> t(context, targets);
  std::vector<float> weights(count * each);
  for (float& w : weights) w = static_cast<float>(g.below(9)) * 0.25f;
  DeviceArray<Cuda, float> weight(context, weights), gradient(context, count * loss_op.size());
  DeviceArray<Cuda, double> sums(context, std::vector<double>((1 + ... + Ms::state_size)));
  for (const float* const w : std::initializer_list<const float*>{nullptr, weight.data()}) {
    const LossIo<Cuda, Target> io{context, count,       p.data(), t.data(), gradient.data(),
                                  0.125,   sums.data(), w,        each};
    std::size_t at = 1, metric = 0;
    const auto call_of = [&]<class Op, class M>(const Op& op, const M&) {
      const MetricIo<Cuda, Target> of_metric{
          context, count, p.data(), t.data(), sums.data() + at, metric++ == 0 ? w : nullptr, each};
      at += M::state_size;
      return MetricCall<Op, Cuda, Target>{op, of_metric};
    };
    const auto ops = std::make_tuple(metrics.template op<Target>(out)...);
    std::apply(
        [&]<class... Ops>(const Ops&... op) {
          static_assert(ScoresTogether<Cuda, Target, decltype(loss.op(out)), Ops...>);
          const std::tuple calls{call_of(op, metrics)...};
          if (together)
            std::apply([&](const auto&... c) { Kernel<Scores, Cuda>::run(loss_op, io, c...); },
                       calls);
          else
            std::apply(
                [&](const auto&... c) {
                  Kernel<std::remove_cvref_t<decltype(loss_op)>, Cuda>::run(loss_op, io);
                  (Kernel<Ops, Cuda>::run(c.op, c.io), ...);
                },
                calls);
        },
        ops);
  }
  context.synchronize();
  return {sums.download(), gradient.download()};
}

template <class L, class... Ms>
void check_shape(std::size_t expected_launches, Shape out, std::size_t each, const L& loss,
                 const Ms&... metrics) {
  TestGpu gpu;
  for (const std::size_t count : {0u, 1u, 67u}) {
    INFO(count << " examples of " << to_string(out) << ", " << each << " weights");
    const Result apart = scored(false, count, out, each, loss, metrics...);
    const std::size_t before = gpu.host() == nullptr ? 0 : gpu.host()->launches;
    CHECK(scored(true, count, out, each, loss, metrics...) == apart);
    if (gpu.host() != nullptr && count > 0)
      CHECK(gpu.host()->launches - before == 2 * expected_launches);
  }
}
template <class L, class... Ms>
void check(std::size_t expected_launches, int size, const L& loss, const Ms&... metrics) {
  check_shape(expected_launches, shape(size), 1, loss, metrics...);
}

}  // namespace

TEST_CASE("a loss and metrics in one launch equal separate launches bit by bit") {
  check(1, 10, SparseCategoricalCrossentropy{.from_logits = true}, Accuracy{});
  check(1, 10, SparseCategoricalCrossentropy{}, Accuracy{}, TopKCategoricalAccuracy{.k = 3});
  check(1, 70, CategoricalCrossentropy{.from_logits = true, .label_smoothing = 0.1f},
        MeanCosineSimilarity{}, RootMeanSquaredError{}, Accuracy{});
  check(1, 5, KLDivergence{}, BinaryAccuracy{.threshold = 0.25});
}

TEST_CASE("positions are scored together, with a weight per example or per position") {
  for (const std::size_t each : std::initializer_list<std::size_t>{1, 6}) {
    const Shape out = shape(2, 3, 10);
    check_shape(1, out, each, SparseCategoricalCrossentropy{.from_logits = true}, Accuracy{});
    check_shape(1, out, each, SparseCategoricalCrossentropy{.ignore_class = 4},
                Accuracy{.ignore_class = 4}, TopKCategoricalAccuracy{.k = 3, .ignore_class = 4});
    check_shape(1, out, each, CategoricalCrossentropy{}, MeanCosineSimilarity{}, Accuracy{});
    // Only one of both ignores the class.
    check_shape(2, out, each, SparseCategoricalCrossentropy{.ignore_class = 4}, Accuracy{});
  }
}

TEST_CASE("metrics whose texts define a name differently run in separate launches") {
  check(3, 10, SparseCategoricalCrossentropy{}, TopKCategoricalAccuracy{.k = 3},
        TopKCategoricalAccuracy{.k = 5});
  check(1, 10, SparseCategoricalCrossentropy{}, TopKCategoricalAccuracy{.k = 3},
        TopKCategoricalAccuracy{.k = 3});
}

TEST_CASE("metrics that are not row-wise, or have too many sums, are scored separately") {
  using Crossentropy = SparseCategoricalCrossentropyOp;
  using Hits = AccuracyOp<std::int32_t>;
  CHECK(ScoresTogether<Cuda, std::int32_t, Crossentropy, Hits, Hits, Hits>);
  CHECK_FALSE(ScoresTogether<Cuda, std::int32_t, Crossentropy>);
  CHECK_FALSE(ScoresTogether<Cuda, std::int32_t, Crossentropy, Hits, Hits, Hits, Hits>);
  CHECK_FALSE(ScoresTogether<Cuda, std::int32_t, Crossentropy, Hits,
                             decltype(ConfusionMatrix<10>{}.op<std::int32_t>(shape(10)))>);
  CHECK_FALSE(ScoresTogether<Cuda, float, decltype(MeanSquaredError{}.op(shape(3))),
                             decltype(Accuracy{}.op<float>(shape(3)))>);
  CHECK_FALSE(ScoresTogether<Reference<float>, std::int32_t, Crossentropy, Hits>);
}
