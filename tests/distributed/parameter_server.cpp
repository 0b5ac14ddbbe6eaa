/// Jobs with parameter servers, in processes: the bits of one device for any number of workers and
/// servers, checkpoints, own steps, and the death of each role.
#include "lockstep/parameter_server.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "distributed/named_by_others.hpp"
#include "distributed/processes.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/bytes_sent.hpp"
#include "support/folder.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t shards = 8;
using Cpu = ls::Cpu;
using Double = ls::Reference<double>;

/// Eight trainable parameters, running statistics, random draws, and a penalty.
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<16, ls::kernel_regularizer(ls::L2{0.01})>,
                            ls::BatchNormalization<>, ls::ReLU, ls::Dropout<ls::rate(0.4f)>,
                            ls::Dense<9>, ls::Tanh, ls::Dense<3>> {};

auto data() { return line::classes(48) | ls::shuffle(16) | ls::batch(20); }

template <class S, class O>
auto model_on(const S& strategy, const O& optimizer) {
  return ls::Model{Net{}, ls::Seed{3}, strategy, replicas::crossentropy, optimizer, ls::Accuracy{}};
}

/// The digest of the weights after two epochs, the logs, and those of an evaluation.
template <class S, class O>
void add_training(std::vector<double>& to, const S& strategy, const O& optimizer,
                  bool holds = false) {
  auto model = model_on(strategy, optimizer);
  if (holds) model.set_trainable("dense_1", false);
  if (holds) model.set_rate_multiplier("*/kernel", 0.5);
  auto options = line::quiet(2);
  options.verify_every = 1;
  const auto history = model.fit(data(), options);
  const std::string digest = model.weights_sha256();
  to.insert(to.end(), digest.begin(), digest.end());
  for (const auto& name : {"loss", "accuracy"})
    to.insert(to.end(), history[name].begin(), history[name].end());
  to.push_back(model.evaluate(data())["loss"]);
  const auto outputs = model.predict(line::classes(5) | ls::batch(4));
  for (std::size_t i = 0; i < 5; ++i) to.push_back(outputs.row(i)[0]);
}

/// The same for optimizers and options of all kinds; on a device in double for one, since each model
/// takes long to compile.
template <class S>
std::vector<double> trained(const S& strategy) {
  std::vector<double> all;
  add_training(all, strategy, ls::Adam{.weight_decay = 0.01, .with = {.global_clipnorm = 0.1}});
  if constexpr (std::is_same_v<typename S::device, Cpu>) {
    add_training(all, strategy, ls::SGD{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
    add_training(all, strategy, ls::SGD{.learning_rate = 0.1, .momentum = 0.9}, true);
    add_training(all, strategy, ls::Lamb{.learning_rate = 0.01});
    add_training(all, strategy,
                 ls::SGD{.learning_rate = 0.1,
                         .with = {.use_ema = true,
                                  .ema_overwrite_frequency = 2,
                                  .gradient_accumulation_steps = 2}});
  }
  return all;
}

template <class D>
ls::OneDevice<D> alone() {
  if constexpr (requires(D d) { d.threads; })
    return {.on = {.threads = 1}, .virtual_shards = shards};
  else
    return {.virtual_shards = shards};
}

struct Tasks {
  std::size_t workers, servers;
  bool chief = false;
  std::size_t count() const { return workers + servers + (chief ? 1u : 0u); }
};

/// Runs `work` in a job; the processes must all succeed within the time.
template <class Work>
void check_job(const Tasks& tasks, const char* transport, const std::vector<double>& expected,
               const Work& work) {
  CAPTURE(tasks.workers, tasks.servers, tasks.chief, transport);
  Processes job(tasks.count(),
                [&](Here& here) {
                  ::setenv("LOCKSTEP_TRANSPORT", transport, 1);
                  here.give(work(here));
                },
                60s, 1, {tasks.chief, tasks.servers});
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) {
    INFO(std::string(job.report(r).what) << job.logs());
    CHECK(job.report(r).outcome == Outcome::done);
    CHECK(job.numbers(r) == expected);
  }
}

using Servers = ls::ParameterServer<Double>;

/// A strategy whose environment has one or two variables.
Servers with(const std::string& name, const std::string& value, const std::string& other = "",
             const std::string& its = "") {
  Servers servers;
  servers.environment = [=](const std::string& asked) -> std::optional<std::string> {
    if (asked == name) return value;
    if (asked == other) return its;
    return std::nullopt;
  };
  return servers;
}

const std::string cluster = R"({"cluster":{"worker":["127.0.0.1:1"],"ps":["127.0.0.1:2"]},)";

}  // namespace

