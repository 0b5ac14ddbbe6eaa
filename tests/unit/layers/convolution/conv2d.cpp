/// \file
/// Groups of Conv2D and Conv1D; the golden tests check the layers' numbers.
#include "lockstep/layers/convolution/conv2d.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "support/kernel_numbers.hpp"

namespace ls = lockstep;

TEST_CASE("the parameters of grouped convolutions have Keras' shapes and fans") {
  struct Net : ls::Sequential<ls::Input<8, 8, 6>, ls::Conv2D<9, ls::kernel(3, 2), ls::groups(3)>,
                              ls::Reshape<ls::shape(42, 9)>, ls::Conv1D<6, 5, ls::groups(3)>> {};
  const auto infos = ls::detail::parameters_of<Net>();
  REQUIRE(infos.size() == 4);
  CHECK(infos[0].shape == ls::shape(3, 2, 2, 9));
  CHECK(infos[1].shape == ls::shape(9));
  CHECK(infos[2].shape == ls::shape(5, 3, 6));
  CHECK(infos[3].shape == ls::shape(6));
  CHECK(Net::graph.parameter[0].fans.in == 12);
  CHECK(Net::graph.parameter[0].fans.out == 54);
  CHECK(Net::graph.flops == 2.0 * 3 * 2 * 2 * (6 * 7 * 9) + 2.0 * 5 * 3 * (38 * 6));
}

TEST_CASE("the signature has groups only where there are several") {
  struct One : ls::Sequential<ls::Input<4, 4, 2>, ls::Conv2D<2, 3, ls::groups(1)>> {};
  struct Two : ls::Sequential<ls::Input<4, 4, 2>, ls::Conv2D<2, 3, ls::groups(2)>> {};
  CHECK(
      ls::detail::describe_layers<One>() ==
      "conv2d (filters 2, kernel_size (3, 3), strides (1, 1), dilation_rate (1, 1), padding valid, use_bias yes) to (2, 2, 2), kernel (3, 3, 2, 2), bias (2)");
  CHECK(
      ls::detail::describe_layers<Two>() ==
      "conv2d (filters 2, kernel_size (3, 3), strides (1, 1), dilation_rate (1, 1), padding valid, use_bias yes, groups 2) to (2, 2, 2), kernel (3, 3, 1, 2), bias (2)");
}

TEST_CASE("a grouped convolution is a convolution of each group") {
  for (const auto& op :
       {ls::Conv2D<6, ls::kernel(3, 2), ls::same, ls::strides(2, 1), ls::groups(3)>::op(
            ls::shape(5, 7, 9)),
        ls::Conv2D<4, 1, ls::groups(4)>::op(ls::shape(1, 1, 4))}) {
    const std::size_t groups = static_cast<std::size_t>(op.groups), count = 2;
    const auto channels = static_cast<std::size_t>(op.group_channels()),
               filters = static_cast<std::size_t>(op.group_filters());
    const auto n = testing::numbers(op, op.in.size(), op.weights(), count);
    const auto whole = testing::run<ls::Reference<double>>(op, count, n);
    auto part = op;
    part.in = ls::shape(op.in[0], op.in[1], op.group_channels());
    part.filters = op.group_filters();
    part.groups = 1;
    // The last axis of `from` holds `each` values of every group.
    const auto of_group = [&](const auto& from, std::size_t g, std::size_t each) {
      std::vector<typename std::decay_t<decltype(from)>::value_type> result;
      for (std::size_t i = 0; i < from.size(); ++i)
        if (i / each % groups == g) result.push_back(from[i]);
      return result;
    };
    for (std::size_t g = 0; g < groups; ++g) {
      CAPTURE(g);
      // The bias, of all filters, follows the kernel, whose last axis is that of all filters.
      const auto own =
          testing::run<ls::Reference<double>>(part, count,
                                              testing::Numbers{of_group(n.x, g, channels),
                                                               of_group(n.w, g, filters),
                                                               of_group(n.dy, g, filters),
                                                               {}});
      CHECK(of_group(whole.y, g, filters) == own.y);
      CHECK(of_group(whole.dx, g, channels) == own.dx);
      CHECK(of_group(whole.dw, g, filters) == own.dw);
    }
  }
}
