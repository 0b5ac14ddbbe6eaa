#include "lockstep/training/callbacks/trace_callback.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_loop.hpp"
#include "lockstep/trace.hpp"
#include "support/folder.hpp"
#include "support/log_lines.hpp"
#include "support/trace_file.hpp"
#include "support/workers.hpp"
#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using testing::TraceFile;
using Float = ls::Reference<float>;

TraceFile read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return TraceFile(text.str());
}

/// Fits three classes of points, 10 steps an epoch.
template <class Strategy>
auto classifier(const Strategy& strategy) {
  return ls::Model{line::Classes{}, strategy,
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::SGD{.learning_rate = 0.01}, ls::Accuracy{}};
}
ls::FitOptions options(const ls::Trace& trace, int epochs = 1) {
  return {.epochs = epochs, .callbacks = {trace}, .progress = ls::ProgressStyle::none};
}
auto batches(std::size_t batch = 4) { return line::classes() | ls::batch(batch); }

std::set<std::size_t> steps_of(const std::vector<TraceFile::Event>& events) {
  std::set<std::size_t> steps;
  for (const auto& e : events) steps.insert(e.step);
  return steps;
}

/// Each layer's forward and backward, the loss, the update: once in each of `steps`.
void check_steps(const TraceFile& file, std::size_t process, std::size_t thread,
                 const std::set<std::size_t>& steps) {
  for (const char* layer : {"dense", "re_lu", "dense_1"})
    for (const char* pass : {"forward", "backward"}) {
      INFO(layer << " " << pass << " of " << process << "/" << thread);
      auto found = file.find(process, thread, layer, pass);
      std::erase_if(found, [](const auto& e) { return e.resumes; });  // after an update within it
      CHECK(found.size() == steps.size());
      CHECK(steps_of(found) == steps);
    }
  CHECK(steps_of(file.find(process, thread, "loss", "loss")) == steps);
  CHECK(steps_of(file.find(process, thread, "optimizer", "update")) == steps);
}

/// Two buckets: 91,203 gradients are final after the backward of dense_1, and 900 at the end.
struct Wide : ls::Sequential<ls::Input<2>, ls::Dense<300>, ls::ReLU, ls::Dense<300>, ls::Dense<3>> {
};

/// Lets rank 1 begin a step only when rank 0 has finished the backward of that step.
class Gate {
 public:
  void pass(std::uint64_t step) {
    const std::scoped_lock lock(mutex_);
    steps_ = step + 1;
    changed_.notify_all();
  }
  void wait_for(std::uint64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return steps_ > step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t steps_ = 0;
};

/// A worker that passes the gate when it begins to exchange its last gradients.
struct WatchedWorker : testing::Worker<Float> {
  Gate* gate;
  class Session : public testing::Worker<Float>::Session {
   public:
    explicit Session(const WatchedWorker& w)
        : testing::Worker<Float>::Session(w), gate_(w.process == 0 ? w.gate : nullptr) {}
    void note(std::uint64_t step, ls::Phase phase) {
      if (gate_ != nullptr && phase == ls::Phase::reduce) gate_->pass(step);
    }

   private:
    Gate* gate_;
  };
  Session open() const { return Session(*this); }
};

/// Holds rank 1 at the gate before each step.
struct Late : ls::Callback {
  explicit Late(Gate& g) : gate(g) {}
  void on_train_batch_begin(std::size_t step, const ls::Logs&) override {
    if (params().rank == 0) return;
    gate.wait_for(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 reaches its wait
  }
  Gate& gate;
};

}  // namespace

TEST_CASE(
    "Trace writes the layers of the chosen steps, within the step, and what is between steps") {
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{});
  model.fit(batches(), options({.filename = folder / "t.json", .first_step = 3, .steps = 4}));
  const TraceFile file = read(folder / "t.json");
  CHECK(file.thread_names() == std::vector<std::string>{"0/0 rank 0", "0/0 replica 0"});
  const std::set<std::size_t> steps{3, 4, 5, 6};
  check_steps(file, 0, 0, steps);
  for (const char* phase : {"data", "step", "callbacks"}) {
    CHECK(file.find(0, 0, phase, "loop").size() == 4);
    CHECK(steps_of(file.find(0, 0, phase, "loop")) == steps);
  }
  CHECK(file.overlaps() == 0);
  CHECK(file.dropped() == 0);
  // The order of a step: data, then the step with its layers, then callbacks.
  std::map<std::size_t, TraceFile::Event> whole;
  for (const auto& e : file.find(0, 0, "step", "loop")) whole[e.step] = e;
  for (const auto& e : file.events()) {
    const TraceFile::Event& step = whole[e.step];
    const double end = e.begin + e.duration, step_end = step.begin + step.duration;
    if (e.name == "data") CHECK(end <= step.begin + 1e-3);
    if (e.name == "callbacks") CHECK(e.begin >= step_end - 1e-3);
    if (e.category == "loop") continue;
    CHECK(e.begin >= step.begin - 1e-3);
    CHECK(end <= step_end + 1e-3);
  }
}

