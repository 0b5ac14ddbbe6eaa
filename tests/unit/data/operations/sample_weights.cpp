#include "lockstep/data/operations/sample_weights.hpp"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "lockstep/data/collect.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/concatenate.hpp"
#include "lockstep/data/operations/features_as_targets.hpp"
#include "lockstep/data/operations/filter.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shard.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/shuffle_once.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "lockstep/data/operations/validation_split.hpp"
#include "lockstep/data/operations/window.hpp"
#include "lockstep/data/operations/zip.hpp"
#include "lockstep/data/sources/generator.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Weights 100, 101, 102, ...: 100 + i for example i.
std::vector<double> from_100(std::size_t n) {
  std::vector<double> w(n);
  for (std::size_t i = 0; i < n; ++i) w[i] = 100 + static_cast<double>(i);
  return w;
}

/// The weights of all batches of a pass, as a model receives them; 1 for unweighted data.
template <class T, class D>
std::vector<T> weights_of(const D& batches, ls::Pass pass = {}) {
  ls::Loader<T> loader(batches);
  support::LabeledBatch<T, ls::target_of<D, T>> batch;
  loader.begin(pass);
  std::vector<T> all;
  while (support::next(loader, batch))
    for (std::size_t i = 0; i < batch.slice.count; ++i)
      all.push_back(batch.w == nullptr ? T(1) : batch.w[i]);
  return all;
}

/// Expects weight 100 + label for each example of a pass, in any order.
template <class D>
void expect_label_weights(const D& data, std::size_t count, ls::Pass pass = {}) {
  static_assert(ls::has_weights<D>);
  support::check_subsets<float>(data, pass);
  support::check_subsets<double>(data, pass);
  const auto batches = data | ls::batch(4);
  std::vector<double> expected;
  for (const auto label : support::gather_all<double>(data, pass).y)
    expected.push_back(100 + static_cast<double>(label));
  CHECK(expected.size() == count);
  CHECK(weights_of<double>(batches, pass) == expected);
  CHECK(weights_of<float>(batches | ls::prefetch(2), pass) ==
        std::vector<float>(expected.begin(), expected.end()));
}

}  // namespace

TEST_CASE("examples keep their weights through each operation") {
  const auto data = support::range(10) | ls::sample_weights(from_100(10));
  const auto odd = [](const auto& e) { return e.y[0] % 2 == 1; };
  expect_label_weights(data, 10);
  expect_label_weights(data | ls::take(7), 7);
  expect_label_weights(data | ls::skip(3), 7);
  expect_label_weights(data | ls::shard(3, 1), 3);
  expect_label_weights(data | ls::filter(odd), 5);
  expect_label_weights(data | ls::map([](auto& e) { e.x[0] += 1; }), 10);
  expect_label_weights(
      data | ls::map<ls::shape(2)>(
                 [](std::span<const float> in, std::span<float> out) { out[0] = out[1] = in[0]; }),
      10);
  expect_label_weights(data | ls::map([](auto& e) { e.x[0] += 1; }) | ls::cache, 10);
  expect_label_weights(data | ls::rescale(2) | ls::cache | ls::take(9), 9);
  expect_label_weights(data | ls::repeat(2), 20);
  expect_label_weights(data | ls::shuffle(10), 10, {3, 1});
  expect_label_weights(data | ls::skip(5) | ls::shuffle(4) | ls::repeat(5), 25, {4, 2});
}

TEST_CASE("weights match the examples at the point where sample_weights is applied") {
  const auto even = [](const auto& e) { return e.y[0] % 2 == 0; };
  const std::vector<double> of_even{100, 102, 104, 106, 108};
  const auto all = support::range(10);
  expect_label_weights(all | ls::filter(even) | ls::sample_weights(of_even), 5);
  expect_label_weights(all | ls::shard(2, 0) | ls::sample_weights(of_even) | ls::shuffle(5), 5);
  expect_label_weights(all | ls::rescale(0.5) | ls::filter(even) | ls::sample_weights(of_even), 5);
  const auto made = ls::generator(10, ls::shape(1), {}, [](std::uint64_t number, auto& example) {
    example.x[0] = static_cast<float>(number);
    example.y[0] = static_cast<std::int32_t>(number);
  });
  expect_label_weights(
      made | ls::skip(2) | ls::sample_weights({102, 103, 104, 105, 106, 107, 108, 109}), 8);
  // After a concatenation, indices do not ascend in the order of the data.
  const auto rest = support::range(10) | ls::skip(4);
  expect_label_weights(rest | ls::concatenate(support::range(4)) |
                           ls::sample_weights({104, 105, 106, 107, 108, 109, 100, 101, 102, 103}) |
                           ls::shuffle(10),
                       10);
}

