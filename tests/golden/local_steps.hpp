/// \file
/// The runs of make_local_steps.py, which simulates replicas that train alone for some steps in NumPy.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/local_sgd.hpp"
#include "lockstep/lockstep.hpp"
#include "support/run_kernel.hpp"

namespace golden {

struct LocalNet
    : lockstep::Sequential<lockstep::Input<5>, lockstep::BatchNormalization<>,
                           lockstep::Dense<6, lockstep::kernel_regularizer(lockstep::L2{0.02})>,
                           lockstep::Tanh, lockstep::Dense<4>> {};

/// Replays the run on 1 to 4 replicas: weights, statistics, losses and accuracies of each epoch, losses of each step.
template <class D, class O>
void meets_local_steps(const std::string& run, const lockstep::DiLoCo& policy, const O& optimizer) {
  const GoldenFile file("local_steps");
  const auto labels = file.values("labels");
  const auto data = lockstep::tensors(file.values("x"), lockstep::shape(5),
                                      std::vector<std::int32_t>(labels.begin(), labels.end())) |
                    lockstep::batch(12);
  for (const std::size_t replicas : {1u, 2u, 3u, 4u}) {
    CAPTURE(run, replicas);
    lockstep::Model model{LocalNet{}, lockstep::Mirrored<D>{.replicas = replicas} | policy,
                          lockstep::SparseCategoricalCrossentropy{.from_logits = true}, optimizer,
                          lockstep::Accuracy{}};
    auto from = file.values("init");
    std::size_t at = 0;
    for (const auto& p : model.parameters()) {
      if (!p.trainable) continue;
      const std::size_t n = model.weights(p.name).size();
      model.set_weights(p.name, {from.data() + at, from.data() + at + n});
      at += n;
    }
    REQUIRE(at == from.size());
    const std::string its = run + "/" + std::to_string(replicas) + "/";
    const auto weights = file.values(its + "weights"), state = file.values(its + "state"),
               loss = file.values(its + "loss"), accuracy = file.values(its + "accuracy"),
               step_loss = file.values(its + "step_loss");
    for (std::size_t epoch = 0; epoch < loss.size(); ++epoch) {
      lockstep::FitOptions options{.epochs = 1, .progress = lockstep::ProgressStyle::none};
      options.verify_every = 1;
      std::vector<double> steps;
      options.callbacks = {lockstep::LambdaCallback{
          .on_train_batch_end = [&](std::size_t, const lockstep::Logs& logs) {
            steps.push_back(logs.step("loss"));
          }}};
      const auto history = model.fit(data, options);
      std::vector<double> found[2];
      for (const auto& p : model.parameters()) {
        const auto values = model.weights(p.name);
        auto& to = found[p.trainable ? 0 : 1];
        to.insert(to.end(), values.begin(), values.end());
      }
      const auto row = [&](const std::vector<double>& all) {
        const std::size_t n = all.size() / loss.size();
        return std::vector<double>(all.data() + epoch * n, all.data() + (epoch + 1) * n);
      };
      CAPTURE(epoch);
      CHECK(testing::relative_error(found[0], row(weights)) < tolerance<D>);
      CHECK(testing::relative_error(found[1], row(state)) < tolerance<D>);
      CHECK(testing::relative_error(history["loss"], std::vector{loss[epoch]}) < tolerance<D>);
      CHECK(testing::relative_error(steps, row(step_loss)) < tolerance<D>);
      CHECK(history["accuracy"] == std::vector{accuracy[epoch]});
    }
  }
}

}  // namespace golden