TEST_CASE("a trace changes no weight, and a fit after it records nothing") {
  const testing::Folder folder;
  auto traced = classifier(ls::OneDevice<Float>{}), plain = classifier(ls::OneDevice<Float>{});
  const ls::FitOptions with =
      options({.filename = folder / "t.json", .first_step = 0, .steps = 2}, 2);
  traced.fit(batches(), with);
  plain.fit(batches(), {.epochs = 2, .progress = ls::ProgressStyle::none});
  CHECK(traced.weights_sha256() == plain.weights_sha256());
  check_steps(read(folder / "t.json"), 0, 0, {0, 1});
  std::filesystem::remove(folder / "t.json");
  traced.fit(batches(), {.progress = ls::ProgressStyle::none});
  CHECK(!std::filesystem::exists(folder / "t.json"));
  traced.fit(batches(), with);  // the same callback again
  check_steps(read(folder / "t.json"), 0, 0, {30, 31});
}

TEST_CASE("a trace begins after 20 steps, in the middle of a short fit, and ends with the fit") {
  const testing::Folder folder;
  const ls::Trace trace{.filename = folder / "t.json"};
  auto model = classifier(ls::OneDevice<Float>{});
  model.fit(batches(), options(trace));  // 10 steps
  check_steps(read(trace.filename), 0, 0, {5, 6, 7, 8, 9});
  auto other = classifier(ls::OneDevice<Float>{});
  other.fit(batches(), options(trace, 5));  // 50 steps
  check_steps(read(trace.filename), 0, 0, {20, 21, 22, 23, 24, 25, 26, 27, 28, 29});
}

TEST_CASE("a trace has validation, and the checkpoints that a fit saves") {
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{});
  ls::FitOptions with = options({.filename = folder / "t.json", .first_step = 0, .steps = 20}, 2);
  with.checkpoint = {.directory = folder / "checkpoints", .every = 4};
  model.fit(batches(), batches(20), with);
  const TraceFile file = read(folder / "t.json");
  CHECK(file.find(0, 0, "evaluation", "loop").size() == 2);  // two batches, one epoch
  CHECK(file.find(0, 0, "dense", "evaluation").size() == 2);
  CHECK(file.find(0, 0, "checkpoint", "loop").size() >= 4);
  CHECK(file.overlaps() == 0);
}

TEST_CASE("a trace of several executions has all their steps") {
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{});
  ls::FitOptions with = options({.filename = folder / "t.json", .first_step = 2, .steps = 3}, 1);
  with.steps_per_execution = 2;
  model.fit(batches(), with);
  const TraceFile file = read(folder / "t.json");
  check_steps(file, 0, 0, {2, 3, 4, 5});
  CHECK(file.overlaps() == 0);
}

TEST_CASE("each replica is a thread of the trace, with the buckets that it exchanges") {
  const testing::Folder folder;
  auto model = classifier(ls::Mirrored<Float>{.replicas = 3});
  model.fit(batches(8), options({.filename = folder / "t.json", .first_step = 1, .steps = 2}));
  const TraceFile file = read(folder / "t.json");
  for (const std::size_t thread : {0u, 3u, 5u}) {
    check_steps(file, 0, thread, {1, 2});
    const auto own = file.find(0, thread, "bucket", "exchange");
    const auto background = file.find(0, thread + (thread == 0 ? 2 : 1), "bucket", "exchange");
    std::size_t bytes = 0;
    for (const auto& e : own) bytes += e.bytes;
    for (const auto& e : background) bytes += e.bytes;
    CHECK(bytes == 2 * sizeof(float) * line::Classes::parameter_count);
  }
  CHECK(file.overlaps() == 0);
}

