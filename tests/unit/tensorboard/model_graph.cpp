#include "lockstep/tensorboard/model_graph.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;

namespace {

using Strings = std::vector<std::string>;

struct Net : ls::Sequential<ls::Input<6, 6, 1>, ls::Conv2D<2, 3>,
                            ls::Residual<ls::Conv2D<2, 3, ls::Padding::same>>,
                            ls::BatchNormalization<>, ls::ReLU, ls::Flatten, ls::Dense<3>> {};

const ls::GraphNode& named(const std::vector<ls::GraphNode>& nodes, const std::string& name) {
  for (const auto& node : nodes)
    if (node.name == name) return node;
  FAIL("no node " << name);
  return nodes.front();
}

struct Head : ls::Sequential<ls::Dense<3>> {
  static constexpr std::string_view name = "head";
};
struct Blocks : ls::Sequential<ls::Input<4>, Head, ls::Dense<2>> {};

}  // namespace

TEST_CASE("a graph has a scope for each layer, with its parameters") {
  const auto nodes = ls::graph_of(ls::architecture<Net>());
  Strings names;
  for (const auto& node : nodes) names.push_back(node.name);
  CHECK(names == Strings{"input", "conv2d/kernel", "conv2d/bias", "conv2d/Conv2D",
                         "conv2d_1/kernel", "conv2d_1/bias", "conv2d_1/Conv2D", "add/Add",
                         "batch_normalization/gamma", "batch_normalization/beta",
                         "batch_normalization/moving_mean", "batch_normalization/moving_variance",
                         "batch_normalization/BatchNormalization", "re_lu/ReLU", "flatten/Flatten",
                         "dense/kernel", "dense/bias", "dense/Dense"});
  CHECK(named(nodes, "conv2d/Conv2D").inputs == Strings{"input", "conv2d/kernel", "conv2d/bias"});
  CHECK(named(nodes, "add/Add").inputs == Strings{"conv2d_1/Conv2D", "conv2d/Conv2D"});
  CHECK(named(nodes, "conv2d/Conv2D").op == "Conv2D");
  CHECK(named(nodes, "conv2d/Conv2D").output == ls::shape(4, 4, 2));
  CHECK(named(nodes, "input").output == ls::shape(6, 6, 1));
  CHECK_FALSE(named(nodes, "dense/kernel").output);
}

TEST_CASE("a named block is a scope around those of its layers") {
  const auto nodes = ls::graph_of(ls::architecture<Blocks>());
  Strings names;
  for (const auto& node : nodes) names.push_back(node.name);
  CHECK(names == Strings{"input", "head/dense/kernel", "head/dense/bias", "head/dense/Dense",
                         "dense/kernel", "dense/bias", "dense/Dense"});
  CHECK(named(nodes, "dense/Dense").inputs ==
        Strings{"head/dense/Dense", "dense/kernel", "dense/bias"});
}

TEST_CASE("a graph's nodes have options and shapes of parameters as attributes") {
  const auto nodes = ls::graph_of(ls::architecture<Net>());
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  CHECK(named(nodes, "dense/kernel").attributes ==
        Attributes{{"shape", "(32, 3)"}, {"trainable", "yes"}});
  CHECK(named(nodes, "batch_normalization/moving_mean").attributes ==
        Attributes{{"shape", "(2)"}, {"trainable", "no"}});
  std::string found;
  for (const auto& [name, value] : named(nodes, "conv2d_1/Conv2D").attributes)
    found += name + "=" + value + ";";
  INFO(found);
  CHECK(found.find("filters=2;") != found.npos);
  CHECK(found.find("kernel_size=(3, 3);") != found.npos);
  CHECK(found.find("padding=same;") != found.npos);
}

TEST_CASE("a further call of a shared layer is within its scope, with the same parameters") {
  struct Twice : ls::Graph<ls::In<"a", 3>, ls::In<"b", 3>,
                           ls::Let<"x", ls::From<"a">, ls::Shared<"key", ls::Dense<2>>>,
                           ls::Let<"y", ls::From<"b">, ls::Shared<"key", ls::Dense<2>>>,
                           ls::Out<"sum", ls::From<"x", "y">, ls::Add>> {};
  const auto nodes = ls::graph_of(ls::architecture<Twice>());
  Strings names;
  for (const auto& node : nodes) names.push_back(node.name);
  CHECK(names == Strings{"input", "a/InputLayer", "b/InputLayer", "dense/kernel", "dense/bias",
                         "dense/Dense", "dense/call_1/Dense", "add/Add"});
  CHECK(named(nodes, "dense/call_1/Dense").inputs ==
        Strings{"b/InputLayer", "dense/kernel", "dense/bias"});
  CHECK(named(nodes, "add/Add").inputs == Strings{"dense/Dense", "dense/call_1/Dense"});
}
