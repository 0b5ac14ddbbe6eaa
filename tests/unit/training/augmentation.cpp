/// \file
/// Training with random image augmentation, in the pipeline and in the model, does not depend on
/// the number of replicas.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

namespace {

struct Augmented
    : ls::Sequential<ls::Input<8, 8, 2>, ls::RandomFlip<ls::horizontal>,
                     ls::RandomTranslation<ls::factor(0.2), ls::factor(0.2)>,
                     ls::RandomRotation<ls::factor(0.1)>, ls::RandomCrop<6, 6>, ls::Conv2D<3, 3>,
                     ls::RandomCutout<2>, ls::ReLU, ls::Flatten, ls::Dense<3>> {};
struct Bare : ls::Sequential<ls::Input<8, 8, 2>, ls::RandomCrop<6, 6>, ls::Conv2D<3, 3>, ls::ReLU,
                             ls::Flatten, ls::Dense<3>> {};

auto images() {
  std::vector<std::uint8_t> x(42 * 100 * 2);
  std::vector<std::int32_t> y(42);
  ls::Philox draws(3);
  for (auto& byte : x) byte = static_cast<std::uint8_t>(draws.below(256));
  for (auto& label : y) label = static_cast<std::int32_t>(draws.below(3));
  return ls::tensors(x, ls::shape(10, 10, 2), y);
}

struct Run {
  std::vector<double> losses, weights, tested;
  std::string digest;
};

template <class Net, class S>
Run run(const S& strategy) {
  ls::Model model{Net{}, ls::Seed{7}, strategy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 0.05, .momentum = 0.9}};
  const auto train = images() | ls::shuffle(42) | ls::resize_with_crop_or_pad(11, 11) |
                     ls::random_crop(8, 8) | ls::random_flip_left_right |
                     ls::per_image_standardization | ls::cutout(2) | ls::batch(15);
  const auto test =
      images() | ls::resize_with_crop_or_pad(8, 8) | ls::per_image_standardization | ls::batch(15);
  const auto history =
      model.fit(train, {.epochs = 3, .verify_every = 1, .progress = ls::ProgressStyle::none});
  Run result{history["loss"], {}, {model.evaluate(test)["loss"]}, model.weights_sha256()};
  for (const auto& p : model.parameters())
    for (const auto v : model.weights(p.name)) result.weights.push_back(static_cast<double>(v));
  return result;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
  return worst;
}

template <class T>
using Mirrored = ls::Mirrored<ls::Reference<T>>;

}  // namespace

TEST_CASE("replicas train on the same augmented images, whatever their number") {
  const Run one = run<Augmented>(ls::OneDevice<ls::Reference<double>>{});
  for (const std::size_t n : {1u, 2u, 7u}) {
    CAPTURE(n);
    const Run many = run<Augmented>(Mirrored<double>{.replicas = n});
    CHECK(distance(many.losses, one.losses) < 1e-12);
    CHECK(distance(many.weights, one.weights) < 1e-12);
    CHECK(distance(many.tested, one.tested) < 1e-12);
  }
  CHECK(distance(run<Bare>(ls::OneDevice<ls::Reference<double>>{}).losses, one.losses) > 1e-3);
}

TEST_CASE("virtual shards with augmentation give the same bits for any number of replicas") {
  const Run alone = run<Augmented>(ls::OneDevice<ls::Reference<float>>{.virtual_shards = 8});
  for (const std::size_t n : {2u, 8u})
    CHECK(run<Augmented>(Mirrored<float>{.replicas = n, .virtual_shards = 8}).digest ==
          alone.digest);
}

TEST_CASE("outside of training, augmentation layers change only the size of images") {
  const auto model = [](auto net) {
    return ls::Model{net, ls::Seed{7}, ls::OneDevice<ls::Reference<double>>{},
                     ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  };
  const auto test = images() | ls::resize_with_crop_or_pad(8, 8) | ls::batch(15);
  auto augmented = model(Augmented{});
  auto bare = model(Bare{});
  CHECK(augmented.evaluate(test)["loss"] == bare.evaluate(test)["loss"]);
  const auto a = augmented.predict(test), b = bare.predict(test);
  CHECK(std::vector<double>(a.elements().begin(), a.elements().end()) ==
        std::vector<double>(b.elements().begin(), b.elements().end()));
}