TEST_CASE("the processes of a job write one trace, on the chief's clock") {
  const testing::Folder folder;
  testing::run_workers<Float>({1, 2, 1}, 0, [&](const auto& worker) {
    auto model = classifier(worker);
    model.fit(batches(8), options({.filename = folder / "t.json", .first_step = 1, .steps = 3}));
  });
  const TraceFile file = read(folder / "t.json");
  for (std::size_t rank = 0; rank < 3; ++rank) {
    check_steps(file, rank, 0, {1, 2, 3});
    CHECK(!file.find(rank, 0, "bucket", "exchange").empty());
  }
  check_steps(file, 1, 3, {1, 2, 3});
  CHECK(file.thread_names().size() >= 7);
  CHECK(file.overlaps() == 0);
  // The processes are threads with one clock, so the true offsets are 0.
  REQUIRE(file.offsets().size() == 3);
  REQUIRE(file.errors().size() == 3);
  for (std::size_t rank = 0; rank < 3; ++rank)
    CHECK(std::abs(file.offsets()[rank]) <= file.errors()[rank] + 1e-3);
  CHECK(file.errors()[0] == 0);
  // No rank ends the exchange of a step before all have begun the step.
  for (std::size_t step = 1; step <= 3; ++step) {
    double last_begin = 0, first_end = 1e300;
    for (const auto& e : file.events())
      if (e.name == "step" && e.step == step) {
        last_begin = std::max(last_begin, e.begin);
        first_end = std::min(first_end, e.begin + e.duration);
      }
    const double error = file.errors()[1] + file.errors()[2];
    CHECK(last_begin <= first_end + error);
  }
}

TEST_CASE("a trace has the buckets that a second thread exchanges, and the wait for a late peer") {
  const testing::Folder folder;
  Gate gate;
  testing::run_workers<Float>({1, 1}, 0, [&](const auto& worker) {
    auto model = ls::Model{Wide{}, WatchedWorker{{worker}, &gate},
                           ls::SparseCategoricalCrossentropy{.from_logits = true},
                           ls::SGD{.learning_rate = 0.01}};
    ls::FitOptions with = options({.filename = folder / "t.json", .first_step = 1, .steps = 3});
    with.callbacks.push_back(std::make_shared<Late>(gate));
    model.fit(batches(8), with);
  });
  const TraceFile file = read(folder / "t.json");
  CHECK(file.thread_names() ==
        std::vector<std::string>{"0/0 rank 0", "0/0 replica 0", "0/2 exchange of replica 0",
                                 "1/0 rank 1", "1/0 replica 1", "1/2 exchange of replica 1"});
  CHECK(file.overlaps() == 0);
  const double error = 1e-3 + file.errors()[1];
  const auto end_of = [](const TraceFile::Event& e) { return e.begin + e.duration; };
  const auto waits = file.find(0, 0, "wait", "exchange"),
             last = file.find(0, 0, "bucket", "exchange"),
             first = file.find(0, 2, "bucket", "exchange"),
             first_of_peer = file.find(1, 2, "bucket", "exchange"),
             last_of_peer = file.find(1, 0, "bucket", "exchange"),
             backward = file.find(0, 0, "dense", "backward"),
             late = file.find(1, 0, "dense", "forward");
  REQUIRE(waits.size() == 3);
  for (const auto* const events : {&last, &first, &first_of_peer, &last_of_peer, &backward, &late})
    REQUIRE(events->size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    INFO("step " << i + 1);
    CHECK(waits[i].bytes == 0);
    CHECK(first[i].bytes == sizeof(float) * 91'203);
    CHECK(last[i].bytes == sizeof(float) * 900);
    CHECK(first_of_peer[i].bytes == first[i].bytes);
    CHECK(last_of_peer[i].bytes == last[i].bytes);
    // Rank 0: backward, the wait, which ends with the first bucket, and the last bucket.
    CHECK(end_of(backward[i]) <= waits[i].begin + 1e-3);
    CHECK(first[i].begin < end_of(waits[i]));
    CHECK(end_of(first[i]) <= end_of(waits[i]) + 1e-3);
    CHECK(end_of(waits[i]) <= last[i].begin + 1e-3);
    // Both ranks, on one clock: rank 1 begins after rank 0's backward, and within its wait. No rank
    // has a sum before the other has begun it.
    CHECK(late[i].begin >= end_of(backward[i]) - error);
    CHECK(late[i].begin >= waits[i].begin - error);
    CHECK(late[i].begin <= end_of(waits[i]) + error);
    CHECK(end_of(first[i]) >= first_of_peer[i].begin - error);
    CHECK(end_of(first_of_peer[i]) >= first[i].begin - error);
    CHECK(end_of(last[i]) >= last_of_peer[i].begin - error);
  }
}

TEST_CASE("a trace ends with an exception, and the model can be used again") {
  struct Thrower : ls::Callback {
    void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
      if (batch == 4) throw std::runtime_error("no more");
    }
  };
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{});
  ls::FitOptions with = options({.filename = folder / "t.json", .first_step = 2, .steps = 9});
  with.callbacks.push_back(std::make_shared<Thrower>());
  CHECK_THROWS_AS(model.fit(batches(), with), std::runtime_error);
  CHECK(!std::filesystem::exists(folder / "t.json"));
  with.callbacks.pop_back();
  model.fit(batches(), with);
  check_steps(read(folder / "t.json"), 0, 0, {7, 8, 9, 10, 11, 12, 13, 14});
}