TEST_CASE("each of two pipelines contributes its weights") {
  const auto weighted = support::range(3) | ls::sample_weights({2, 3, 4});
  const auto plain = support::range(2);
  using Weights = std::vector<double>;
  CHECK(weights_of<double>(weighted | ls::concatenate(plain) | ls::batch(2)) ==
        Weights{2, 3, 4, 1, 1});
  CHECK(weights_of<double>(plain | ls::concatenate(weighted) | ls::batch(2)) ==
        Weights{1, 1, 2, 3, 4});
  CHECK(weights_of<double>(ls::zip(weighted, plain) | ls::batch(2)) == Weights{2, 3});
  CHECK(weights_of<double>(ls::zip(plain, weighted) | ls::batch(2)) == Weights{2, 3});
  CHECK(weights_of<double>(ls::zip(weighted | ls::skip(1), weighted) | ls::batch(2)) ==
        Weights{6, 12});
  CHECK(weights_of<double>(weighted | ls::sample_weights({1, -1, 0.5}) | ls::batch(2)) ==
        Weights{2, -3, 2});
  for (const ls::Pass pass : {ls::Pass{1, 0}, ls::Pass{2, 3}}) {
    support::check_subsets<float>(weighted | ls::concatenate(plain), pass);
    support::check_subsets<double>(plain | ls::concatenate(weighted), pass);
    support::check_subsets<float>(ls::zip(weighted, plain | ls::cache), pass);
    support::check_subsets<double>(ls::zip(weighted | ls::skip(1), weighted), pass);
    const auto many = support::range(100) | ls::sample_weights(from_100(100));
    const auto vectors =
        ls::tensors(std::vector<float>(100), ls::shape(1), std::vector<float>(300), ls::shape(3));
    support::check_subsets<float>(ls::zip(many, vectors), pass);
    support::check_subsets<double>(ls::zip(many, support::range(200) | ls::window(2)), pass);
    CHECK(ls::zip(many, vectors).shape(2) == ls::Shape{});
    CHECK(weights_of<float>(ls::zip(many, vectors) | ls::batch(100)) ==
          weights_of<float>(many | ls::batch(100)));
  }
}

TEST_CASE("rows have the weight of their example, and windows can be weighted") {
  using Weights = std::vector<double>;
  const auto bags =
      ls::tensors(std::vector<float>(6), ls::shape(2), std::vector<float>(6), ls::shape(2)) |
      ls::sample_weights({5, 6, 7});
  CHECK(weights_of<double>(bags | ls::unbatch | ls::batch(4)) == Weights{5, 5, 6, 6, 7, 7});
  const auto windows = support::range(6) | ls::window(2) | ls::sample_weights({1, 2, 3});
  CHECK(weights_of<double>(windows | ls::batch(2)) == Weights{1, 2, 3});
}

TEST_CASE("validation_split splits the weights as it splits the examples") {
  const auto data = support::range(10) | ls::sample_weights(from_100(10)) | ls::shuffle(10) |
                    ls::rescale(0.5) | ls::batch(3);
  const auto parts = ls::validation_split(0.3).parts(data);
  auto train = weights_of<double>(parts.first);
  std::sort(train.begin(), train.end());
  CHECK(train == from_100(7));
  CHECK(weights_of<double>(parts.second) == std::vector<double>{107, 108, 109});
}

TEST_CASE("a worker's share of a batch has the matching weights") {
  auto data = support::range(10) | ls::sample_weights(from_100(10)) | ls::batch(4);
  ls::Loader<double> loader(
      data, [](std::size_t global) { return ls::Slice{global / 2, global - global / 2}; });
  support::LabeledBatch<double, std::int32_t> batch;
  std::vector<double> seen;
  loader.begin({});
  while (support::next(loader, batch))
    seen.insert(seen.end(), batch.w, batch.w + batch.slice.count);
  CHECK(seen == std::vector<double>{102, 103, 106, 107, 109});
}