TEST_CASE("parameter servers train with the bits of one device") {
  const std::vector<double> expected = trained(alone<Cpu>());
  for (const Tasks& tasks : {Tasks{1, 1}, Tasks{2, 1, true}, Tasks{3, 2}, Tasks{4, 3, true}})
    for (const char* transport : {"tcp", "shared_memory"})
      check_job(tasks, transport, expected,
                [](Here&) { return trained(ls::ParameterServer<Cpu>{.virtual_shards = shards}); });
  // In double, sums of layers' states in another order would show.
  const std::vector<double> in_double = trained(alone<Double>());
  for (const Tasks& tasks : {Tasks{2, 3, true}, Tasks{4, 1}})
    for (const char* transport : {"tcp", "shared_memory"})
      check_job(tasks, transport, in_double, [](Here&) {
        return trained(ls::ParameterServer<Double>{.virtual_shards = shards});
      });
}

TEST_CASE("the optimizer's buffers exist once in the job, on its servers") {
  const auto whole = model_on(alone<Cpu>(), ls::Adam{}).memory().optimizer;
  Processes job(5,
                [](Here& here) {
                  auto model = model_on(ls::ParameterServer<Cpu>{}, ls::Adam{});
                  here.give({static_cast<double>(model.memory().optimizer),
                             static_cast<double>(model.replicas())});
                  try {
                    model.set_trainable("*", false);
                  } catch (const ls::UsageError& e) {
                    here.report.how = e.what();
                  }
                },
                60s, 1, {true, 2});
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) {
    REQUIRE(job.report(r).outcome == Outcome::done);
    CHECK(std::string(job.report(r).how) ==
          "set_trainable: under parameter_server at least one layer must train");
  }
  CHECK(job.numbers(0)[0] == 0);
  CHECK(job.numbers(1)[0] == 0);
  CHECK(job.numbers(2)[0] == 0);
  CHECK(job.numbers(3)[0] + job.numbers(4)[0] == static_cast<double>(whole));
  // Two slots, divided into blocks of 64 elements, the last of which is not full.
  CHECK(std::abs(job.numbers(3)[0] - job.numbers(4)[0]) <= 2 * 2 * 64 * sizeof(float));
  CHECK(job.numbers(4)[1] == 2);  // replicas that compute
}

TEST_CASE("steps of the program's own have the bits of one device with parameter servers") {
  const auto steps = [](const auto& strategy) {
    auto model = model_on(strategy, ls::Adam{.learning_rate = 0.01});
    model.fit(data(), line::quiet(2), [&](const auto& batch) {
      auto gradients = model.gradients_of(batch);
      gradients *= 0.5 / std::max(1.0, gradients.norm());
      model.apply(gradients);
    });
    for (const auto& batch : model.batches(data())) model.train_step(batch);
    const std::vector<float> x(20, 0.5f);
    std::vector<std::int32_t> y;
    for (int i = 0; i < 10; ++i) y.push_back(i % 3);
    model.train_on_batch(ls::global_batch, x, y);
    const std::string digest = model.weights_sha256();
    return std::vector<double>(digest.begin(), digest.end());
  };
  check_job({3, 2, true}, "auto", steps(alone<Cpu>()),
            [&](Here&) { return steps(ls::ParameterServer<Cpu>{.virtual_shards = shards}); });
}

