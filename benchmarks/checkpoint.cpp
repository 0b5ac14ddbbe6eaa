/// \file
/// Measures what checkpoints cost.
///
/// - Steps: the tutorials' CNN with Adam inside `fit`, without checkpoints, with one every 100 steps
///   written by a thread, and with one written before training goes on; in turn. `mean` is the whole
///   time divided by the steps, `stall` the time that the step with the save takes longer than the
///   median.
/// - Disk: a state of `--megabytes`, written and synced by CheckpointDirectory and by `dd
///   conv=fsync`, then read and checked; in turn. With LOCKSTEP_PYTHON, the same weights are also
///   read by the Python package safetensors.
///
/// Usage: checkpoint [--threads N] [--batch N] [--rounds N] [--steps N] [--megabytes N] [--folder DIR]
#include <fmt/format.h>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/checkpoints.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/files/safetensors.hpp>
#include <lockstep/lockstep.hpp>

#include "measure.hpp"
#include "seed_step.hpp"

namespace ls = lockstep;
namespace fs = std::filesystem;
using measure::Clock, measure::Samples, measure::micros, measure::verdict;

namespace {

constexpr std::size_t every = 100;

struct Options {
  int threads = 1;
  std::size_t batch = 64, rounds = 5, steps = 1'000, megabytes = 500;
  std::string folder = fs::temp_directory_path() / "lockstep_checkpoint_benchmark";
};

/// Times of the steps, from the end of one to the end of the next.
class Times : public ls::Callback {
 public:
  std::vector<double> us;
  void on_train_begin(const ls::Logs&) override { last_ = Clock::now(); }
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    const Clock::time_point now = Clock::now();
    us.push_back(micros(now - last_));
    last_ = now;
  }

 private:
  Clock::time_point last_;
};

struct Row {
  const char* name;
  ls::CheckpointOptions checkpoint;
  Samples step{}, mean{}, stall{};
};

void measure_steps(const Options& o) {
  const auto data = measure::images() | ls::batch(o.batch);
  std::vector<Row> rows{{"none", {}},
                        {"thread", {.directory = o.folder + "/thread", .every = every}},
                        {"waiting", {.directory = o.folder + "/waiting", .every = every}}};
  rows[2].checkpoint.asynchronous = false;
  for (std::size_t round = 0; round < o.rounds; ++round)
    for (Row& row : rows) {
      if (row.checkpoint) fs::remove_all(row.checkpoint.directory);
      ls::Model model{measure::Cnn{}, ls::OneDevice<ls::Cpu>{.on = {.threads = o.threads}},
                      ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{},
                      ls::Accuracy{}};
      const auto times = std::make_shared<Times>();
      // The last step is not a multiple of `every`: the checkpoint at the end is not counted.
      model.fit(data, {.epochs = 1,
                       .steps_per_epoch = o.steps + every / 2,
                       .callbacks = {times},
                       .checkpoint = row.checkpoint,
                       .progress = ls::ProgressStyle::none});
      Samples steps;
      double sum = 0;
      for (std::size_t i = every / 2; i < times->us.size(); ++i) {
        steps.add(times->us[i]);
        sum += times->us[i];
      }
      row.step.add(steps.median());
      row.mean.add(sum / static_cast<double>(o.steps));
      // The hook of a step runs before its save, so the save is part of the next step.
      for (std::size_t i = every; i < times->us.size(); i += every)
        row.stall.add(times->us[i] - steps.median());
    }
  fmt::print("{:8} {:>10} {:>10} {:>10} {:>8} {:>12} {:>10}\n", "save", "median us", "mean us",
             "least mean", "ratio", "stall us", "in steps");
  for (const Row& row : rows)
    fmt::print("{:8} {:10.1f} {:10.1f} {:10.1f} {:8.3f} {:12.1f} {:10.2f}\n", row.name,
               row.step.median(), row.mean.median(), row.mean.min(),
               row.mean.median() / rows[0].mean.median(), row.stall.median(),
               row.stall.median() / row.step.median());
  const double cost = rows[1].mean.median() / rows[0].mean.median();
  fmt::print("by a thread: {:.1f} % slower, at most 1 %: {}; stall {:.2f} steps, at most 1: {}\n",
             100 * (cost - 1), verdict(cost <= 1.01),
             rows[1].stall.median() / rows[1].step.median(),
             verdict(rows[1].stall.median() <= rows[1].step.median()));
}

