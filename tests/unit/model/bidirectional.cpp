#include "lockstep/model/bidirectional.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "golden/networks.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/embedding.hpp"
#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/layers/recurrent/lstm.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace {

namespace ls = lockstep;

struct BothInOrder
    : ls::Sequential<ls::Input<5, 3>, ls::Bidirectional<ls::LSTM<4, ls::return_sequences>>> {};
struct BothSummed : ls::Sequential<ls::Input<5, 3>, ls::Bidirectional<ls::GRU<3>, ls::Add>> {};
struct Unmerged
    : ls::Graph<ls::In<"words", ls::Integers<5>>,
                ls::Let<"b", ls::From<"words">, ls::Embedding<7, 2, ls::mask_zero>,
                        ls::Bidirectional<ls::GRU<3, ls::return_sequences>, ls::NoMerge>>,
                ls::Out<"one", ls::From<"b/forward">>, ls::Out<"two", ls::From<"b/backward">>> {};
struct BothStates
    : ls::Graph<
          ls::In<"source", 4, 2>, ls::In<"target", 3, 2>,
          ls::Let<"e", ls::From<"source">, ls::Dense<2>,
                  ls::Bidirectional<ls::LSTM<3, ls::return_state>, ls::Add>>,
          ls::Let<"d",
                  ls::From<"target", "e/forward_h", "e/forward_c", "e/backward_h", "e/backward_c">,
                  ls::Bidirectional<ls::LSTM<3, ls::return_sequences, ls::initial_state>>>,
          ls::Out<"y", ls::From<"e">>, ls::Out<"fh", ls::From<"e/forward_h">>,
          ls::Out<"fc", ls::From<"e/forward_c">>, ls::Out<"bh", ls::From<"e/backward_h">>,
          ls::Out<"bc", ls::From<"e/backward_c">>, ls::Out<"z", ls::From<"d">>> {};
/// All results as one row.
struct BothUnmerged
    : ls::Sequential<ls::Input<4, 2>, ls::Dense<2>,
                     ls::Bidirectional<ls::LSTM<2, ls::return_state>, ls::NoMerge>> {};

/// Compares outputs and gradients of the weights with Keras'.
template <class Net>
void is_bidirectional(const std::string& name) {
  const golden::GoldenFile file("recurrent");
  const auto all = [&](const std::string& part) {
    std::vector<double> flat;
    for (const char* direction : {"forward_", "backward_"})
      for (const char* parameter : {"kernel", "recurrent_kernel", "bias"})
        for (const double v : file.values(name + part + direction + parameter)) flat.push_back(v);
    return flat;
  };
  toy::Machine<Net, ls::Reference<double>> machine(file.count(name + "/x"));
  machine.x = file.values(name + "/x");
  machine.c = file.values(name + "/c");
  machine.engine.weights().upload(all("/param/").data());
  CHECK(testing::relative_error(machine.forward(), file.values(name + "/y")) < 1e-10);
  CHECK(testing::relative_error(machine.gradients(), all("/d/")) < 1e-10);
}

}  // namespace

TEST_CASE("Bidirectional has Keras' outputs, gradients and names") {
  is_bidirectional<BothInOrder>("bidirectional");
  is_bidirectional<BothSummed>("bidirectional_sum");
  CHECK(ls::detail::layer_name(BothInOrder::graph.parameter[0]) == "bidirectional/forward_lstm");
  CHECK(ls::detail::layer_name(BothInOrder::graph.parameter[3]) == "bidirectional/backward_lstm");
}

TEST_CASE("Bidirectional returns and accepts states, and results without a rule, as in Keras") {
  golden::meets_network<Unmerged>("recurrent_states", "unmerged", 7);
  golden::meets_network<BothStates>("recurrent_states", "both_states", 14);
  golden::meets_network<BothUnmerged>("recurrent_states", "both_unmerged", 8);
}
