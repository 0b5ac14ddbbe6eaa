/// Asynchronous steps, and steps with backup workers, of jobs with parameter servers, in processes: with
/// staleness 0 the bits of one device, the bound on what a step misses, each batch once, stops and
/// checkpoints within an epoch; steps that do not wait for a slow worker.
#include "lockstep/training/asynchronous/asynchronous_steps.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "distributed/named_by_others.hpp"
#include "distributed/processes.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/parameter_server.hpp"
#include "lockstep/reference.hpp"
#include "support/bytes_sent.hpp"
#include "support/folder.hpp"
#include "support/peak_memory.hpp"
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

/// Statistics of the whole batch.
struct Synchronized
    : ls::Sequential<ls::Input<2>, ls::BatchNormalization<ls::synchronized>, ls::Dense<3>> {};

/// Words of which a batch has few.
template <int vocabulary>
struct Words : ls::Sequential<ls::Input<4>, ls::Embedding<vocabulary, 6>,
                              ls::GlobalAveragePooling1D, ls::Dense<3>> {};
auto words(int apart = 1) {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  for (int i = 0; i < 30; ++i) {
    for (int k = 0; k < 4; ++k) x.push_back(static_cast<float>((i * 7 + k * k * 5) % 49 * apart));
    y.push_back(i % 3);
  }
  return ls::tensors(x, ls::shape(4), y);
}

/// Called for each example that a worker reads in an epoch of training; empty: nothing.
std::function<void()> on_example;

/// 3 batches an epoch, the last one smaller.
auto data() {
  return line::classes(48) | ls::shuffle(16) | ls::map([](ls::Example<>&) {
           if (on_example) on_example();
         }) |
         ls::batch(20);
}
constexpr std::uint64_t steps_of_epoch = 3;

template <class N, class S, class O>
auto model_on(N net, const S& strategy, const O& optimizer) {
  return ls::Model{net, ls::Seed{3}, strategy, replicas::crossentropy, optimizer, ls::Accuracy{}};
}

template <class D = Cpu>
ls::ParameterServer<D> servers(std::uint64_t staleness, std::size_t shards = 0,
                               bool tables = false) {
  return {.virtual_shards = shards,
          .asynchronous = true,
          .staleness = staleness,
          .tables_on_servers = tables};
}

/// Synchronous steps with backup workers.
ls::ParameterServer<Cpu> with_backups(std::size_t backups, std::size_t shards = 0) {
  return {.virtual_shards = shards, .backup_workers = backups};
}

/// This process, in a job.
Here* process = nullptr;
/// Set while an epoch of training runs.
bool is_in_epoch = false;
/// With each example this process waits until another one knows of all steps of the epoch.
void wait_for_epochs_of(std::size_t other) {
  on_example = [other] {
    if (!is_in_epoch) return;
    const Report& its = (&process->report)[static_cast<std::ptrdiff_t>(other) -
                                           static_cast<std::ptrdiff_t>(process->rank)];
    const std::uint64_t end = (process->report.steps / steps_of_epoch + 1) * steps_of_epoch;
    const auto until = Clock::now() + 20s;
    while (its.steps < end) {
      if (Clock::now() > until) throw ls::Error("a step waits for this worker");
      std::this_thread::sleep_for(1ms);
    }
  };
}

void append(std::vector<double>& to, const std::string& text) {
  to.insert(to.end(), text.begin(), text.end());
}

/// The digest of the weights after two epochs, the logs of all steps and epochs, and an evaluation.
/// `evaluates`: workers add the parts of an evaluation in the order of one device. `held`: layers that
/// do not train.
template <class N, class S, class O>
void add_training(std::vector<double>& to, const S& strategy, const O& optimizer, bool evaluates,
                  const ls::NamePatterns& held = {}) {
  auto model = model_on(N{}, strategy, optimizer);
  model.set_trainable(held, false);
  auto options = line::quiet(2);
  options.verify_every = 1;
  options.class_weight = {{0, 0.5}, {2, 2}};
  options.callbacks = {ls::LearningRateScheduler{[](int, double rate) { return rate * 0.5; }},
                       ls::LambdaCallback{.on_epoch_begin = [](auto&&...) { is_in_epoch = true; },
                                          .on_train_batch_end =
                                              [&](std::size_t step, const ls::Logs& logs) {
                                                if (process != nullptr) ++process->report.steps;
                                                to.push_back(static_cast<double>(step));
                                                to.push_back(logs.step("loss"));
                                                to.push_back(*logs.get("accuracy"));
                                              },
                                          .on_test_begin = [](auto&&...) { is_in_epoch = false; }}};
  const auto history = model.fit(data(), data(), options);
  append(to, model.weights_sha256());
  for (const auto& name : {"loss", "accuracy"})
    to.insert(to.end(), history[name].begin(), history[name].end());
  if (!evaluates) return;
  to.insert(to.end(), history["val_loss"].begin(), history["val_loss"].end());
  to.push_back(model.evaluate(data())["loss"]);
}