TEST_CASE("batches without weights have no weight array") {
  auto data = support::range(10) | ls::batch(4);
  ls::Loader<float> loader(data);
  CHECK(loader.fields().size() == 2);
  support::LabeledBatch<float, std::int32_t> batch;
  loader.begin({});
  REQUIRE(support::next(loader, batch));
  CHECK(batch.w == nullptr);
}

TEST_CASE("weights of float and double, negative and zero, are used unchanged") {
  const auto data = support::range(3);
  const std::vector<float> floats{0.1f, -2, 0};
  CHECK(weights_of<float>(data | ls::sample_weights(floats) | ls::batch(2)) == floats);
  const std::vector<double> doubles{0.1, -2, 0};
  CHECK(weights_of<double>(data | ls::sample_weights(doubles) | ls::batch(2)) == doubles);
}

TEST_CASE("weights that do not fit the data are refused") {
  const auto data = support::range(3);
  const auto refuses = [&](std::vector<double> w, const char* part) {
    CHECK_THROWS_WITH(data | ls::sample_weights(w),
                      ContainsSubstring("sample_weights") && ContainsSubstring(part));
    CHECK_THROWS_AS(data | ls::sample_weights(w), ls::UsageError);
  };
  refuses({1, 2}, "2 weights for 3 examples");
  refuses({1, 2, 3, 4}, "4 weights for 3 examples");
  refuses({1, std::nan(""), 1}, "example 1 has weight nan");
  refuses({1, 2, std::numeric_limits<double>::infinity()}, "example 2 has weight inf");
  refuses({-1e300, 2, 1}, "example 0 has weight -1e+300");
  CHECK_THROWS_WITH(support::Counted{} | ls::sample_weights(std::vector<float>{}),
                    ContainsSubstring("0 weights for 10 examples"));
}

/// A source with example 0 twice in each pass, and without example 2.
struct Twice : support::Counted {
  struct Stream {
    std::size_t at = 0;
    std::optional<std::uint64_t> next() {
      constexpr std::uint64_t indices[] = {0, 0, 1, 3};
      if (at == 4) return std::nullopt;
      return indices[at++];
    }
  };
  std::optional<std::uint64_t> size() const { return 4; }
  Stream indices(ls::Pass) const { return {}; }
};

TEST_CASE("weights are refused if an example occurs twice in a pass") {
  CHECK_THROWS_WITH(Twice{} | ls::sample_weights(std::vector<double>{10, 10, 11, 13}),
                    ContainsSubstring("example 0 occurs more than once"));
}

TEMPLATE_TEST_CASE("classes have their given weights, others 1", "", float, double) {
  using T = TestType;
  const auto weights = [](const auto& data, const ls::ClassWeights& classes) {
    using Data = std::remove_cvref_t<decltype(data)>;
    ls::Loader<T> loader(data, {}, classes);
    support::LabeledBatch<T, ls::target_of<Data, T>> batch;
    loader.begin({});
    std::vector<double> all;
    while (support::next(loader, batch))
      for (std::size_t i = 0; i < batch.slice.count; ++i)
        all.push_back(static_cast<double>(batch.w[i]));
    return all;
  };
  using Weights = std::vector<double>;
  const ls::ClassWeights classes{{3, 4.5}, {0, 0.25}};
  CHECK(weights(support::range(5) | ls::batch(2), classes) == Weights{0.25, 1, 1, 4.5, 1});
  CHECK(weights(support::range(5) | ls::sample_weights({2, 2, 2, 2, 2}) | ls::batch(2), classes) ==
        Weights{0.5, 2, 2, 9, 2});
  const std::vector<float> x(4);
  // Keras rounds numbers half to even, and uses the first maximum of a row.
  CHECK(
      weights(ls::tensors(x, ls::shape(1), std::vector<float>{0, 0.5, 2.51f, 2.5f}, ls::shape(1)) |
                  ls::batch(3),
              classes) == Weights{0.25, 0.25, 4.5, 1});
  CHECK(weights(ls::tensors(std::vector<float>(2), ls::shape(1),
                            std::vector<float>{0, 0, 0, 1, 0.5, 0.1f, 0.5, 0}, ls::shape(4)) |
                    ls::batch(3),
                classes) == Weights{4.5, 0.25});
}

