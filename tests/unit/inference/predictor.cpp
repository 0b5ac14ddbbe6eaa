#include "lockstep/inference/predictor.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <lockstep/predictor.hpp>
#include <lockstep/reference.hpp>

#include "support/refusal.hpp"
#include "support/temporary_folder.hpp"

namespace ls = lockstep;
using testing::refusal;

namespace {

using Double = ls::Reference<double>;

struct Small : ls::Sequential<ls::Input<2>, ls::Dense<3>, ls::Tanh, ls::Dense<2>> {};
/// All that training and inference do differently, and values with two readers.
struct Wide
    : ls::Sequential<
          ls::Input<6, 6, 2>, ls::RandomFlip<>, ls::Conv2D<4, 3, ls::Padding::same>,
          ls::BatchNormalization<>, ls::ReLU, ls::GaussianNoise<ls::stddev(0.5f)>,
          ls::Residual<
              ls::Sequential<ls::Conv2D<4, 3, ls::Padding::same>, ls::BatchNormalization<>>>,
          ls::ReLU, ls::MaxPooling2D<>, ls::Flatten, ls::Dropout<ls::rate(0.5f)>,
          ls::Recompute<ls::Sequential<ls::Dense<8>, ls::GELU>>, ls::Dense<5>, ls::Softmax> {};

template <class Net, class D>
auto model_of(std::uint64_t seed = 1, D device = {}) {
  return ls::Model(Net{}, ls::Seed{seed}, ls::OneDevice<D>{.on = device}, ls::MeanSquaredError{},
                   ls::SGD{.learning_rate = 0.1f});
}

template <class T>
std::vector<T> numbers(std::size_t count, double phase = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(std::sin(0.7 * static_cast<double>(i) + phase));
  return values;
}

template <class T>
bool equal(std::span<const T> a, std::span<const T> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

template <class T>
bool equal(const ls::Predictions<T>& a, const ls::Predictions<T>& b) {
  return equal(a.elements(), b.elements());
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("Predictor: the outputs are those of the formula") {
  const TemporaryFolder folder;
  auto model = model_of<Small, Double>();
  model.set_weights("dense/kernel", std::vector<double>{1, 2, 3, 4, 5, 6});
  model.set_weights("dense/bias", std::vector<double>{0.5, -0.5, 0});
  model.set_weights("dense_1/kernel", std::vector<double>{1, -1, 2, 0, -1, 3});
  model.set_weights("dense_1/bias", std::vector<double>{10, 20});
  model.save_weights(folder / "w.safetensors");
  const ls::Predictor<Small, Double> predictor(folder / "w.safetensors");
  const std::vector<double> x{0.1, -0.2, 0.3, 0.05};
  std::vector<double> y(4);
  predictor(x, y);
  for (std::size_t n = 0; n < 2; ++n) {
    const double a = x[2 * n], b = x[2 * n + 1];
    const double h[] = {std::tanh(a + 4 * b + 0.5), std::tanh(2 * a + 5 * b - 0.5),
                        std::tanh(3 * a + 6 * b)};
    CHECK(std::abs(y[2 * n] - (h[0] + 2 * h[1] - h[2] + 10)) < 1e-14);
    CHECK(std::abs(y[2 * n + 1] - (-h[0] + 3 * h[2] + 20)) < 1e-14);
  }
}

TEST_CASE("Predictor: the bits are those of Model::predict, for any number of examples") {
  auto model = model_of<Wide, ls::Reference<float>>();
  const auto x = numbers<float>(70 * 72), y = numbers<float>(70 * 5);
  for (int step = 0; step < 3; ++step)
    model.train_on_batch(std::span(x).first(8 * 72), std::span(y).first(8 * 5));
  const ls::Predictor predictor(model);
  static_assert(
      std::is_same_v<decltype(predictor), const ls::Predictor<Wide, ls::Reference<float>>>);
  for (const std::size_t count : {1u, 5u, 32u, 70u, 1u}) {
    const std::span<const float> part(x.data(), count * 72);
    const auto expected = model.predict(part);
    CHECK(equal(expected, predictor.predict(part)));
  }
  const ls::Predictor all(model, {.batch_size = std::size_t{1} << 60});
  const auto at_once = model.predict(std::span(x), 70);
  CHECK(equal(at_once, all.predict(std::span(x))));
  const ls::Predictor few(model, {.batch_size = 3});
  const auto expected = model.predict(std::span(x).first(8 * 72), 3);
  CHECK(equal(expected, few.predict(std::span(x).first(8 * 72))));
}

TEST_CASE("Predictor: no examples give no outputs") {
  const ls::Predictor predictor(model_of<Small, Double>());
  CHECK(predictor.predict({}).count() == 0);
  CHECK(predictor.predict(std::vector<double>{1, 2}).example_shape() == ls::shape(2));
}

TEST_CASE("Predictor: sizes that do not fit are refused with what to pass") {
  const ls::Predictor predictor(model_of<Small, Double>());
  std::vector<double> x(4), y(3), odd(3);
  CHECK(
      refusal<ls::UsageError>([&] { predictor(x, y); }) ==
      "predictor: y has 3 values, but the outputs of 2 examples have 4; pass a span of that size");
  CHECK(refusal<ls::UsageError>([&] { predictor(odd, y); }) ==
        "predictor: 3 values are not a whole number of examples of shape (2), which have 2 values "
        "each; pass complete examples");
  CHECK(refusal<ls::UsageError>([&] { std::ignore = predictor.predict(odd); }) ==
        "predictor: 3 values are not a whole number of examples of shape (2), which have 2 values "
        "each; pass complete examples");
  CHECK(
      refusal<ls::UsageError>([&] { predictor(std::vector<double>(), y); }) ==
      "predictor: y has 3 values, but the outputs of 0 examples have 0; pass a span of that size");
  CHECK(refusal<ls::UsageError>([] {
          const ls::Predictor wrong(model_of<Small, Double>(), {.batch_size = 0});
        }) == "predictor: batch_size is 0; it must be at least 1");
}

TEST_CASE("Predictor: load_weights replaces all parameters") {
  const TemporaryFolder folder;
  auto first = model_of<Wide, Double>(1), second = model_of<Wide, Double>(2);
  const auto x = numbers<double>(4 * 72), y = numbers<double>(4 * 5);
  second.train_on_batch(x, y);  // changes the moving statistics
  second.save_weights(folder / "w.safetensors");
  ls::Predictor predictor(first);
  CHECK(equal(predictor.predict(x), first.predict(x)));
  predictor.load_weights(folder / "w.safetensors");
  CHECK(equal(predictor.predict(x), second.predict(x)));
  predictor.load_weights(first);
  CHECK(equal(predictor.predict(x), first.predict(x)));
}

TEST_CASE("Predictor: a file that is damaged or does not fit leaves the old weights") {
  const TemporaryFolder folder;
  const std::string good = folder / "good.safetensors", bad = folder / "bad.safetensors";
  model_of<Small, Double>(2).save_weights(good);
  const std::string bytes = bytes_of(good);
  REQUIRE(bytes.size() > 100);
  auto model = model_of<Small, Double>(1);
  ls::Predictor predictor(model);
  const std::vector<double> x{0.25, -1};
  const auto before = model.predict(x);
  const auto refused = [&] {
    CHECK_THROWS_AS(predictor.load_weights(bad), ls::WeightsError);
    CHECK_THROWS_AS((ls::Predictor<Small, Double>(bad)), ls::WeightsError);
    CHECK(equal(predictor.predict(x), before));
  };
  SECTION("cut off in the values") {
    write(bad, bytes.substr(0, bytes.size() - 8));
    refused();
  }
  SECTION("cut off in the header") {
    write(bad, bytes.substr(0, 40));
    refused();
  }
  SECTION("more bytes than the header names") {
    write(bad, bytes + "12345678");
    refused();
  }
  SECTION("a wrong length of the header") {
    std::string wrong = bytes;
    wrong[6] = '\x7f';
    write(bad, wrong);
    refused();
  }
  SECTION("no JSON in the header") {
    std::string wrong = bytes;
    wrong[9] = '}';
    write(bad, wrong);
    refused();
  }
  SECTION("an empty file") {
    write(bad, "");
    refused();
  }
  SECTION("a wrong name") {
    std::string wrong = bytes;
    wrong.replace(wrong.find("dense_1/bias"), 12, "dense_7/bias");
    write(bad, wrong);
    refused();
  }
  SECTION("another network") {
    model_of<Wide, Double>().save_weights(bad);
    refused();
  }
  SECTION("no such file") {
    CHECK_THROWS_AS(predictor.load_weights(folder / "none"), ls::FileError);
    CHECK(equal(predictor.predict(x), before));
  }
  predictor.load_weights(good);  // still possible
  CHECK(!equal(predictor.predict(x), before));
}

TEST_CASE("Predictor: threads that predict while weights change get whole sets") {
  const TemporaryFolder folder;
  auto a = model_of<Wide, ls::Reference<float>>(1), b = model_of<Wide, ls::Reference<float>>(2);
  const std::string path[] = {folder / "a.safetensors", folder / "b.safetensors"};
  a.save_weights(path[0]);
  b.save_weights(path[1]);
  write(folder / "bad.safetensors", bytes_of(path[0]).substr(0, 500));
  // Several batches per call: one set must serve all of them.
  const auto x = numbers<float>(7 * 72);
  const auto of_a = a.predict(x, 2), of_b = b.predict(x, 2);
  REQUIRE(!equal(of_a, of_b));
  ls::Predictor<Wide, ls::Reference<float>> predictor(path[0], {.batch_size = 2});

  constexpr int threads = 8, reloads = 30;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, calls{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&] {
      std::vector<float> y(7 * 5);
      while (!stop) {
        predictor(x, y);
        if (!equal<float>(y, of_a.elements()) && !equal<float>(y, of_b.elements())) ++wrong;
        ++calls;
      }
    });
  while (calls < threads) std::this_thread::yield();
  for (int i = 1; i <= reloads; ++i) {
    predictor.load_weights(path[i % 2]);
    const auto now = predictor.predict(x);  // calls that begin after load_weights use the new ones
    if (!equal(now, (i % 2 == 0 ? of_a : of_b))) ++wrong;
    if (i % 10 == 0)
      CHECK_THROWS_AS(predictor.load_weights(folder / "bad.safetensors"), ls::WeightsError);
  }
  stop = true;
  for (std::thread& thread : all) thread.join();
  CHECK(wrong == 0);
  CHECK(calls > threads);
}

TEST_CASE("Predictor: several threads may load weights at the same time") {
  const TemporaryFolder folder;
  auto a = model_of<Small, Double>(1), b = model_of<Small, Double>(2);
  a.save_weights(folder / "a");
  b.save_weights(folder / "b");
  ls::Predictor predictor(a);
  const std::vector<double> x{0.5, 2};
  const auto of_a = a.predict(x), of_b = b.predict(x);
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        predictor.load_weights(folder / (t % 2 == 0 ? "a" : "b"));
        const auto y = predictor.predict(x);
        if (!equal(y, of_a) && !equal(y, of_b)) ++wrong;
      }
    });
  for (std::thread& thread : all) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("Predictor: can be moved, also into a member that is assigned later") {
  auto a = model_of<Small, Double>(1), b = model_of<Small, Double>(2);
  const std::vector<double> x{0.5, 2};
  ls::Predictor first(a), second(b);
  static_assert(!std::is_copy_constructible_v<decltype(first)>);
  static_assert(std::is_nothrow_move_constructible_v<decltype(first)>);
  ls::Predictor moved(std::move(first));
  CHECK(equal(moved.predict(x), a.predict(x)));
  moved = std::move(second);
  CHECK(equal(moved.predict(x), b.predict(x)));
  first = std::move(moved);  // a predictor that was moved from
  CHECK(equal(first.predict(x), b.predict(x)));
}

TEST_CASE("Predictor: memory is that of one set of weights and of the calls") {
  ls::Predictor predictor(model_of<Wide, Double>());
  const ls::MemoryUse one = predictor.memory();
  CHECK(one.weights == Wide::trainable_count * sizeof(double));
  CHECK(one.state == (Wide::parameter_count - Wide::trainable_count) * sizeof(double));
  CHECK(one.gradients + one.optimizer + one.data == 0);
  CHECK(one.working > 0);
  predictor.reserve(4, 32);
  const ls::MemoryUse four = predictor.memory();
  CHECK(four.weights == one.weights);
  CHECK(four.working > 4 * one.working);
  predictor.reserve(4, 32);
  CHECK(predictor.memory().total() == four.total());
}