/// Seconds that a command takes or, if `prints`, those that it prints; negative if it fails.
double seconds_of(const std::string& command, bool prints) {
  const Clock::time_point begin = Clock::now();
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return -1;
  double printed = -1;
  if (prints && std::fscanf(pipe, "%lf", &printed) != 1) printed = -1;
  const int status = ::pclose(pipe);
  if (status != 0) return -1;
  return prints ? printed : micros(Clock::now() - begin) / 1e6;
}

void measure_disk(const Options& o) {
  const std::size_t bytes = o.megabytes << 20, floats = bytes / sizeof(float) / 2;
  // Two tensors as of a model: values that do not compress.
  std::vector<float> a(floats), b(floats);
  for (std::size_t i = 0; i < floats; ++i)
    a[i] = b[i] = static_cast<float>(ls::mix(i, 7) >> 40) * 1e-6f;
  std::vector<ls::SafetensorsEntry> tensors{
      {"a", ls::DType::float32, {floats}, std::as_bytes(std::span(a))},
      {"b", ls::DType::float32, {floats}, std::as_bytes(std::span(b))}};
  const std::string head = ls::detail::safetensors_head("weights", tensors, {});
  const std::vector<ls::detail::CheckpointFile> files{
      {"weights.safetensors",
       {std::as_bytes(std::span(head)), tensors[0].bytes, tensors[1].bytes}}};
  ls::detail::CheckpointDirectory directory(o.folder + "/disk");
  directory.open_for_writing();
  const std::string plain = o.folder + "/plain";
  const std::string dd =
      fmt::format("dd if={}/weights.safetensors of={} bs=1M conv=fsync status=none",
                  directory.path_of(1), plain);
  const char* const python = std::getenv("LOCKSTEP_PYTHON");
  const std::string load = fmt::format(
      "{} -c \"import time, safetensors.numpy as s; t = time.perf_counter(); "
      "s.load_file('{}/weights.safetensors'); print(time.perf_counter() - t)\"",
      python != nullptr ? python : "", directory.path_of(1));
  Samples write, by_dd, read, by_python;
  for (std::size_t round = 0; round < o.rounds; ++round) {
    Clock::time_point begin = Clock::now();
    directory.write(1, files, "{\"steps\": 1");
    write.add(micros(Clock::now() - begin));
    fs::remove(plain);
    if (const double s = seconds_of(dd, false); s > 0) by_dd.add(1e6 * s);
    begin = Clock::now();
    auto entry = directory.read(1);
    const auto file =
        ls::SafetensorsFile::parse("weights", std::move(entry.files.at("weights.safetensors")));
    read.add(micros(Clock::now() - begin));
    if (python != nullptr)
      if (const double s = seconds_of(load, true); s > 0) by_python.add(1e6 * s);
  }
  const auto rate = [&](double us) { return static_cast<double>(bytes) / us; };  // MB/s
  const auto print = [&](const char* name, const Samples& s) {
    if (!s.empty())
      fmt::print("{:8} {:10.0f} ms {:10.0f} MB/s, best {:.0f}\n", name, s.median() / 1e3,
                 rate(s.median()), rate(s.min()));
  };
  fmt::print("\n{} MB\n", o.megabytes);
  print("write", write);
  print("dd", by_dd);
  print("read", read);
  print("Python", by_python);
  if (!by_dd.empty())
    fmt::print("write: {:.0f} % of dd, at least 70 %: {}\n", 100 * by_dd.median() / write.median(),
               verdict(by_dd.median() >= 0.7 * write.median()));
  if (!by_python.empty())
    fmt::print("read: {:.2f} times the time of Python's, at most 1: {}\n",
               read.median() / by_python.median(), verdict(read.median() <= by_python.median()));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Cost of checkpoints", "checkpoint");
  const auto positive = CLI::Range(1, 1 << 20);
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 1024));
  app.add_option("--batch", o.batch)->check(positive);
  app.add_option("--rounds", o.rounds)->check(positive);
  app.add_option("--steps", o.steps)->check(positive);
  app.add_option("--megabytes", o.megabytes)->check(positive);
  app.add_option("--folder", o.folder, "on the disk to be measured");
  CLI11_PARSE(app, argc, argv);
  fmt::print("{}; threads {}, batch {}, {} rounds of {} steps, a save every {}\n",
             measure::machine(), o.threads, o.batch, o.rounds, o.steps, every);
  fs::create_directories(o.folder);
  const measure::Neighbours neighbours;
  measure_steps(o);
  measure_disk(o);
  fmt::print("other processes used {:.0f} % of the cores\n", neighbours.percent());
  fs::remove_all(o.folder);
}