template <class S>
std::vector<double> trained(const S& strategy, bool one_server, bool evaluates) {
  std::vector<double> all;
  add_training<Net>(all, strategy, ls::Adam{.learning_rate = 0.01, .weight_decay = 0.01},
                    evaluates);
  const ls::UpdateOptions clips = {.clipnorm = one_server ? 0.1 : 0,
                                   .global_clipnorm = one_server ? 0 : 0.1};
  add_training<Penalized>(all, strategy, ls::SGD{.learning_rate = 0.1, .with = clips}, evaluates);
  add_training<Net>(all, strategy,
                    ls::SGD{.learning_rate = 0.1,
                            .momentum = 0.9,
                            .with = {.global_clipnorm = 0.5,
                                     .use_ema = true,
                                     .ema_overwrite_frequency = 2,
                                     .gradient_accumulation_steps = 2}},
                    evaluates, {"dense", "batch_normalization"});
  return all;
}

/// Runs `work` in a job, whose processes must all succeed. \returns what each has given.
template <class Work>
std::vector<std::vector<double>> run(std::size_t workers, std::size_t servers, bool chief,
                                     const Work& work) {
  CAPTURE(workers, servers, chief);
  const auto give = [&](Here& here) {
    process = &here;
    here.give(work(here));
  };
  Processes job(workers + servers + (chief ? 1 : 0), give, 60s, 1, {chief, servers});
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
      const auto expected = trained(alone(), count == 1, shards > 0);
      for (const auto& given : run(workers, count, chief, [&](Here&) {
             return trained(servers(0, shards), count == 1, shards > 0);
           }))
        CHECK(given == expected);
    }
  }
}

TEST_CASE("steps with backup workers have the bits of one device, and wait for no slow worker") {
  std::mt19937 draw(1);
  for (int round = 0; round < 8; ++round) {
    // At first three workers, of which a step needs two.
    const bool is_drawn = round >= 3;
    const std::size_t workers = is_drawn ? 2 + draw() % 3 : 3, servers = 1 + draw() % 2;
    const std::size_t backups = is_drawn ? 1 + draw() % (workers - 1) : 1;
    const std::size_t shards = round == 1 || (is_drawn && draw() % 2 == 0) ? 4 : 0;
    const std::size_t slices = shards > 0 ? shards : workers - backups;
    if (!std::has_single_bit(slices)) continue;
    const std::size_t count = round < 2 ? 1u + static_cast<std::size_t>(round) : servers;
    const bool chief = draw() % 2 == 0;
    const std::size_t first = chief ? 1 : 0, fast = first + draw() % workers;
    CAPTURE(round, backups, shards, fast);
    const auto expected =
        trained(ls::OneDevice<Cpu>{.on = {.threads = 1}, .virtual_shards = slices > 1 ? slices : 0},
                count == 1, shards > 0);
    const auto all = run(workers, count, chief, [&](Here& here) {
      // The backups are slow.
      const std::size_t after = (here.rank + workers - fast) % workers;
      if (here.rank >= first && here.rank < first + workers && after > 0 && after <= backups)
        wait_for_epochs_of(fast);
      return trained(with_backups(backups, shards), count == 1, shards > 0);
    });
    for (const auto& given : all) CHECK(given == expected);
  }
}

