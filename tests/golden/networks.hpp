/// \file
/// Compares whole networks with Keras' outputs and gradients.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/reference.hpp"
#include "unit/model/toy_device.hpp"

namespace golden {

/// The outputs of network `name` in the file, and the gradients of its `parameters` parameters.
template <class Net>
void meets_network(const std::string& recorded, const std::string& name, int parameters) {
  INFO(name);
  const GoldenFile file(recorded);
  const auto all = [&](const std::string& part) {
    std::vector<double> flat;
    for (int i = 0; i < parameters; ++i)
      for (const double v : file.values(name + part + std::to_string(i))) flat.push_back(v);
    return flat;
  };
  toy::Machine<Net, lockstep::Reference<double>> machine(file.count(name + "/x"));
  machine.x = file.values(name + "/x");
  machine.c = file.values(name + "/c");
  machine.engine.weights().upload(all("/param/").data());
  CHECK(testing::relative_error(machine.forward(), file.values(name + "/y")) < 1e-10);
  CHECK(testing::relative_error(machine.gradients(), all("/d/")) < 1e-10);
}

}  // namespace golden
