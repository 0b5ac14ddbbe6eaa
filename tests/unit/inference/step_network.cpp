#include "lockstep/inference/step_network.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <type_traits>

#include "unit/inference/text_networks.hpp"

namespace ls = lockstep;
using namespace testing::text;

namespace {

template <int Steps>
struct Text : ls::Sequential<ls::Input<Steps>, ls::Embedding<40, 16>, ls::PositionEmbedding<2048>,
                             ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                         ls::MultiHeadAttention<2, 8, ls::causal>>>,
                             ls::SwiGLU<32>, ls::Dense<40>> {};

/// Multiplications and additions of one step in the layers of op type O, or in all others.
template <class Net, class O>
double flops_of(bool others) {
  const auto& graph = ls::detail::StepNetwork<Net>::graph;
  using Ops = typename std::remove_cvref_t<decltype(graph)>::ops;
  double sum = 0;
  for (int i = 0; i < graph.nodes; ++i) {
    const ls::detail::Node& n = graph.node[static_cast<std::size_t>(i)];
    if ((n.type != ls::detail::index_in<O>(Ops{})) == others) sum += n.flops;
  }
  return sum;
}

template <class Net>
void check_layers() {
  const auto& graph = ls::detail::StepNetwork<Net>::graph;
  REQUIRE(graph.nodes == Net::graph.nodes);
  CHECK(graph.weights == Net::graph.weights);
  CHECK(graph.state == Net::graph.state);
  for (int i = 0; i < graph.nodes; ++i) {
    const auto &step = graph.node[static_cast<std::size_t>(i)],
               &whole = Net::graph.node[static_cast<std::size_t>(i)];
    CHECK(ls::detail::layer_name(step) == ls::detail::layer_name(whole));
    CHECK((step.w == whole.w && step.w_count == whole.w_count && step.state == whole.state));
    ls::Shape expected = Net::graph.value[whole.out];
    expected.extent[0] = 1;
    CHECK(graph.value[step.out] == expected);
  }
}

}  // namespace

TEST_CASE("StepNetwork: has the layers and the weights of the network, and one step") {
  check_layers<Gpt>();
  check_layers<Llama<8>>();
  check_layers<Windowed>();
  check_layers<Graphs>();
  static_assert(ls::detail::StepNetwork<Gpt>::output_shape == ls::shape(1, 13));
}

TEST_CASE("StepNetwork: only attention to cached keys costs more in a longer context") {
  using Attention = ls::CachedAttentionOp;
  CHECK(flops_of<Text<8>, Attention>(true) == flops_of<Text<2048>, Attention>(true));
  CHECK(flops_of<Text<8>, Attention>(true) == 2.0 * (2 * 16 * 32 + 32 * 40));
  // Four products of 16 by 16, and two of each key.
  CHECK(flops_of<Text<8>, Attention>(false) == 2.0 * (4 * 16 * 16 + 2 * 16 * 8));
  CHECK(flops_of<Text<2048>, Attention>(false) == 2.0 * (4 * 16 * 16 + 2 * 16 * 2048));
}