TEST_CASE(
    "backup workers: the slices that were not used are counted, and each batch is used once") {
  // Three slices, whose sum equals that of one device up to rounding.
  const auto fit = [](const auto& strategy) {
    auto model = model_on(Penalized{}, strategy, ls::SGD{.learning_rate = 0.01});
    auto options = line::quiet(2);
    options.callbacks = {ls::LambdaCallback{.on_epoch_begin = [](auto&&...) { is_in_epoch = true; },
                                            .on_epoch_end = [](auto&&...) { is_in_epoch = false; },
                                            .on_train_batch_end =
                                                [](auto&&...) {
                                                  if (process != nullptr) ++process->report.steps;
                                                }}};
    const auto history = model.fit(data(), options);
    const ls::UpdateCounts& counts = model.update_counts();
    std::vector<double> found{history["loss"].back(), static_cast<double>(counts.steps),
                              static_cast<double>(counts.copies_dropped),
                              counts.each_once ? 1.0 : 0.0, static_cast<double>(counts.most_stale)};
    if (history.contains("copies_dropped"))
      for (const double of : history["copies_dropped"]) found.push_back(of);
    append(found, model.weights_sha256());
    return found;
  };
  const auto all = run(4, 2, false, [&](Here& here) {
    if (here.rank == 1) wait_for_epochs_of(0);
    return fit(with_backups(1));
  });
  for (const auto& found : all) CHECK(found == all[0]);
  CHECK(std::abs(all[0][0] - fit(ls::OneDevice<Cpu>{.on = {.threads = 1}})[0]) < 1e-6);
  CHECK(all[0][1] == 2 * steps_of_epoch);
  CHECK(all[0][2] >= 2);
  CHECK(all[0][3] == 1);
  CHECK(all[0][4] == 0);
  CHECK(all[0][5] + all[0][6] == all[0][2]);
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
      std::vector<double> found{static_cast<double>(counts.steps),
                                static_cast<double>(counts.most_stale),
                                counts.each_once ? 1.0 : 0.0, history["stale_max"].back(),
                                static_cast<double>(model.steps())};
      append(found, model.weights_sha256());
      return found;
    });
    for (const auto& found : all) CHECK(found == all[0]);
    CHECK(all[0][0] == 60);
    CHECK(all[0][1] <= static_cast<double>(staleness));
    CHECK(all[0][1] > 0);
    CHECK(all[0][2] == 1);
    CHECK(all[0][3] == all[0][1]);
    CHECK(all[0][4] == 60);
  }
}

TEST_CASE("asynchronous steps end at a signal and continue from a checkpoint, each batch once") {
  const testing::Folder folder;
  // With staleness 0, so that the bits of one device show a batch that is lost or read twice.
  const auto fit = [&](const auto& strategy, const std::string& name, std::uint64_t every,
                       bool ends, bool is_signalled) {
    auto model = model_on(Net{}, strategy, ls::Adam{.learning_rate = 0.01});
    auto options = line::quiet(4);
    options.checkpoint = {.directory = (folder.path() / name).string(), .every = every};
    std::optional<ls::SignalStop> stop;
    if (ends) options.stop = stop.emplace().token();
    options.callbacks = {ls::LambdaCallback{.on_train_batch_end = [&](std::size_t step, auto&&...) {
      if (is_signalled && step == 1 && model.steps() > 4) ::raise(SIGTERM);
    }}};
    model.fit(data(), options);
    std::vector<double> found{static_cast<double>(model.steps())};
    append(found, model.weights_sha256());
    return found;
  };
  const auto check = [&](const auto& strategy, const std::vector<double>& expected,
                         const std::string& name, std::uint64_t every, std::size_t workers,
                         std::size_t victim) {
    const auto all = run(workers, 2, true, [&](Here& here) {
      return fit(strategy, name, every, true, here.rank == victim);
    });
    for (const auto& found : all) CHECK(found == all[0]);
    CHECK(all[0][0] < expected[0]);
    CHECK(all[0][0] > 4);
    // One that continues may have another number of workers, if its slices are the same.
    for (const auto& found : run(workers == 3 ? workers : 1, 2, false,
                                 [&](Here&) { return fit(strategy, name, every, false, false); }))
      CHECK(found == expected);
  };
  const auto expected = fit(ls::OneDevice<Cpu>{.on = {.threads = 1}}, "alone", 0, false, false);
  for (const std::uint64_t every : {0u, 2u})
    for (const std::size_t victim : {0u, 2u, 3u})  // the chief, a worker, a server
      check(servers(0), expected, (every == 0 ? "job" : "often") + std::to_string(victim), every, 2,
            victim);
  check(
      with_backups(1),
      fit(ls::OneDevice<Cpu>{.on = {.threads = 1}, .virtual_shards = 2}, "slices", 0, false, false),
      "backups", 2, 3, 2);
}