TEST_CASE("positions have the weight of their example, times that of their class") {
  const std::vector<float> x(3);
  const std::vector<std::int32_t> y{0, 1, 2, 1, 1, 0};
  const auto data = ls::tensors(x, ls::shape(1), y, ls::shape(2));
  const auto weights = [](const auto& from, const ls::ClassWeights& classes, ls::Shape positions) {
    ls::Loader<float> loader(from | ls::batch(2), {}, classes, ls::FieldRole::weight, positions);
    CHECK(loader.fields().back().shape == positions);
    ls::LoadedBatch batch;
    loader.begin({});
    std::vector<double> all;
    while (loader.next(batch))
      for (std::size_t i = 0; i < batch.slice.count * positions.size(); ++i)
        all.push_back(static_cast<double>(batch.rows<float>(2)[i]));
    return all;
  };
  using Weights = std::vector<double>;
  const auto weighted = data | ls::sample_weights({1.0, 3.0, 0.5});
  CHECK(weights(weighted, {}, ls::shape(2)) == Weights{1, 1, 3, 3, 0.5, 0.5});
  CHECK(weights(data, {{1, 4.0}}, ls::shape(2)) == Weights{1, 4, 1, 4, 4, 1});
  CHECK(weights(weighted, {{1, 4.0}, {0, 2.0}}, ls::shape(2)) == Weights{2, 4, 3, 12, 2, 1});
  // One-hot: the class is the first maximum of each position.
  const auto rows = ls::tensors(std::vector<float>(2), ls::shape(1),
                                std::vector<float>{1, 0, 0, 1, 0, 1, 1, 0}, ls::shape(2, 2));
  CHECK(weights(rows, {{1, 4.0}}, ls::shape(2)) == Weights{1, 4, 4, 1});
}

TEST_CASE("invalid class weights are refused") {
  auto data = support::range(3) | ls::batch(2);
  const auto refuses = [&](const ls::ClassWeights& classes, const char* part) {
    CHECK_THROWS_WITH((ls::Loader<float>(data, {}, classes)),
                      ContainsSubstring("class_weight") && ContainsSubstring(part));
  };
  refuses({{-1, 2.0}}, "class is -1");
  refuses({{1, 2.0}, {0, 1.0}, {1, 3.0}}, "class 1 has two weights");
  refuses({{0, std::nan("")}}, "class 0 has weight nan");
  CHECK_THROWS_WITH(ls::Loader<float>(data, {}, {{0, 2.0}}, ls::FieldRole::feature),
                    ContainsSubstring("no targets"));
}

namespace {

/// Weight 10 i + k at position k of example i, with three positions.
std::vector<double> by_position(std::size_t n) {
  std::vector<double> w;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < 3; ++k) w.push_back(static_cast<double>(10 * i + k));
  return w;
}

/// The weights of all batches of three positions each.
template <class D>
std::vector<double> weights_by_position(const D& data, ls::Pass pass = {}) {
  const auto batches = data | ls::batch(4);
  ls::Loader<double> loader(batches, {}, {}, ls::FieldRole::weight, ls::shape(3));
  loader.begin(pass);
  std::vector<double> all;
  ls::LoadedBatch batch;
  while (loader.next(batch)) {
    const auto* const w = batch.rows<double>(2);
    all.insert(all.end(), w, w + 3 * batch.slice.count);
  }
  CHECK(ls::collect<double>(batches, pass).weights.size() % data.size().value() == 0);
  return all;
}

/// Expects the weights of by_position for each example of a pass, whose target is its number.
template <class D>
void expect_by_position(const D& data, std::size_t count, ls::Pass pass = {}) {
  CHECK(data.shape(2) == ls::shape(3));
  std::vector<double> expected;
  for (const auto label : support::gather_all<double>(data, pass).y)
    for (int k = 0; k < 3; ++k) expected.push_back(10 * static_cast<double>(label) + k);
  CHECK(expected.size() == 3 * count);
  CHECK(weights_by_position(data, pass) == expected);
}

}  // namespace

