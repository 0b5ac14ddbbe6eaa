#include "lockstep/model/graph.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/repeat.hpp"
#include "lockstep/model/residual.hpp"
#include "lockstep/training/parameters.hpp"

namespace {

namespace ls = lockstep;

// The CNN of the tutorials, with 347,146 parameters in Keras' summary.
struct Cnn : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};
static_assert(Cnn::parameter_count == 347'146 && Cnn::trainable_count == 347'146);
static_assert(Cnn::input_shape == ls::shape(28, 28, 1) && Cnn::output_shape == ls::shape(10));

struct Block : ls::Sequential<ls::Dense<4>, ls::ReLU> {};
struct Nested : ls::Sequential<ls::Input<4>, ls::Dense<4>, ls::Repeat<2, Block>,
                               ls::Residual<ls::Dense<4>, ls::Dense<4, ls::no_bias>>,
                               ls::Repeat<0, ls::Dense<4>>, ls::Dense<1>> {};

template <class Net>
std::vector<std::string> layer_names() {
  std::vector<std::string> names;
  for (int i = 0; i < Net::graph.nodes; ++i) {
    const auto& n = Net::graph.node[static_cast<std::size_t>(i)];
    names.push_back(ls::detail::layer_name(n.name, n.ordinal));
  }
  return names;
}

template <class Net>
std::vector<std::string> parameter_names() {
  std::vector<std::string> names;
  for (const auto& p : ls::detail::parameters_of<Net>()) names.push_back(p.name);
  return names;
}

struct Head : ls::Dense<5> {
  static constexpr std::string_view name = "head";
};

}  // namespace

TEST_CASE("layers are named as in Keras, the second of a kind with _1") {
  CHECK(layer_names<Cnn>() == std::vector<std::string>{"conv2d", "re_lu", "max_pooling2d",
                                                       "flatten", "dense", "re_lu_1", "dense_1"});
  CHECK(parameter_names<Cnn>() == std::vector<std::string>{"conv2d/kernel", "conv2d/bias",
                                                           "dense/kernel", "dense/bias",
                                                           "dense_1/kernel", "dense_1/bias"});
}

TEST_CASE("custom layer names are numbered as in Keras") {
  struct Net : ls::Sequential<ls::Input<4>, Head, ls::Dense<3>, Head> {};
  CHECK(layer_names<Net>() == std::vector<std::string>{"head", "dense", "head_1"});
  CHECK(parameter_names<Net>() == std::vector<std::string>{"head/kernel", "head/bias",
                                                           "dense/kernel", "dense/bias",
                                                           "head_1/kernel", "head_1/bias"});
}

TEST_CASE("Dense over steps or pixels has Keras' shapes: its parameters know the last axis only") {
  struct Net : ls::Sequential<ls::Input<6, 5, 3>, ls::Dense<4, ls::relu>,
                              ls::Reshape<ls::shape(30, 4)>, ls::Dense<2>> {};
  const auto infos = ls::detail::parameters_of<Net>();
  CHECK(infos[0].shape == ls::shape(3, 4));
  CHECK(infos[1].shape == ls::shape(4));
  CHECK(infos[2].shape == ls::shape(4, 2));
  CHECK(Net::output_shape == ls::shape(30, 2));
  CHECK(Net::graph.node[0].flops == 2.0 * 30 * 3 * 4);
}

TEST_CASE("shapes and offsets of the seed CNN are Keras'") {
  const auto infos = ls::detail::parameters_of<Cnn>();
  CHECK(infos[0].shape == ls::shape(3, 3, 1, 32));
  CHECK(infos[2].shape == ls::shape(5408, 64));
  CHECK(infos[4].shape == ls::shape(64, 10));
  std::size_t offset = 0;  // contiguous, without gaps
  for (const auto& info : infos) {
    CHECK(info.offset == offset);
    offset += info.size();
  }
  CHECK(offset == 347'146);
}

TEST_CASE("FLOPs of the seed CNN match a manual count") {
  const double conv = 2.0 * 9 * 26 * 26 * 32, dense = 2.0 * 5408 * 64 + 2.0 * 64 * 10;
  CHECK(Cnn::graph.flops == conv + dense);
}

TEST_CASE("blocks, branches and repetitions share one numbering") {
  CHECK(layer_names<Nested>() == std::vector<std::string>{"dense", "dense_1", "re_lu", "dense_2",
                                                          "re_lu_1", "dense_3", "dense_4", "add",
                                                          "dense_5"});
  // Without its bias the skip branch has one parameter; Repeat<0, ...> adds nothing.
  CHECK(parameter_names<Nested>() ==
        std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias",
                                 "dense_2/kernel", "dense_2/bias", "dense_3/kernel", "dense_3/bias",
                                 "dense_4/kernel", "dense_5/kernel", "dense_5/bias"});
  CHECK(Nested::parameter_count == 4 * 20 + 16 + 5);
}

TEST_CASE("equal ops are stored once") {
  const auto& pool = Nested::graph.pool;
  CHECK(pool.of<ls::DenseOp>().count == 3);  // 4 to 4, 4 to 4 without bias, 4 to 1
  CHECK(pool.of<ls::ReLUOp>().count == 1);
}

TEST_CASE("the output of a model with only a view is its input") {
  struct View : ls::Sequential<ls::Input<2, 3>, ls::Flatten> {};
  CHECK(View::output_shape == ls::shape(6));
  CHECK(View::parameter_count == 0);
}