TEST_CASE("hooks after several asynchronous steps see the weights of all") {
  const auto all = run(2, 1, false, [&](Here&) {
    auto model = model_on(Net{}, servers(4), ls::SGD{.learning_rate = 0.1});
    auto options = line::quiet(1);
    options.steps_per_epoch = 8;
    options.steps_per_execution = 3;
    std::vector<double> found;
    options.callbacks = {ls::LambdaCallback{.on_train_batch_end = [&](std::size_t step, auto&&...) {
      found.push_back(static_cast<double>(step));
      found.push_back(model.evaluate(data())["loss"]);
      append(found, model.weights_sha256());
    }}};
    model.fit(line::classes(48) | ls::repeat | ls::batch(20), options);
    return found;
  });
  for (const auto& found : all) CHECK(found == all[0]);
  CHECK(all[0].size() == 3 * 66);
  CHECK(all[0][0] == 2);
  CHECK(all[0][66] == 5);
  CHECK(all[0][2 * 66] == 7);
}

/// A process of a job with one server refuses `work` with `sentence`; others may hear of its end before
/// they refuse it.
template <class Work>
void check_refused(std::size_t processes, const Work& work, const std::string& sentence) {
  const auto do_work = [&](Here& here) {
    process = &here;
    work();
  };
  Processes job(processes, do_work, 60s, 1, {false, 1});
  REQUIRE(job.all_end());
  std::string errors;
  for (std::size_t r = 0; r < job.size(); ++r) errors += std::string(job.report(r).what) + "\n";
  CHECK_THAT(errors, ContainsSubstring(sentence));
}

TEST_CASE("calls that need all weights are refused between asynchronous steps") {
  const auto refused = [](const auto& work, const std::string& sentence) {
    check_refused(3, work, sentence);
  };
  const auto in_hook = [](const auto& call) {
    return [call] {
      auto model = model_on(Net{}, servers(4), ls::SGD{});
      auto options = line::quiet(1);
      options.callbacks = {
          ls::LambdaCallback{.on_train_batch_end = [&](auto&&...) { call(model); }}};
      model.fit(data(), options);
    };
  };
  refused(in_hook([](auto& model) { model.evaluate(data()); }),
          "evaluate: it was called between steps that servers make in a phase (.asynchronous or "
          ".backup_workers), while no process has all weights; set "
          ".steps_per_execution = K");
  const auto own_step = [](const auto& strategy) {
    return [strategy] {
      auto model = model_on(Net{}, strategy, ls::SGD{});
      model.fit(data(), line::quiet(1), [&](const auto& batch) { model.train_step(batch); });
    };
  };
  refused(own_step(servers(4)),
          "the strategy is asynchronous; leave out .asynchronous, or the step");
  refused(own_step(with_backups(1)),
          "the strategy has backup workers; leave out .backup_workers, or the step");
  refused([] { with_backups(process->rank == 1 ? 1 : 0).open(); }, "backup workers");
  refused(
      [] { with_backups(2).open(); },
      "parameter_server: backup_workers is 2, but the job has 2 workers, of which a step needs at "
      "least one; start more workers, or lower .backup_workers");
  refused(
      [] {
        auto model = model_on(Synchronized{}, with_backups(1), ls::SGD{});
        model.fit(data(), line::quiet(1));
      },
      "leave out ls::synchronized, or .backup_workers");
  refused(
      [] {
        auto model = model_on(Net{}, servers(4), ls::SGD{});
        model.fit(line::classes(48) | ls::repeat | ls::batch(20), line::quiet(1));
      },
      "set .steps_per_epoch");
}

TEST_CASE("a chief, a worker or a server that is killed between asynchronous steps is named") {
  for (const std::size_t victim : {0u, 1u, 3u, 4u})
    check_named_by_others(5, victim, [](Here&) { return model_on(Net{}, servers(4), ls::Adam{}); },
                          SIGKILL, {true, 2});
}

