/// \file
#include "lockstep/layers/average_pooling2d.hpp"

#include "lockstep/layers/global_average_pooling2d.hpp"
#include "pooling_ops.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("average pooling of generated windows agrees with the reference") {
  Philox g(4);
  for (int i = 0; i < generated_shapes; ++i) {
    const AveragePooling2DOp op{generated_window(g)};
    INFO(describe(op.window));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, op.window.in.size(), 0, count));
  }
}

TEST_CASE("global average pooling of generated images agrees with the reference") {
  Philox g(5);
  for (int i = 0; i < generated_shapes; ++i) {
    const GlobalAveragePooling2DOp op{
        shape(between(g, 1, 20), between(g, 1, 20), between(g, 1, 33))};
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, 1, 9));
    check_against_reference(op, count, numbers(op, op.in.size(), 0, count));
  }
}