TEST_CASE(
    "Trace refuses options that name no steps and no file, and files that cannot be written") {
  using Made = std::shared_ptr<ls::Callback>;
  CHECK_THROWS_AS(Made(ls::Trace{.filename = ""}), ls::UsageError);
  CHECK_THROWS_AS(Made(ls::Trace{.steps = 0}), ls::UsageError);
  auto model = classifier(ls::OneDevice<Float>{});
  CHECK_THROWS_AS(model.fit(batches(), options({.filename = "/nowhere/t.json"})), ls::FileError);
  CHECK(model.steps() == 0);
}

TEST_CASE("a fit that ends before the first traced step warns, and writes nothing") {
  const testing::Folder folder;
  const testing::LogLines lines;
  auto model = classifier(ls::OneDevice<Float>{});
  model.fit(batches(), options({.filename = folder / "t.json", .first_step = 11}));
  CHECK(!std::filesystem::exists(folder / "t.json"));
  REQUIRE(lines.lines.size() == 1);
  CHECK(lines.lines[0].find("training ended after 10 steps") != std::string::npos);
}

TEST_CASE("a fit that ends where the trace would begin warns, and keeps an earlier file") {
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{});
  model.fit(batches(), options({.filename = folder / "t.json", .first_step = 8}));
  const testing::LogLines lines;
  model.fit(batches(), options({.filename = folder / "t.json", .first_step = 10}));
  REQUIRE(lines.lines.size() == 1);
  CHECK(lines.lines[0].find("nothing was written") != std::string::npos);
  check_steps(read(folder / "t.json"), 0, 0, {8, 9});
}

TEST_CASE("a trace of all steps, however many, ends with the fit") {
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{});
  model.fit(batches(), options({.filename = folder / "t.json",
                                .first_step = 7,
                                .steps = std::numeric_limits<std::uint64_t>::max()}));
  check_steps(read(folder / "t.json"), 0, 0, {7, 8, 9});
}

TEST_CASE("a fit that continues traces the second half of the steps that are left") {
  struct Thrower : ls::Callback {
    void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
      if (batch == 7) throw std::runtime_error("no more");
    }
  };
  const testing::Folder folder;
  const auto with = [&](std::shared_ptr<ls::Callback> callback) {
    ls::FitOptions result{.callbacks = {std::move(callback)}, .progress = ls::ProgressStyle::none};
    result.checkpoint = {.directory = folder / "checkpoints", .every = 3};
    return result;
  };
  const testing::LogLines lines;
  auto first = classifier(ls::OneDevice<Float>{});
  CHECK_THROWS_AS(first.fit(batches(), with(std::make_shared<Thrower>())), std::runtime_error);
  auto second = classifier(ls::OneDevice<Float>{});
  second.fit(batches(), with(ls::Trace{.filename = folder / "t.json"}));  // from step 6 of 10
  check_steps(read(folder / "t.json"), 0, 0, {8, 9});
  auto finished = classifier(ls::OneDevice<Float>{});  // keeps the file
  finished.fit(batches(), with(ls::Trace{.filename = folder / "t.json"}));
  check_steps(read(folder / "t.json"), 0, 0, {8, 9});
}

TEST_CASE("a trace of virtual shards has each shard's layers") {
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{.virtual_shards = 4});
  model.fit(batches(8), options({.filename = folder / "t.json", .first_step = 1, .steps = 2}));
  const TraceFile file = read(folder / "t.json");
  CHECK(file.find(0, 0, "dense", "forward").size() == 2 * 4);
  CHECK(steps_of(file.find(0, 0, "dense", "backward")) == std::set<std::size_t>{1, 2});
  CHECK(file.overlaps() == 0);
}

TEST_CASE("two traces of one fit are refused while both record, and follow each other otherwise") {
  const testing::Folder folder;
  auto model = classifier(ls::OneDevice<Float>{});
  ls::FitOptions with = options({.filename = folder / "a.json", .first_step = 1, .steps = 3});
  with.callbacks.push_back(ls::Trace{.filename = folder / "b.json", .first_step = 2});
  CHECK_THROWS_AS(model.fit(batches(), with), ls::UsageError);
  with.callbacks.back() = ls::Trace{.filename = folder / "b.json", .first_step = 4, .steps = 2};
  const std::uint64_t before = model.steps();
  model.fit(batches(), with);
  check_steps(read(folder / "a.json"), 0, 0, {before + 1, before + 2, before + 3});
  check_steps(read(folder / "b.json"), 0, 0, {before + 4, before + 5});
}

TEST_CASE("a control that records no trace throws") {
  callbacks_test::FakeLoop loop;
  CHECK_THROWS_AS(loop.begin_trace(1), ls::UsageError);
  CHECK_THROWS_AS(loop.end_trace(), ls::UsageError);
}