TEST_CASE(
    "tables of embeddings on all processes, or on servers only, give the bits of one device") {
  const testing::Folder folder;
  const auto train = [&](const auto& strategy, const auto& optimizer, const std::string& name,
                         int epochs) {
    auto model = model_on(Words<50>{}, strategy, optimizer);
    auto options = line::quiet(epochs);
    options.verify_every = 1;
    options.checkpoint = {.directory = (folder.path() / name).string(), .every = 3};
    const auto history = model.fit(words() | ls::batch(8), words() | ls::batch(7), options);
    std::vector<double> found = history["loss"];
    if (model.strategy().virtual_shards == 0) return found;
    found.insert(found.end(), history["val_loss"].begin(), history["val_loss"].end());
    found.push_back(model.evaluate(words() | ls::batch(7))["accuracy"]);
    const auto outputs = model.predict(words() | ls::batch(7));
    found.insert(found.end(), outputs.elements().begin(), outputs.elements().end());
    return found;
  };
  const auto both = [&](const auto& strategy, const std::string& name, int epochs = 3) {
    auto all = train(strategy, ls::SGD{.learning_rate = 0.5}, name + "_sgd", epochs);
    const auto adam =
        train(strategy, ls::Adam{.learning_rate = 0.01, .with = {.global_clipnorm = 0.1}},
              name + "_adam", epochs);
    all.insert(all.end(), adam.begin(), adam.end());
    return all;
  };
  const auto last_checkpoints = [&](const std::string& name) {
    std::string all;
    for (const auto& optimizer : {"_sgd", "_adam"})
      for (const auto& file : {"weights", "optimizer", "callbacks"}) {
        std::ifstream in(folder.path() / (name + optimizer) / "step-000000012" /
                         (std::string(file) + ".safetensors"));
        REQUIRE(in.good());
        all.append(std::istreambuf_iterator<char>(in), {});
      }
    return all;
  };
  for (const std::size_t shards : {std::size_t{0}, std::size_t{4}}) {
    const std::string alone = "alone" + std::to_string(shards);
    const auto expected =
        both(ls::OneDevice<Cpu>{.on = {.threads = 1}, .virtual_shards = shards}, alone);
    for (const bool tables : {false, true}) {
      const std::string job = (tables ? "tables" : "all") + std::to_string(shards);
      const auto given = run(2, 3, shards == 4, [&](Here& here) {
        // The disk is full for the first checkpoint; the servers must not wait for its rest.
        static bool fails;
        fails = tables && here.rank == 0;
        ls::detail::checkpoint_fault() = [](std::string_view operation) {
          return operation == "write optimizer.safetensors" && std::exchange(fails, false) ? ENOSPC
                                                                                           : 0;
        };
        return both(servers(0, shards, tables), job);
      });
      for (const auto& numbers : given) CHECK(numbers == expected);
      CHECK(last_checkpoints(job) == last_checkpoints(alone));
    }
    if (shards > 0) {  // the slices of a step are about the same rows
      for (const auto& numbers :
           run(3, 2, false, [&](Here&) { return both(with_backups(1, shards), "backups"); }))
        CHECK(numbers == expected);
      CHECK(last_checkpoints("backups") == last_checkpoints(alone));
    }
    // Another number of servers continues, and so does one device.
    const std::string half = "half" + std::to_string(shards);
    run(1, 1, false, [&](Here&) { return both(servers(0, shards, true), half, 1); });
    run(1, 2, false, [&](Here&) { return both(servers(0, shards, true), half, 2); });
    both(ls::OneDevice<Cpu>{.on = {.threads = 1}, .virtual_shards = shards}, half);
    CHECK(last_checkpoints(half) == last_checkpoints(alone));
  }
}