TEST_CASE("examples keep their weights by position through each operation") {
  const auto data = support::range(10) | ls::sample_weights(by_position(10), ls::shape(3));
  const auto odd = [](const auto& e) { return e.y[0] % 2 == 1; };
  expect_by_position(data, 10);
  expect_by_position(data | ls::skip(2) | ls::take(7), 7);
  expect_by_position(data | ls::shard(3, 1), 3);
  expect_by_position(data | ls::filter(odd), 5);
  expect_by_position(data | ls::map([](auto& e) { e.x[0] += 1; }) | ls::cache, 10);
  expect_by_position(data | ls::rescale(2) | ls::shuffle(10) | ls::repeat(2), 20, {3, 1});
  expect_by_position(data | ls::take(4) | ls::concatenate(data | ls::skip(4)), 10);
  expect_by_position(data | ls::shuffle_once(10), 10);
  // The order of the data is not that of their indices.
  std::vector<double> turned = by_position(10);
  std::rotate(turned.begin(), turned.begin() + 12, turned.end());
  expect_by_position((support::range(10) | ls::skip(4)) | ls::concatenate(support::range(4)) |
                         ls::sample_weights(turned, ls::shape(3)) | ls::shuffle(10),
                     10);
}

TEST_CASE("weights by position meet weights of examples") {
  using Weights = std::vector<double>;
  const auto two = support::range(2);
  const auto by_three = two | ls::sample_weights(by_position(2), ls::shape(3));
  const auto of_examples = two | ls::sample_weights({2, 3});
  const Weights product{0, 2, 4, 30, 33, 36};
  CHECK(weights_by_position(by_three | ls::sample_weights({2, 3})) == product);
  CHECK(weights_by_position(of_examples | ls::sample_weights(by_position(2), ls::shape(3))) ==
        product);
  CHECK(weights_by_position(ls::zip(by_three, of_examples)) == product);
  CHECK(weights_by_position(ls::zip(of_examples, by_three)) == product);
  CHECK(weights_by_position(ls::zip(two, by_three)) == Weights{0, 1, 2, 10, 11, 12});
  CHECK(weights_by_position(ls::zip(by_three, by_three)) == Weights{0, 1, 4, 100, 121, 144});
  CHECK(weights_by_position(of_examples) == Weights{2, 2, 2, 3, 3, 3});
  CHECK(weights_by_position(by_three | ls::concatenate(two)) ==
        Weights{0, 1, 2, 10, 11, 12, 1, 1, 1, 1, 1, 1});
  CHECK(weights_by_position(two | ls::concatenate(by_three)) ==
        Weights{1, 1, 1, 1, 1, 1, 0, 1, 2, 10, 11, 12});
  CHECK(weights_by_position(by_three | ls::features_as_targets) == Weights{0, 1, 2, 10, 11, 12});
  CHECK_THROWS_WITH(ls::zip(by_three, two | ls::sample_weights({1, 2, 3, 4}, ls::shape(2))),
                    ContainsSubstring("zip: the examples have weights of shape (3) and of shape "
                                      "(2)"));
  CHECK_THROWS_WITH(by_three | ls::concatenate(of_examples),
                    ContainsSubstring("weights have shape (3) in the first pipeline and ()"));
  CHECK_THROWS_WITH(two | ls::sample_weights({1, 2, 3, 4, 5}, ls::shape(3)),
                    ContainsSubstring("5 weights for 2 examples; give 3 for each, of shape (3)"));
  CHECK_THROWS_WITH(two | ls::sample_weights({1, 2}, ls::shape(0)),
                    ContainsSubstring("shape (0) has an extent below 1"));
  CHECK_THROWS_WITH(two | ls::sample_weights({1, 2, 3, 4, std::nan(""), 6}, ls::shape(3)),
                    ContainsSubstring("example 1 has weight nan"));
}

TEST_CASE("a row of an unbatched example has its own weight, or that of the example") {
  const auto bags = ls::tensors(std::vector<float>(12), ls::shape(3, 2),
                                std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}, ls::shape(3));
  CHECK(weights_of<double>(bags | ls::sample_weights(by_position(2), ls::shape(3)) | ls::unbatch |
                           ls::batch(6)) == std::vector<double>{0, 1, 2, 10, 11, 12});
  CHECK(weights_of<double>(bags | ls::sample_weights({2, 3}) | ls::unbatch | ls::batch(6)) ==
        std::vector<double>{2, 2, 2, 3, 3, 3});
  CHECK_THROWS_WITH(bags | ls::sample_weights({1, 2, 3, 4}, ls::shape(2)) | ls::unbatch,
                    ContainsSubstring("features of shape (3, 2) and weights of shape (2) differ"));
}
