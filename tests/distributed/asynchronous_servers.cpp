/// Asynchronous steps of jobs with parameter servers, in processes: with staleness 0 the bits of one
/// device, the bound on what a step misses, each batch once, stops and checkpoints within an epoch.
#include "lockstep/training/asynchronous/asynchronous_steps.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/parameter_server.hpp"
#include "lockstep/reference.hpp"
#include "support/folder.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;
using Catch::Matchers::ContainsSubstring;

namespace {

using Cpu = ls::Cpu;
using Double = ls::Reference<double>;

/// Running statistics and random draws.
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<16>, ls::BatchNormalization<>, ls::ReLU,
                            ls::Dropout<ls::rate(0.4f)>, ls::Dense<9>, ls::Tanh, ls::Dense<3>> {};
/// The same with a penalty.
struct Penalized : ls::Sequential<ls::Input<2>, ls::Dense<16, ls::kernel_regularizer(ls::L2{0.01})>,
                                  ls::ReLU, ls::Dense<3>> {};

/// 8 batches an epoch, the last one smaller.
auto data() { return line::classes(48) | ls::shuffle(16) | ls::batch(20); }

template <class N, class S, class O>
auto model_on(N net, const S& strategy, const O& optimizer) {
  return ls::Model{net, ls::Seed{3}, strategy, replicas::crossentropy, optimizer, ls::Accuracy{}};
}

template <class D = Cpu>
ls::ParameterServer<D> servers(std::uint64_t staleness, std::size_t shards = 0) {
  return {.virtual_shards = shards, .asynchronous = true, .staleness = staleness};
}

void append(std::vector<double>& to, const std::string& text) {
  to.insert(to.end(), text.begin(), text.end());
}

/// The digest of the weights after two epochs, the logs of all steps and epochs, and an evaluation.
template <class N, class S, class O>
void add_training(std::vector<double>& to, const S& strategy, const O& optimizer) {
  auto model = model_on(N{}, strategy, optimizer);
  auto options = line::quiet(2);
  options.verify_every = 1;
  options.callbacks = {
      ls::LambdaCallback{.on_train_batch_end = [&](std::size_t step, const ls::Logs& logs) {
        to.push_back(static_cast<double>(step));
        to.push_back(logs.step("loss"));
        to.push_back(*logs.get("accuracy"));
      }}};
  const auto history = model.fit(data(), data(), options);
  append(to, model.weights_sha256());
  for (const auto& name : {"loss", "accuracy"})
    to.insert(to.end(), history[name].begin(), history[name].end());
  // Without shards, workers add their parts of an evaluation in another order than one device.
  if (model.strategy().virtual_shards == 0) return;
  to.insert(to.end(), history["val_loss"].begin(), history["val_loss"].end());
  to.push_back(model.evaluate(data())["loss"]);
}

template <class S>
std::vector<double> trained(const S& strategy, bool one_server) {
  std::vector<double> all;
  add_training<Net>(all, strategy, ls::Adam{.learning_rate = 0.01, .weight_decay = 0.01});
  if (one_server)
    add_training<Penalized>(all, strategy,
                            ls::SGD{.learning_rate = 0.1, .with = {.clipnorm = 0.1}});
  add_training<Net>(all, strategy,
                    ls::SGD{.learning_rate = 0.1,
                            .momentum = 0.9,
                            .with = {.use_ema = true,
                                     .ema_overwrite_frequency = 2,
                                     .gradient_accumulation_steps = 2}});
  return all;
}

/// Runs `work` in a job, whose processes must all succeed. \returns what each has given.
template <class Work>
std::vector<std::vector<double>> run(std::size_t workers, std::size_t servers, bool chief,
                                     const Work& work) {
  CAPTURE(workers, servers, chief);
  Processes job(workers + servers + (chief ? 1 : 0), [&](Here& here) { here.give(work(here)); },
                60s, 1, {chief, servers});
  REQUIRE(job.all_end());
  std::vector<std::vector<double>> all;
  for (std::size_t r = 0; r < job.size(); ++r) {
    INFO("rank " << r << ": " << std::string(job.report(r).what) << job.logs());
    REQUIRE(job.report(r).outcome == Outcome::done);
    all.push_back(job.numbers(r));
  }
  return all;
}

}  // namespace

TEST_CASE("asynchronous steps that miss no update have the bits of one device") {
  for (const std::size_t shards : {std::size_t{0}, std::size_t{4}}) {
    const auto alone = [&] {
      return ls::OneDevice<Cpu>{.on = {.threads = 1}, .virtual_shards = shards};
    };
    for (const auto& [workers, count, chief] :
         {std::tuple{1u, 1u, false}, std::tuple{2u, 2u, true}, std::tuple{3u, 1u, false}}) {
      const auto expected = trained(alone(), count == 1);
      for (const auto& given : run(workers, count, chief,
                                   [&](Here&) { return trained(servers(0, shards), count == 1); }))
        CHECK(given == expected);
    }
  }
}

TEST_CASE("the gradients of a step miss no more updates than the staleness") {
  for (const std::uint64_t staleness : {1u, 2u, 5u}) {
    CAPTURE(staleness);
    const auto all = run(3, 2, true, [&](Here& here) {
      auto model = model_on(Net{}, servers(staleness), ls::SGD{.learning_rate = 0.01});
      auto options = line::quiet(1);
      options.steps_per_epoch = 60;
      options.callbacks = {ls::LambdaCallback{.on_train_batch_end = [&](auto&&...) {
        if (here.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }}};
      const auto history = model.fit(line::classes(48) | ls::repeat | ls::batch(20), options);
      const ls::UpdateCounts& counts = model.update_counts();
      std::vector<double> found{
          static_cast<double>(counts.steps),   static_cast<double>(counts.most_stale),
          static_cast<double>(counts.refused), counts.each_once ? 1.0 : 0.0,
          history["stale_max"].back(),         static_cast<double>(model.steps())};
      append(found, model.weights_sha256());
      return found;
    });
    for (const auto& found : all) CHECK(found == all[0]);
    CHECK(all[0][0] == 60);
    CHECK(all[0][1] <= static_cast<double>(staleness));
    CHECK(all[0][1] > 0);
    CHECK(all[0][2] == 0);
    CHECK(all[0][3] == 1);
    CHECK(all[0][4] == all[0][1]);
    CHECK(all[0][5] == 60);
  }
}
