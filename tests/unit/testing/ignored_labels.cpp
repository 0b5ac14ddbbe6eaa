/// \file
/// Several machines count the labels that are not ignored together.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/cluster.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/testing.hpp"
#include "support/log_lines.hpp"

namespace ls = lockstep;

namespace {

struct Pixels
    : ls::Sequential<ls::Input<3, 4, 2>, ls::Conv2D<4, 3, ls::same, ls::relu>, ls::Conv2D<3, 1>> {};

/// Few examples have many labels that count.
auto images() {
  constexpr std::size_t count = 46, pixels = 12;
  std::vector<float> x(count * pixels * 2);
  std::vector<std::int32_t> y(count * pixels);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = (i * 7 + i / pixels) % 12 < i / pixels % 12 ? 255 : static_cast<std::int32_t>(i % 3);
  return ls::tensors(x, ls::shape(3, 4, 2), y, ls::shape(3, 4)) | ls::batch(12);
}

struct Trained {
  std::string weights;
  std::vector<double> loss;
  double evaluated = 0;
};
template <class Strategy>
Trained train(const Strategy& strategy) {
  ls::Model model{Pixels{}, strategy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = 255},
                  ls::Adam{.learning_rate = 0.01f}, ls::Accuracy{.ignore_class = 255}};
  const auto history = model.fit(images(), {.epochs = 2, .progress = ls::ProgressStyle::none});
  return {model.weights_sha256(), history["loss"], model.evaluate(images())["loss"]};
}

}  // namespace

TEST_CASE("machines with virtual shards train with ignored labels to the bits of one device") {
  using Device = ls::Reference<float>;
  const Trained one = train(ls::OneDevice<Device>{.virtual_shards = 4});
  const Trained whole = train(ls::OneDevice<ls::Reference<double>>{});
  const testing::LogLines quiet;
  for (const std::size_t workers : {2u, 4u}) {
    std::vector<Trained> all(workers);
    std::vector<double> plain(workers);
    ls::testing::run_workers(workers, [&](ls::testing::Worker& worker) {
      using Strategy = ls::MultiWorkerMirrored<Device>;
      all[worker.rank()] =
          train(Strategy{.virtual_shards = 4, .environment = worker.environment()});
    });
    ls::testing::run_workers(workers, [&](ls::testing::Worker& worker) {
      using Strategy = ls::MultiWorkerMirrored<ls::Reference<double>>;
      plain[worker.rank()] = train(Strategy{.environment = worker.environment()}).loss.back();
    });
    for (std::size_t rank = 0; rank < workers; ++rank) {
      CHECK(all[rank].weights == one.weights);
      CHECK(all[rank].loss == one.loss);
      CHECK(all[rank].evaluated == one.evaluated);
      CHECK(std::abs(plain[rank] - whole.loss.back()) < 1e-12);
    }
  }
}
