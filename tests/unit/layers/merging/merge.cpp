/// \file
#include "lockstep/layers/merging/merge.hpp"

#include "golden/networks.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/statement_graph.hpp"
#include "lockstep/reference.hpp"
#include "support/branches.hpp"

namespace {

namespace ls = lockstep;

using Words = ls::Embedding<7, 3, ls::mask_zero>;
template <class Rule>
struct Pair : ls::Graph<ls::In<"a", ls::Integers<5>>, ls::In<"b", ls::Integers<5>>,
                        ls::Let<"wa", ls::From<"a">, Words>, ls::Let<"wb", ls::From<"b">, Words>,
                        ls::Let<"m", ls::From<"wa", "wb">, Rule>,
                        ls::Out<"steps", ls::From<"m">, ls::Flatten>,
                        ls::Out<"state", ls::From<"m">, ls::GRU<2>>> {};
template <class Rule>
struct WithPlain
    : ls::Graph<ls::In<"a", ls::Integers<5>>, ls::In<"b", ls::Integers<5>>, ls::In<"x", 5, 2>,
                ls::Let<"wa", ls::From<"a">, Words>, ls::Let<"wb", ls::From<"b">, Words>,
                ls::Let<"p", ls::From<"x">, ls::Dense<3>>,
                ls::Let<"m", ls::From<"wa", "wb", "p">, Rule>,
                ls::Out<"steps", ls::From<"m">, ls::Flatten>,
                ls::Out<"state", ls::From<"m">, ls::GRU<2>>> {};
struct PlainFirst
    : ls::Graph<ls::In<"x", 5, 2>, ls::In<"a", ls::Integers<5>>,
                ls::Let<"p", ls::From<"x">, ls::Dense<3>>, ls::Let<"w", ls::From<"a">, Words>,
                ls::Let<"m", ls::From<"p", "w">, ls::Maximum>,
                ls::Out<"steps", ls::From<"m">, ls::Flatten>,
                ls::Out<"state", ls::From<"m">, ls::GRU<2>>> {};
struct Gate : ls::Graph<ls::In<"a", ls::Integers<5>>, ls::Let<"w", ls::From<"a">, Words>,
                        ls::Let<"g", ls::From<"w">, ls::Dense<3, ls::sigmoid>>,
                        ls::Let<"m", ls::From<"w", "g">, ls::Multiply>,
                        ls::Out<"steps", ls::From<"m">, ls::Flatten>,
                        ls::Out<"state", ls::From<"m">, ls::GRU<2>>> {};
/// Without masks.
struct PlainPair
    : ls::Sequential<ls::Input<5, 2>, ls::Parallel<ls::Multiply, ls::Dense<3>, ls::Dense<3>>> {};
template <class Net>
constexpr std::size_t most_operands = [] {
  std::size_t most = 0;
  for (int i = 0; i < Net::graph.nodes; ++i)
    most = std::max(most, Net::graph.node[std::size_t(i)].operands());
  return most;
}();

}  // namespace

TEST_CASE("merges of any number of values are plain loops") {
  testing::merges_many(lockstep::Reference<double>{}, 1e-14);
}

TEST_CASE("merges with masks leave out what is padded") {
  testing::merges_with_masks(lockstep::Reference<double>{}, 1e-14);
}

TEST_CASE("products and extremes leave out an operand at its padded steps, as in Keras") {
  golden::meets_network<Pair<ls::Multiply>>("merge_masks", "multiply", 5);
  golden::meets_network<Pair<ls::Maximum>>("merge_masks", "maximum", 5);
  golden::meets_network<Pair<ls::Minimum>>("merge_masks", "minimum", 5);
  golden::meets_network<WithPlain<ls::Multiply>>("merge_masks", "multiply_plain", 7);
  golden::meets_network<WithPlain<ls::Maximum>>("merge_masks", "maximum_plain", 7);
  golden::meets_network<WithPlain<ls::Minimum>>("merge_masks", "minimum_plain", 7);
  golden::meets_network<PlainFirst>("merge_masks", "plain_first", 6);
  golden::meets_network<Gate>("merge_masks", "gate", 6);
  STATIC_CHECK(most_operands<Gate> == 4);  // two values, a mask of each
  STATIC_CHECK(most_operands<PlainPair> == 2);
}

TEST_CASE("concatenations of any number of values along any axis move each element") {
  testing::concatenates_many(lockstep::Reference<double>{});
}
