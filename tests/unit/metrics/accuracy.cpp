#include "lockstep/metrics/accuracy.hpp"

#include <array>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "lockstep/reference.hpp"

namespace ls = lockstep;

namespace {

/// {correct, all} after one run that starts from {10, 20}.
template <class T, class Target>
std::array<double, 2> run(int classes, const std::vector<T>& p,
                          const std::vector<ls::target_as<Target, T>>& t) {
  using D = ls::Reference<T>;
  const auto op = ls::Accuracy{}.op<Target>(ls::shape(classes));
  auto context = D{}.open(1, 0);
  std::array<double, 2> state{10, 20};
  ls::Kernel<ls::AccuracyOp<Target>, D>::run(
      op, {context, p.size() / op.size(), p.data(), t.data(), state.data()});
  return {state[0] - 10, state[1] - 20};
}

using Counts = std::array<double, 2>;

}  // namespace

TEMPLATE_TEST_CASE("Accuracy against labels counts where the largest output is the label", "",
                   float, double) {
  const std::vector<TestType> p{1, 5, 2, 7, 0, 1, 0, 0, 9};
  CHECK(run<TestType, std::int32_t>(3, p, {1, 0, 2}) == Counts{3, 3});
  CHECK(run<TestType, std::int32_t>(3, p, {1, 1, 1}) == Counts{1, 3});
}

TEST_CASE("Accuracy uses the first of equal maxima") {
  CHECK(run<double, std::int32_t>(3, {4, 4, 1, 0, 3, 3}, {0, 2}) == Counts{1, 2});
  CHECK(run<double, float>(3, {4, 4, 1}, {0, 1, 1}) == Counts{0, 1});
  CHECK(run<double, float>(3, {1, 4, 4}, {0, 1, 1}) == Counts{1, 1});
}

TEMPLATE_TEST_CASE("Accuracy against vectors compares the indices of the maxima", "", float,
                   double) {
  CHECK(run<TestType, float>(2, {0, 1, 1, 0}, {0, 1, 0, 1}) == Counts{1, 2});
}

TEST_CASE("Accuracy of one output compares it with 0.5") {
  CHECK(run<float, float>(1, {0.4f, 0.5f, 0.6f, 0.7f}, {0, 0, 1, 0}) == Counts{3, 4});
  CHECK(run<double, std::int32_t>(1, {0.4, 0.6, 0.6}, {0, 1, 0}) == Counts{2, 3});
}

TEST_CASE("Accuracy is the fraction of correct predictions, 0 without examples") {
  const std::array<double, 2> state{3, 4}, empty{0, 0};
  CHECK(ls::Accuracy{}.result(state.data()) == 0.75);
  CHECK(ls::Accuracy{}.result(empty.data()) == 0);
}

TEST_CASE("Accuracy refuses outputs that are not vectors") {
  STATIC_CHECK(ls::Accuracy::accepts<std::int32_t>(ls::shape(10)));
  STATIC_CHECK(ls::Accuracy::accepts<std::int32_t>(ls::shape(4, 10)));
  STATIC_CHECK(!ls::Accuracy::accepts<std::int32_t>(ls::shape()));
  STATIC_CHECK(!ls::Accuracy::accepts<double>(ls::shape(10)));
}
