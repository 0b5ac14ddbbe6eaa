/// \file
#include "lockstep/layers/embedding.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/layers/position_embedding.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;
constexpr auto op = ls::Embedding<4, 2>::op(ls::shape(3));
const std::vector<double> table{0, 1, 10, 11, 20, 21, 30, 31};

}  // namespace

TEST_CASE("an embedding looks up its indices and sums the gradients of equal ones") {
  const auto run = testing::run_layer<Double>(op, 2, {3, 0, 3, 1, 3, 1}, table,
                                              {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(run.y == std::vector<double>{30, 31, 0, 1, 30, 31, 10, 11, 30, 31, 10, 11});
  CHECK(run.dw == std::vector<double>{3, 4, 18, 20, 0, 0, 15, 18});
  CHECK(run.dx == std::vector<double>(6, 0));
}

TEST_CASE("an index outside the table is refused") {
  for (const double number : {-1.0, 4.0, 1.5, -0.5, 1e30, std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity()}) {
    CAPTURE(number);
    std::string message;
    try {
      testing::run_layer<Double>(op, 1, {0, number, 1}, table, {}, {.training = false});
    } catch (const ls::UsageError& error) {
      message = error.what();
    }
    CHECK(message.find("whole numbers from 0 to 3; check the data") != std::string::npos);
  }
}

TEST_CASE("a vocabulary too large for exact float32 indices is refused on a float32 device") {
  constexpr auto large = ls::EmbeddingOp{ls::shape(1), (1 << 24) + 1, 1};
  std::string message;
  try {
    testing::run_layer<ls::Reference<float>>(large, 1, {0}, std::vector<float>(large.table_size()),
                                             {}, {.training = false});
  } catch (const ls::UsageError& error) {
    message = error.what();
  }
  CHECK(message.find("float32 represents whole numbers exactly only up to 16777216") !=
        std::string::npos);
}

TEST_CASE("embeddings start between -0.05 and 0.05, as in Keras, unless an option overrides it") {
  const auto first = [](const ls::Parameter& p) {
    std::vector<double> values(8);
    ls::Philox g(1);
    p.initializer(g, p.shape, p.fans, values);
    return values;
  };
  for (const double v : first(ls::Embedding<4, 2>::parameters(ls::shape(3))[0]))
    CHECK((v > -0.05 && v < 0.05 && v != 0));
  CHECK(first(ls::Embedding<4, 2, ls::ones>::parameters(ls::shape(3))[0]) ==
        std::vector<double>(8, 1));
  CHECK(ls::Embedding<4, 2, ls::kernel_regularizer(ls::L2{0.5})>::parameters(ls::shape(3))[0]
            .penalty.l2 == 0.5);
}

TEST_CASE(
    "learned positions are added to the steps of each example, and get the sums of its gradients") {
  constexpr auto added = ls::PositionEmbedding<4>::op(ls::shape(3, 2));
  const auto run = testing::run_layer<Double>(added, 2, {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6},
                                              table, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(run.y == std::vector<double>{1, 3, 13, 15, 25, 27, -1, -1, 7, 7, 15, 15});
  CHECK(run.dx == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(run.dw == std::vector<double>{8, 10, 12, 14, 16, 18, 0, 0});
}