TEST_CASE("a checkpoint of servers continues with any number of them, and on one device") {
  const testing::Folder folder;
  const auto fit = [&](const auto& strategy, int epochs, const std::string& from) {
    auto model = model_on(strategy, ls::Adam{.learning_rate = 0.01, .with = {.use_ema = true}});
    auto options = line::quiet(epochs);
    options.checkpoint.directory = (folder.path() / from).string();
    model.fit(data(), options);
    const std::string digest = model.weights_sha256();
    return std::vector<double>(digest.begin(), digest.end());
  };
  const auto in_job = [&](const Tasks& tasks, int epochs, const std::vector<double>& expected,
                          const std::string& from) {
    check_job(tasks, "auto", expected, [&](Here&) {
      return fit(ls::ParameterServer<Cpu>{.virtual_shards = shards}, epochs, from);
    });
  };
  const auto copied = [&](const std::string& from, const std::string& to) {
    std::filesystem::copy(folder.path() / from, folder.path() / to,
                          std::filesystem::copy_options::recursive);
  };
  const auto two = fit(alone<Cpu>(), 2, "device"), four = fit(alone<Cpu>(), 4, "whole");
  copied("device", "servers from device");
  in_job({2, 2, true}, 2, two, "servers");
  copied("servers", "device from servers");
  in_job({3, 1}, 4, four, "servers");
  in_job({1, 3}, 4, four, "servers from device");
  CHECK(fit(alone<Cpu>(), 4, "device from servers") == four);
}

TEST_CASE("a chief, a worker or a server that is killed or frozen is named by all others") {
  const auto make = [](Here&) { return model_on(ls::ParameterServer<Cpu>{}, ls::Adam{}); };
  for (const int signal : {SIGKILL, SIGSTOP})
    for (const std::size_t victim : {0u, 1u, 3u})
      check_named_by_others(5, victim, make, signal, {true, 2});
}

TEST_CASE("training that diverges stops after the same step in all processes") {
  Processes job(4,
                [](Here& here) {
                  auto model = model_on(ls::ParameterServer<Cpu>{}, ls::SGD{.learning_rate = 1e30});
                  auto options = line::quiet(50);
                  options.callbacks = {ls::TerminateOnNaN{}};
                  model.fit(data(), options);
                  here.give({static_cast<double>(model.steps())});
                  try {
                    model.gradients("dense/kernel");
                  } catch (const ls::UsageError& e) {
                    here.report.how = e.what();
                  }
                },
                60s, 1, {true, 2});
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) {
    INFO(std::string(job.report(r).what));
    CHECK(job.report(r).outcome == Outcome::done);
    CHECK(job.numbers(r) == job.numbers(0));
    CHECK(job.numbers(r)[0] < 150);
    CHECK_THAT(
        std::string(job.report(r).how),
        ContainsSubstring("none has all of them; call gradients_of(batch) in all processes"));
  }
}

TEST_CASE("a signal within validation ends a job with servers in order") {
  Processes job(4,
                [](Here& here) {
                  auto model = model_on(ls::ParameterServer<Cpu>{}, ls::SGD{.learning_rate = 0.1});
                  auto options = line::quiet(5);
                  ls::SignalStop stop;
                  options.stop = stop.token();
                  options.callbacks = {
                      ls::LambdaCallback{.on_test_batch_end = [&](std::size_t batch, const auto&) {
                        if (here.rank == 3 && batch == 2) ::raise(SIGTERM);
                      }}};
                  model.fit(data(), line::classes(40) | ls::batch(4), options);
                  here.give({static_cast<double>(model.steps())});
                },
                60s, 1, {true, 1});
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) {
    INFO(std::string(job.report(r).what));
    CHECK(job.report(r).outcome == Outcome::done);
    CHECK(job.numbers(r) == job.numbers(0));
    CHECK(job.numbers(r)[0] < 15);
  }
}

