/// \file
/// The contract of all synthetic image data sets.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "lockstep/core/shape.hpp"

namespace drawn {

/// `draw(train, test, seed)` returns the data set.
template <class Draw>
void check_seed_and_index(const Draw& draw) {
  const auto few = draw(37, 5, 3).train(), many = draw(90, 5, 3).train();
  CHECK(std::equal(few.features().begin(), few.features().end(), many.features().begin()));
  CHECK(std::equal(few.targets().begin(), few.targets().end(), many.targets().begin()));
  const auto other = draw(37, 37, 4);
  const auto train = other.train(), test = other.test();
  CHECK(!std::equal(few.features().begin(), few.features().end(), train.features().begin()));
  CHECK(!std::equal(test.features().begin(), test.features().end(), train.features().begin()));
}

/// `splits`: 200 training examples and 30 test examples.
template <class Splits>
void check_classes(const Splits& splits, lockstep::Shape shape) {
  const auto data = splits.train();
  CHECK(data.shape() == shape);
  CHECK(data.shape(1) == lockstep::Shape{});
  CHECK(splits.test().size() == 30u);
  std::set<std::vector<std::int32_t>> orders;
  for (std::size_t ten = 0; ten < 200; ten += 10) {
    const auto labels = data.targets().subspan(ten, 10);
    CHECK(std::set<std::int32_t>(labels.begin(), labels.end()).size() == 10);
    orders.emplace(labels.begin(), labels.end());
  }
  CHECK(orders.size() > 10);
}

}  // namespace drawn
