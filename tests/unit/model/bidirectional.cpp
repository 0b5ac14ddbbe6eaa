#include "lockstep/model/bidirectional.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/layers/recurrent/lstm.hpp"
#include "lockstep/model/parallel.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;

struct BothInOrder
    : ls::Sequential<ls::Input<5, 3>, ls::Bidirectional<ls::LSTM<4, ls::return_sequences>>> {};
struct BothSummed : ls::Sequential<ls::Input<5, 3>, ls::Bidirectional<ls::GRU<3>, ls::Add>> {};

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