TEST_CASE("the bytes of a step are those of the plan") {
  struct Wide : ls::Sequential<ls::Input<2>, ls::Dense<1024>, ls::ReLU, ls::Dense<300>> {};
  constexpr auto& plan = ls::plan<Wide, Cpu>;
  constexpr std::size_t workers = 2, servers = 2, steps = 20;
  Processes job(
      workers + servers,
      [](Here& here) {
        ::setenv("LOCKSTEP_TRANSPORT", "tcp", 1);
        ls::Model model{Wide{}, ls::ParameterServer<Cpu>{}, replicas::crossentropy, ls::SGD{}};
        auto options = line::quiet(1);
        options.steps_per_epoch = 2 * steps;
        std::vector<double> sent;
        options.callbacks = {ls::LambdaCallback{
            .on_train_batch_end = [&](auto&&...) { sent.push_back(testing::bytes_sent()); }}};
        model.fit(line::classes(48) | ls::repeat | ls::batch(20), options);
        here.give({(sent[2 * steps - 1] - sent[steps - 1]) / steps});
      },
      60s, 1, {false, servers});
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) REQUIRE(job.report(r).outcome == Outcome::done);
  if (job.numbers(0)[0] == 0) SKIP("the kernel does not count the bytes of a connection");
  const auto near = [](double sent, std::size_t planned) {
    return sent >= static_cast<double>(planned) && sent < 1.02 * static_cast<double>(planned);
  };
  for (std::size_t r = 0; r < workers; ++r) CHECK(near(job.numbers(r)[0], plan.push_bytes()));
  CHECK(near(job.numbers(2)[0] + job.numbers(3)[0], plan.pull_bytes(workers + servers)));
}

TEST_CASE("a job with more servers than the model has parameters is refused in all processes") {
  struct Small : ls::Sequential<ls::Input<2>, ls::Dense<3>> {};
  Processes job(4,
                [](Here&) {
                  ls::Model{Small{}, ls::ParameterServer<Cpu>{}, replicas::crossentropy, ls::SGD{}};
                },
                60s, 1, {false, 3});
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r)
    CHECK_THAT(std::string(job.report(r).what),
               ContainsSubstring("the job has 3 servers, but the model has 2 trainable parameters; "
                                 "start at most as many servers"));
}

static_assert(ls::Strategy<Servers> && ls::UpdatePolicy<ls::Served, Double>);

TEST_CASE("a job without parameter servers is refused before anybody is waited for") {
  CHECK_THROWS_WITH(
      with("TF_CONFIG", R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}})")
          .open(),
      ContainsSubstring("TF_CONFIG: cluster has no ps; list at least one parameter server"));
  CHECK_THROWS_WITH(
      with("LOCKSTEP_WORLD_SIZE", "1", "LOCKSTEP_RANK", "0").open(),
      ContainsSubstring("LOCKSTEP_WORLD_SIZE does not describe parameter servers; set "
                        "TF_CONFIG with the job ps, or start the program by lockstep-run"));
  Servers single = with("HOME", "/");
  single.cluster.allow_single = true;
  CHECK_THROWS_WITH(single.open(), ContainsSubstring("does not describe parameter servers"));
  CHECK_THROWS_AS(single.open(), ls::ClusterError);
}

TEST_CASE("a job with parameter servers is elastic by its type only, and numbers all its tasks") {
  CHECK_THROWS_WITH(
      with("LOCKSTEP_MIN_WORKERS", "1", "TF_CONFIG",
           cluster + R"("task":{"type":"worker","index":0}})")
          .open(),
      ContainsSubstring("LOCKSTEP_MIN_WORKERS is set, but the program's strategy is not elastic; "
                        "write ls::ParameterServer<ls::Cpu, ls::Tcp, ls::Elastic>"));
  CHECK_THROWS_WITH(with("TF_CONFIG", cluster + R"("task":{"type":"ps","index":"auto"}})").open(),
                    ContainsSubstring("task.index is auto: a job with parameter servers needs the "
                                      "index of each task"));
}
