/// \file
/// The runs of make_parameter_server.py, which simulates workers and servers in NumPy.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/lockstep.hpp"
#include "support/run_kernel.hpp"

namespace golden {

struct ServedNet : lockstep::Sequential<lockstep::Input<5>, lockstep::Dense<12>, lockstep::Tanh,
                                        lockstep::Dense<7>, lockstep::ReLU, lockstep::Dense<4>> {};

/// The batch of a step.
struct ServedBatch {
  std::vector<double> x;
  std::vector<std::int32_t> labels;
};

/// The batches of a file, in the order of its steps.
inline std::vector<ServedBatch> served_batches(const GoldenFile& file) {
  const std::vector<double> x = file.values("x"), labels = file.values("labels");
  std::vector<ServedBatch> batches;
  std::size_t at = 0;
  for (const double size : file.values("sizes")) {
    ServedBatch batch;
    for (const std::size_t end = at + static_cast<std::size_t>(size); at < end; ++at) {
      batch.x.insert(batch.x.end(), x.data() + 5 * at, x.data() + 5 * (at + 1));
      batch.labels.push_back(static_cast<std::int32_t>(labels[at]));
    }
    batches.push_back(batch);
  }
  return batches;
}

/// All weights of a model of ServedNet as one vector, as in a row of `<run>/weights`.
template <class M>
std::vector<double> served_weights(const M& model) {
  std::vector<double> all;
  for (const auto& p : M::parameters()) {
    const auto values = model.weights(p.name);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// The inverse of served_weights.
template <class M>
void set_served_weights(M& model, const std::vector<double>& all) {
  auto from = all.begin();
  for (const auto& p : M::parameters()) {
    const auto end = from + static_cast<std::ptrdiff_t>(model.weights(p.name).size());
    model.set_weights(p.name, {from, end});
    from = end;
  }
}

/// Replays an order of delayed_gradients on one device: the gradients of each update are computed with
/// the weights of an earlier one.
template <class D, class O>
void meets_delayed_gradients(const std::string& order, const O& optimizer) {
  CAPTURE(order);
  const GoldenFile file("delayed_gradients");
  const auto batches = served_batches(file);
  const auto steps = file.values(order + "/order"), missed = file.values(order + "/missed"),
             rows = file.values(order + "/weights");
  REQUIRE(steps.size() == batches.size());
  REQUIRE(missed.size() == batches.size());
  lockstep::Model model{ServedNet{}, lockstep::OneDevice<D>{},
                        lockstep::SparseCategoricalCrossentropy{.from_logits = true}, optimizer};
  std::vector<std::vector<double>> weights{file.values("init")};  // after that many updates
  for (std::size_t u = 0; u < batches.size(); ++u) {
    CAPTURE(u);
    const ServedBatch& batch = batches[static_cast<std::size_t>(steps[u])];
    set_served_weights(model, weights[u - static_cast<std::size_t>(missed[u])]);
    const auto gradients = model.gradients_of(model.batch(batch.x, batch.labels));
    set_served_weights(model, weights[u]);
    model.apply(gradients);
    weights.push_back(served_weights(model));
    const std::size_t n = weights[u].size();
    const std::vector<double> row(rows.data() + u * n, rows.data() + (u + 1) * n);
    CHECK(testing::relative_error(weights[u + 1], row) < tolerance<D>);
  }
}

}  // namespace golden
