#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<12, 12, 1>, ls::Conv2D<8, 3, ls::kernel_regularizer(ls::L2{1e-4})>,
                     ls::ReLU, ls::MaxPooling2D<>, ls::Conv2D<8, 3, ls::same>, ls::GELU,
                     ls::AveragePooling2D<>, ls::Flatten, ls::Dropout<ls::rate(0.25f)>,
                     ls::Dense<16>, ls::ReLU, ls::Dense<10>> {};

auto images(std::size_t count) {
  std::vector<std::uint8_t> pixels(count * 144);
  std::vector<std::int32_t> labels(count);
  ls::Philox random(3);
  for (std::uint8_t& p : pixels) p = static_cast<std::uint8_t>(255 * random.uniform());
  for (std::size_t i = 0; i < count; ++i) labels[i] = static_cast<std::int32_t>(i % 10);
  return ls::tensors(pixels, ls::shape(12, 12, 1), labels) | ls::rescale(1.0 / 255);
}

struct Result {
  std::vector<double> losses;
  std::string digest;
};
template <class S, class Data>
Result train(const S& strategy, const Data& data, int epochs) {
  ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.003}, ls::Accuracy{}};
  const auto history =
      model.fit(data, {.epochs = epochs, .verify_every = 1, .progress = ls::ProgressStyle::none});
  Result result{history["loss"], model.weights_sha256()};
  result.losses.push_back(model.evaluate(data)["loss"]);
  return result;
}
using Mirrored = ls::Mirrored<ls::Cpu>;
using OneDevice = ls::OneDevice<ls::Cpu>;

}  // namespace

TEST_CASE("Replicas on the Cpu train as one, including replicas without examples") {
  for (const std::size_t batch : {1u, 3u, 13u, 64u}) {
    const auto data = images(29) | ls::shuffle(29) | ls::batch(batch);
    const Result one = train(OneDevice{.on = {.threads = 1}}, data, 2);
    for (std::size_t n = 1; n <= 8; ++n) {
      CAPTURE(batch, n);
      const Result many = train(Mirrored{.replicas = n, .on = {.threads = 1}}, data, 2);
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        CHECK(std::abs(many.losses[i] - one.losses[i]) <= 2e-5 * one.losses[i]);
    }
  }
}

TEST_CASE("Virtual shards on the Cpu give the same bits for 1, 2, 4 and 8 replicas") {
  // 200 steps; the last batch of an epoch has 5 examples, fewer than slices.
  const auto data = images(9 * 16 + 5) | ls::shuffle(50) | ls::batch(16);
  const Result alone = train(OneDevice{.virtual_shards = 8}, data, 20);
  for (const std::size_t n : {1u, 2u, 4u, 8u}) {
    CAPTURE(n);
    const Result many = train(Mirrored{.replicas = n, .virtual_shards = 8}, data, 20);
    CHECK(many.digest == alone.digest);
    CHECK(many.losses == alone.losses);
  }
  CHECK(train(Mirrored{.replicas = 2}, data, 20).digest != alone.digest);
}

TEST_CASE("Virtual shards reject a device with several threads") {
  CHECK_THROWS_AS((OneDevice{.on = {.threads = 2}, .virtual_shards = 2}.open()), ls::UsageError);
  CHECK_NOTHROW((OneDevice{.on = {.threads = 1}, .virtual_shards = 2}.open()));
}
