#include "lockstep/core/shape.hpp"

#include <catch2/catch_test_macros.hpp>

using lockstep::shape;
using lockstep::Shape;

TEST_CASE("a shape without axes is a scalar") {
  CHECK(shape().rank == 0);
  CHECK(shape().size() == 1);
  CHECK(shape().channels() == 1);
  CHECK(to_string(shape()) == "()");
}

TEST_CASE("size is the product of the extents, and channels is the last extent") {
  CHECK(shape(28, 28, 1).size() == 784);
  CHECK(shape(28, 28, 1).channels() == 1);
  CHECK(shape(3, 5, 7, 11).size() == 3 * 5 * 7 * 11);
  CHECK(shape(3, 5, 7, 11).channels() == 11);
  CHECK(shape(10).channels() == 10);
  CHECK(shape(26, 24, 32)[0] == 26);
  CHECK(shape(26, 24, 32)[1] == 24);
}

TEST_CASE("size does not overflow an int") {
  CHECK(shape(60000, 60000, 3).size() == 10'800'000'000u);
}

TEST_CASE("shapes of equal size but different axes are not equal") {
  CHECK(shape(4, 1) != shape(4));
  CHECK(shape(2, 3) != shape(3, 2));
  CHECK(shape(2, 3) == shape(2, 3));
}

TEST_CASE("a shape is formatted as in Keras") {
  CHECK(to_string(shape(26, 26, 32)) == "(26, 26, 32)");
  CHECK(to_string(shape(10)) == "(10)");
  CHECK(to_string(shape(26, 26, 32), "None") == "(None, 26, 26, 32)");
  CHECK(to_string(shape(), "64") == "(64)");
}

namespace {
template <Shape S>
struct Sized {
  static constexpr auto size = S.size();
};
}  // namespace

TEST_CASE("a shape can be a template argument") { CHECK(Sized<shape(5, 5, 3)>::size == 75); }
