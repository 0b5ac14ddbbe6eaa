#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/training/parameters.hpp"
#include "unit/layers/resnet.hpp"

namespace {

struct ResNet56 : resnet::ResNet<9> {};

// Keras counts 858,202 trainable and 862,490 total parameters for the tutorial's program.
static_assert(ResNet56::trainable_count == 858'202);
static_assert(ResNet56::parameter_count == 862'490);
static_assert(ResNet56::output_shape == lockstep::shape(10));

}  // namespace

TEST_CASE("ResNet-56 has Keras' names, down to the last block") {
  int convolutions = 0, norms = 0;
  for (int i = 0; i < ResNet56::graph.nodes; ++i) {
    const auto& n = ResNet56::graph.node[static_cast<std::size_t>(i)];
    convolutions += n.name == "conv2d";
    norms += n.name == "batch_normalization";
  }
  CHECK(convolutions == 1 + 3 * (2 * 9 + 1));
  CHECK(norms == convolutions);
  const auto infos = lockstep::detail::parameters_of<ResNet56>();
  CHECK(infos.front().name == "conv2d/kernel");
  CHECK(infos[infos.size() - 3].name == "batch_normalization_57/moving_variance");
  CHECK(infos.back().name == "dense/bias");
}

TEST_CASE("moving statistics are stored apart from the trained weights") {
  std::size_t weights = 0, state = 0;
  for (const auto& p : lockstep::detail::parameters_of<ResNet56>()) {
    std::size_t& next = p.trainable ? weights : state;
    REQUIRE(p.offset == next);
    next += p.size();
  }
  CHECK(state == 862'490 - 858'202);
}
