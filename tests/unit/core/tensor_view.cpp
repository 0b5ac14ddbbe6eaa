#include "lockstep/core/tensor_view.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>
#include <vector>

using Catch::Matchers::Equals;
using Catch::Matchers::MessageMatches;
using lockstep::shape;
using lockstep::TensorView;

namespace {
std::vector<float> counted(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}
}  // namespace

TEST_CASE("rows are contiguous") {
  auto values = counted(24);
  const TensorView<float> view(values.data(), 4, shape(2, 3));
  CHECK(view.count() == 4);
  CHECK(view.size() == 24);
  CHECK(view.example_shape() == shape(2, 3));
  CHECK(view.row(2).size() == 6);
  CHECK(view.row(2).front() == 12.0f);
  CHECK(view.row(3).back() == 23.0f);
  CHECK(view.elements().size() == 24);
}

TEST_CASE("rows(first, count) is a view of a range of the batch") {
  auto values = counted(24);
  const auto part = TensorView<float>(values.data(), 4, shape(6)).rows(1, 2);
  CHECK(part.count() == 2);
  CHECK(part.row(0).front() == 6.0f);
  CHECK(part.elements().back() == 17.0f);
  CHECK(part.rows(2, 0).size() == 0);
}

TEST_CASE("a view writes to the memory it refers to") {
  auto values = counted(6);
  TensorView<float>(values.data(), 2, shape(3)).row(1)[2] = -1.0f;
  CHECK(values[5] == -1.0f);
}

TEST_CASE("a view of mutable elements is a view of const ones, and not the reverse") {
  auto values = counted(6);
  const TensorView<float> view(values.data(), 2, shape(3));
  const TensorView<const float> fixed = view;
  CHECK(fixed.data() == values.data());
  CHECK(fixed.count() == 2);
  STATIC_CHECK_FALSE(std::is_convertible_v<TensorView<const float>, TensorView<float>>);
}

TEST_CASE("a span is viewed as all of its examples") {
  auto values = counted(12);
  const TensorView<float> view(std::span<float>(values), shape(2, 2));
  CHECK(view.count() == 3);
  CHECK(TensorView<float>(std::span<float>(), shape(5)).count() == 0);
}

TEST_CASE("a span that is not a whole number of examples is an error that states both sizes") {
  auto values = counted(13);
  CHECK_THROWS_MATCHES(
      TensorView<float>(std::span<float>(values), shape(2, 2)), lockstep::UsageError,
      MessageMatches(Equals("tensor_view: 13 elements are not a whole number of examples of shape "
                            "(2, 2); check the shape")));
}

TEST_CASE("a default view is empty") {
  CHECK(TensorView<double>{}.count() == 0);
  CHECK(TensorView<double>{}.size() == 0);
}
