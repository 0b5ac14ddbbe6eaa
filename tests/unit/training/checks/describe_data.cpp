#include "lockstep/training/checks/describe_data.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"

namespace {

namespace ls = lockstep;
using ls::detail::described, ls::detail::DescribedData, ls::detail::RoundedDigest;

constexpr std::size_t count = 100, width = 4;

struct Contents {
  std::string features, targets, weights;
  explicit Contents(const DescribedData& data) {
    for (const auto& [role, digest] : data.contents)
      (role == ls::FieldRole::feature  ? features
       : role == ls::FieldRole::target ? targets
                                       : weights) = digest;
  }
  bool operator==(const Contents&) const = default;
};

std::vector<float> values(float scale = 1) {
  std::vector<float> x;
  for (std::size_t i = 0; i < count * width; ++i)
    x.push_back(scale * std::sin(0.37f * static_cast<float>(i)));
  return x;
}
std::vector<std::int32_t> labels() {
  std::vector<std::int32_t> y;
  for (std::size_t i = 0; i < count; ++i) y.push_back(static_cast<std::int32_t>(i % 3));
  return y;
}
auto source(const std::vector<float>& x = values(), const std::vector<std::int32_t>& y = labels()) {
  return ls::tensors(x, ls::shape(width), y);
}
auto contents(const auto& pipeline, std::size_t batch = 10) {
  return Contents(described<float>(pipeline | ls::batch(batch)));
}

}  // namespace

TEST_CASE("equal data sets have equal contents, in any kind of pipeline") {
  const auto a = contents(source());
  CHECK(a == contents(source()));
  CHECK(a == contents(source() | ls::map([](auto&) {})));
  CHECK(a == contents(source() | ls::map([](auto&) {}) | ls::cache));
  CHECK(a.features.starts_with("digest "));
  CHECK(a.targets.starts_with("0, 2, 0, ..., digest "));  // examples 0, 5 and 9
  CHECK(a.weights.empty());
  const auto drawn = [] {
    return source() |
           ls::map([](auto& e, ls::Philox& g) { e.x[0] += static_cast<float>(g.uniform()); }) |
           ls::shuffle(20) | ls::repeat;
  };
  CHECK(contents(drawn()) == contents(drawn()));
}

TEST_CASE("another order, other features, targets or weights change the contents") {
  const auto a = contents(source());
  auto x = values();
  for (std::size_t i = 0; i < count / 2; ++i)
    for (std::size_t k = 0; k < width; ++k)
      std::swap(x[i * width + k], x[(count - 1 - i) * width + k]);
  CHECK(contents(source(x)).features != a.features);
  CHECK(contents(source(x)).targets == a.targets);
  for (const std::size_t example : {0u, 5u, 9u, 50u, 99u}) {  // of the first, a middle, the last
    auto changed = values();
    changed[example * width + 2] += 0.01f;
    CHECK(contents(source(changed)).features != a.features);
    auto other = labels();
    other[example] = (other[example] + 1) % 3;
    CHECK(contents(source(values(), other)).targets != a.targets);
  }
  CHECK(contents(source() | ls::shuffle(100)).features != a.features);
  const auto weighted = [](float last) {
    std::vector<float> w(count, 1);
    w.back() = last;
    return contents(source() | ls::sample_weights(w));
  };
  CHECK(weighted(1).weights == weighted(1).weights);
  CHECK(weighted(1).weights != weighted(3).weights);
  CHECK(weighted(1).features == weighted(3).features);
  x = values();
  x[3] = std::nanf("");
  const auto with_nan = contents(source(x)).features;
  x = values();
  x[2] = std::nanf("");
  CHECK(with_nan != contents(source(x)).features);
}

TEST_CASE("real targets are compared, also if all features are equal") {
  const std::vector<float> ones(8, 1), up{0, 1, 2, 3, 4, 5, 6, 7}, down{7, 6, 5, 4, 3, 2, 1, 0};
  const auto of = [&](const std::vector<float>& y) {
    return contents(ls::tensors(ones, ls::shape(1), y, ls::shape(1)), 8);
  };
  CHECK(of(up).features == of(down).features);
  CHECK(of(up).targets != of(down).targets);
  CHECK(of(up).targets != of(std::vector<float>(8)).targets);
}

TEST_CASE("differences of rounding do not change a digest of real values") {
  ls::Philox g(3);
  for (const std::size_t size : {3u, 1000u, 100'000u}) {
    CAPTURE(size);
    RoundedDigest exact, rounded, other;
    int differing = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double v = g.normal();
      const double off = v * (1 + (i % 2 == 0 ? 1e-10 : -1e-10));
      exact.add(v);
      rounded.add(off);
      other.add(i == size / 2 ? v + 4 : v);
      differing += off != v ? 1 : 0;
    }
    CHECK(differing > 0);
    CHECK(exact.value() == rounded.value());
    CHECK(exact.value() != other.value());
  }
}

TEST_CASE("data that never end, or of which few steps are read, are sampled from their beginning") {
  CHECK(contents(source() | ls::repeat) == contents(source()));
  const auto of_steps = [](std::size_t changed) {
    auto x = values();
    x[changed * width] += 1;
    return Contents(described<float>(source(x) | ls::batch(10), 2)).features;
  };
  CHECK(of_steps(20) == of_steps(99));  // the third batch is not read
  CHECK(of_steps(19) != of_steps(99));
}

TEST_CASE("a function that gives another result at each call is found, and labels are compared") {
  const auto random = std::make_shared<std::mt19937>(1);
  const auto a = contents(
      source() | ls::map([random](auto& e) { e.x[0] += static_cast<float>((*random)()); }));
  CHECK(a.features == ls::detail::varying_contents);
  CHECK(a.targets == contents(source()).targets);
  ls::Signature fields;
  ls::detail::add_contents(fields, described<float>(source() | ls::batch(10)), "the examples");
  REQUIRE(fields.size() == 2);
  CHECK(fields[0].first == "features of the examples");
  CHECK(fields[1].first == "targets of the examples");
}

TEST_CASE("a generator is called for few examples, in ascending order, and is not compared") {
  const auto numbers = std::make_shared<std::vector<std::uint64_t>>();
  const auto data = ls::generator(ls::Count(100'000), ls::shape(1), {},
                                  [numbers](std::uint64_t n, auto& e) {
                                    numbers->push_back(n);
                                    e.x[0] = static_cast<float>(n);
                                    e.y[0] = 0;
                                  }) |
                    ls::map([](auto&) {}) | ls::batch(100);
  const DescribedData found = described<float>(data);
  CHECK(found.is_generated);
  CHECK(numbers->size() == 2 * 3 * 16);
  for (std::size_t i = 6; i < numbers->size(); ++i) CHECK((*numbers)[i] >= (*numbers)[i - 6]);
  CHECK(numbers->front() == 0);
  CHECK(numbers->back() == 99'999);
  ls::Signature fields{{"first", ""}};
  ls::detail::add_contents(fields, found, "the examples");
  REQUIRE(fields.size() == 4);
  CHECK(fields[0].first == ls::detail::generated_field);
  CHECK(fields[0].second.find(Contents(found).features) != std::string::npos);
  CHECK(fields[2].second == ls::detail::generated_contents);
}
