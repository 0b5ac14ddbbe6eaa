/// \file
/// The command line of the example programs. Invariant: a value that is here has been checked;
/// nothing was opened yet.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/training/progress.hpp>

namespace support {

/// What a program is called, does, and starts from.
struct Program {
  std::string name, description;
  int epochs = 1;
  std::size_t batch = 1;
  double learning_rate = 0.01;
  bool reads_images = true;  ///< --data, --skip, --take, --no-shuffle, --validate, --optimizer
};

struct Options {
  std::optional<std::string> data, init, save, report;
  int epochs = 1;
  std::optional<std::uint64_t> steps_per_epoch;
  std::size_t batch = 1;
  std::uint64_t skip = 0;
  std::optional<std::uint64_t> take;
  bool shuffle = true, validate = false;
  std::string optimizer = "sgd", precision = "float32";
  double learning_rate = 0.01;
  std::uint64_t seed = 1;
  int threads = 0;  ///< 0: all cores
  lockstep::ProgressStyle progress = lockstep::ProgressStyle::automatic;
};

namespace detail {

/// A whole number of at least `least`, a finite number above 0, a text that is not empty.
inline CLI::Validator at_least(long long least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        long long value = 0;
        if (!CLI::detail::lexical_cast(text, value) || value < least)
          return "'" + text + "' is not a whole number of at least " + std::to_string(least);
        return {};
      },
      "INT >= " + std::to_string(least));
}
inline CLI::Validator positive() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value) || !std::isfinite(value) || value <= 0)
          return "'" + text + "' is not a finite number above 0";
        return {};
      },
      "FLOAT > 0");
}
inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) {
        return text.empty() ? std::string("the value is empty") : std::string();
      },
      "");
}

}  // namespace detail

/// Reads the command line. \throws CLI::ParseError, also for --help.
inline Options parse(const Program& program, int argc, char** argv) {
  using detail::at_least, detail::not_empty, detail::positive;
  Options o;
  o.epochs = program.epochs;
  o.batch = program.batch;
  o.learning_rate = program.learning_rate;
  std::string progress = "auto";
  bool no_shuffle = false, quiet = false;

  CLI::App app(program.description, program.name);
  app.add_option("--epochs", o.epochs, "epochs")->check(at_least(1))->capture_default_str();
  app.add_option("--steps-per-epoch", o.steps_per_epoch,
                 "steps of an epoch; the data are then repeated without end")
      ->check(at_least(1));
  app.add_option("--batch", o.batch, "global batch")->check(at_least(1))->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "base rate")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of weights, order and noise")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--init", o.init, "start from these weights (safetensors)")->check(not_empty());
  app.add_option("--save", o.save, "write the weights at the end of training (safetensors)")
      ->check(not_empty());
  app.add_option("--threads", o.threads, "threads; default: all cores")->check(at_least(1));
  app.add_option("--precision", o.precision, "float32, mixed_bfloat16")
      ->check(CLI::IsMember({"float32", "mixed_bfloat16"}))
      ->capture_default_str();
  app.add_option("--progress", progress,
                 "keras, classic, plain, json, none; default: keras on a terminal, else plain")
      ->check(CLI::IsMember({"keras", "classic", "plain", "json", "none"}));
  app.add_flag("--quiet", quiet, "the same as --progress none");
  app.add_option("--report", o.report, "write a report of the run (JSON)")->check(not_empty());
  if (program.reads_images) {
    app.add_option("--data", o.data, "folder with the data; default: drawn images")
        ->check(not_empty());
    app.add_option("--skip", o.skip, "leave out the first images")->check(at_least(0));
    app.add_option("--take", o.take, "use at most so many images")->check(at_least(1));
    app.add_flag("--no-shuffle", no_shuffle, "take the images in the order of the files");
    app.add_flag("--validate", o.validate, "evaluate on the test images after each epoch");
    app.add_option("--optimizer", o.optimizer, "sgd, momentum, adam")
        ->check(CLI::IsMember({"sgd", "momentum", "adam"}))
        ->capture_default_str();
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  }
  if (o.precision != "float32")
    throw CLI::ValidationError("--precision " + o.precision,
                               "this program was built with float32 only");

  o.shuffle = !no_shuffle;
  using lockstep::ProgressStyle;
  if (quiet || progress == "none") o.progress = ProgressStyle::none;
  if (!quiet && progress == "keras") o.progress = ProgressStyle::keras;
  if (!quiet && progress == "classic") o.progress = ProgressStyle::classic;
  if (!quiet && progress == "plain") o.progress = ProgressStyle::plain;
  if (!quiet && progress == "json") o.progress = ProgressStyle::json;
  return o;
}

}  // namespace support
