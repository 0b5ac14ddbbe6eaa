/// \file
#include "lockstep/training/adapt.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

namespace {

struct Net : ls::Sequential<ls::Input<2, 3>, ls::Normalization, ls::Flatten, ls::Dense<2>> {};

/// 5 examples of (2, 3); channel k is around 1e6 k.
std::vector<float> numbers() {
  std::vector<float> x;
  for (int i = 0; i < 30; ++i)
    x.push_back(static_cast<float>(1e6 * (i % 3)) + static_cast<float>((i * i) % 17));
  return x;
}
auto data() {
  return ls::tensors(numbers(), ls::shape(2, 3), std::vector<std::int32_t>{0, 1, 0, 1, 1});
}

/// Reference: two passes over the data.
std::pair<double, double> moments_of(std::size_t channel) {
  const auto x = numbers();
  double mean = 0, variance = 0;
  for (std::size_t i = channel; i < 30; i += 3) mean += static_cast<double>(x[i]) / 10;
  for (std::size_t i = channel; i < 30; i += 3)
    variance += std::pow(static_cast<double>(x[i]) - mean, 2) / 10;
  return {mean, variance};
}

struct Encoder : ls::Sequential<ls::Normalization, ls::Dense<3>> {
  static constexpr std::string_view name = "encoder";
};

template <class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const ls::UsageError& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("moments are computed per channel, accurately even far from zero") {
  const ls::Moments m = ls::moments(data());
  for (std::size_t k = 0; k < 3; ++k) {
    const auto [mean, variance] = moments_of(k);
    CHECK(std::abs(m.mean[k] - mean) <= 1e-9 * std::abs(mean) + 1e-12);
    CHECK(std::abs(m.variance[k] - variance) <= 1e-6 * variance);
  }
  CHECK(message([] { ls::moments(data() | ls::repeat); }).find("never end; add ls::take(n)") !=
        std::string::npos);
  CHECK(message([] { ls::moments(data() | ls::take(0)); }) ==
        "moments: the data are empty; check take, skip and the files");
}

TEST_CASE("an adapted model normalizes its data to mean 0 and variance 1") {
  struct Bare : ls::Sequential<ls::Input<2, 3>, ls::Normalization> {};
  ls::Model model{Bare{}, ls::OneDevice<ls::Reference<double>>{}, ls::MeanSquaredError{},
                  ls::SGD{}};
  const auto both = ls::tensors(numbers(), ls::shape(2, 3), numbers(), ls::shape(2, 3));
  const auto plain = model.predict(both | ls::batch(2));
  CHECK(plain.elements()[1] == 1e6 + 1);  // not adapted: unchanged
  ls::adapt(model, both);
  const auto seen = model.predict(both | ls::batch(2));
  for (std::size_t k = 0; k < 3; ++k) {
    double sum = 0, squares = 0;
    for (std::size_t i = k; i < 30; i += 3)
      sum += seen.elements()[i], squares += std::pow(seen.elements()[i], 2);
    CHECK(std::abs(sum) < 1e-6);
    CHECK(std::abs(squares - 10) < 1e-6);
  }
}

TEST_CASE("adapt accepts the first layer only, since only its input is the data") {
  struct Behind : ls::Sequential<ls::Input<2, 3>, ls::Rescaling<ls::factor(0.5)>, ls::Normalization,
                                 ls::Flatten, ls::Dense<2>> {};
  struct Viewed : ls::Sequential<ls::Input<6>, ls::Reshape<ls::shape(2, 3)>, ls::Normalization,
                                 ls::Flatten, ls::Dense<2>> {};
  CHECK(ls::detail::is_first_layer<Net>("normalization"));
  CHECK(ls::detail::is_first_layer<Viewed>("normalization"));
  CHECK_FALSE(ls::detail::is_first_layer<Behind>("normalization"));
  CHECK_FALSE(ls::detail::is_first_layer<Net>("dense"));
  struct Blocks : ls::Sequential<ls::Input<2, 3>, Encoder, ls::Normalization> {};
  CHECK(ls::detail::is_first_layer<Blocks>("encoder/normalization"));
  CHECK_FALSE(ls::detail::is_first_layer<Blocks>("normalization"));
}

TEST_CASE("adapt finds a layer in a named block by its path") {
  struct Blocks : ls::Sequential<ls::Input<2, 3>, Encoder, ls::Flatten, ls::Dense<2>> {};
  ls::Model model{Blocks{}, ls::OneDevice<ls::Reference<double>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  ls::adapt(model, data(), "encoder/normalization");
  const auto [mean, variance] = moments_of(1);
  CHECK(std::abs(model.weights("encoder/normalization/mean")[1] - mean) <= 1e-9 * mean);
  CHECK(std::abs(model.weights("encoder/normalization/variance")[1] - variance) <= 1e-6 * variance);
}

TEST_CASE("moments are saved with a model, and training does not change them") {
  const auto batches = data() | ls::batch(2);
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<double>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  ls::adapt(model, data());
  const auto mean = model.weights("normalization/mean");
  model.fit(batches, {.epochs = 2, .progress = ls::ProgressStyle::none});
  CHECK(model.weights("normalization/mean") == mean);
  CHECK(message([&] {
          ls::adapt(model, data(), "dense");
        }).find("dense is not the model's first") != std::string::npos);
  CHECK(message([&] {
          ls::adapt(model, data(), "normalisation");
        }).find("the model has no layer normalisation; put ls::Normalization after Input") !=
        std::string::npos);
}