TEST_CASE("bytes of a step, and memory with tables on servers, do not depend on a table's size") {
  const auto job = [&]<int rows>(std::integral_constant<int, rows>, bool tables) {
    const testing::Folder folder;
    const auto all = run(2, 2, false, [&](Here&) {
      ::setenv("LOCKSTEP_TRANSPORT", "tcp", 1);
      const auto before = testing::begin_peak();
      auto model = model_on(Words<rows>{}, servers(2, 0, tables), ls::SGD{.learning_rate = 0.5});
      auto options = line::quiet(1);
      options.steps_per_epoch = 40;
      if (tables) options.checkpoint = {.directory = folder.path().string()};
      std::vector<double> sent;
      options.callbacks = {ls::LambdaCallback{
          .on_train_batch_end = [&](auto&&...) { sent.push_back(testing::bytes_sent()); }}};
      const auto data = words(tables ? rows / 50 : 1) | ls::repeat | ls::batch(8);
      model.fit(data, options);
      if (tables) {
        model.evaluate(data, {.steps = 3});
        model.predict(data, {.steps = 3});
      }
      const auto peak = before ? testing::memory_of_this_process("VmHWM") - *before : 0;
      return std::vector{(sent[36] - sent[4]) / 32, static_cast<double>(peak),
                         static_cast<double>(model.memory().weights)};
    });
    std::vector<double> found{0};
    for (const auto& given : all) {
      found[0] += given[0];
      found.push_back(given[1]);
    }
    if (tables) {  // those of the dense layer; a half of all
      CHECK(all[0][2] == sizeof(float) * (6 * 3 + 3));
      CHECK(std::abs(all[2][2] - sizeof(float) * rows * 6 / 2) < 1000);
    }
    return found;
  };
  const auto small = job(std::integral_constant<int, 50>{}, false),
             large = job(std::integral_constant<int, 100'000>{}, false),
             huge = job(std::integral_constant<int, 5'000'000>{}, true);
  constexpr double table = 5'000'000 * 6 * sizeof(float);
  INFO("bytes: workers " << huge[1] << ", " << huge[2] << "; servers " << huge[3] << ", " << huge[4]
                         << "; all weights on all " << large[1]);
  CHECK(std::max(huge[1], huge[2]) < 0.5 * table);
  CHECK(std::max(huge[3], huge[4]) < 0.8 * table);  // half of it, and what a process needs
  if (small[0] == 0) SKIP("the kernel does not count the bytes of a connection");
  CHECK(std::abs(large[0] - small[0]) < 0.1 * small[0]);
  CHECK(huge[0] < 2 * small[0]);  // whose rows are neighbors, which share a message's head
}

TEST_CASE("with tables on servers, calls that need all weights are refused") {
  const auto refused = [](const auto& work, const std::string& sentence) {
    check_refused(2, work, sentence);
  };
  const auto call = [](const auto& use) {
    return [use] {
      auto model = model_on(Words<50>{}, servers(0, 0, true), ls::SGD{});
      use(model);
    };
  };
  const std::string sentence =
      "only the servers have the tables of embeddings; train with fit, or save a checkpoint";
  refused(call([](auto& model) { model.weights_sha256(); }), sentence);
  refused(call([](auto& model) { model.save_weights("w.safetensors"); }), sentence);
  refused(call([](auto& model) {
            const std::vector<float> x(4);
            const std::vector<std::int32_t> y(1);
            model.train_on_batch(ls::global_batch, x, y);
          }),
          sentence);
  refused([] { model_on(Net{}, servers(0, 0, true), ls::SGD{.learning_rate = 0.01}); },
          "leave the option out, or change the network");
  CHECK_THROWS_WITH(
      (ls::ParameterServer<Cpu>{.tables_on_servers = true}.open()),
      ContainsSubstring("synchronous steps need all weights in each process; set .asynchronous"));
  CHECK_THROWS_WITH(
      (ls::ParameterServer<Cpu>{.backup_workers = 1, .tables_on_servers = true}.open()),
      ContainsSubstring("steps with backup workers need all weights in each process; set "
                        ".asynchronous = true instead of .backup_workers, or leave out "
                        ".tables_on_servers"));
}

TEST_CASE("a bound on staleness needs asynchronous steps, and these need no backup workers") {
  CHECK_THROWS_WITH((ls::ParameterServer<Cpu>{.asynchronous = true, .backup_workers = 1}.open()),
                    ContainsSubstring("backup_workers is 1, but asynchronous steps wait for no "
                                      "worker; leave out .asynchronous, or .backup_workers"));
  CHECK_THROWS_WITH((ls::ParameterServer<Cpu>{.staleness = 2}.open()),
                    ContainsSubstring("staleness is 2, but synchronous steps miss no update; set "
                                      ".asynchronous = true"));
}
