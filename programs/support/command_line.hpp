/// \file
/// Parses the command line of the programs. Included only by program.cpp.
#pragma once

#include <fmt/format.h>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>

#include <CLI/CLI.hpp>

#include <lockstep/strategies/virtual_shards.hpp>
#include <lockstep/training/report/progress.hpp>

#include "support/options.hpp"
#include "support/versions.hpp"

namespace support {

namespace detail {

/// Parses all of `text` as a T in [least, most]. Whole numbers must be decimal digits without a
/// sign or leading zeros; CLI11's parser also accepts 010 and 0x1, and saturates large values.
template <class T>
std::optional<T> number(const std::string& text, T least, T most) {
  if constexpr (std::is_integral_v<T>)
    if (text.empty() || text[0] < '0' || text[0] > '9' || (text[0] == '0' && text.size() > 1))
      return std::nullopt;
  T value{};
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || !(value >= least && value <= most))
    return std::nullopt;
  return value;
}

/// Adds an option that sets `slot` to a whole number from `least` to `most`.
template <class T, class Slot>
CLI::Option* add_whole(CLI::App& app, const std::string& name, Slot& slot,
                       const std::string& description, T least,
                       T most = std::numeric_limits<T>::max()) {
  const std::string bounds = fmt::format("{} to {}", least, most);
  return app
      .add_option_function<std::string>(
          name,
          [=, &slot](const std::string& text) {
            const auto value = number<T>(text, least, most);
            if (!value)
              throw CLI::ValidationError(name, "'" + text + "' is not a whole number from " +
                                                   bounds + " in plain decimal digits");
            slot = *value;
          },
          description)
      ->type_name(most == std::numeric_limits<T>::max() ? fmt::format("INT >= {}", least)
                                                        : "INT " + bounds);
}
/// Adds an option that sets `slot` to a finite number above 0, or of at least 0.
inline CLI::Option* add_positive(CLI::App& app, const std::string& name, double& slot,
                                 const std::string& description, bool or_0 = false) {
  return app
      .add_option_function<std::string>(
          name,
          [=, &slot](const std::string& text) {
            const auto value =
                number<double>(text, or_0 ? 0 : std::numeric_limits<double>::denorm_min(),
                               std::numeric_limits<double>::max());
            if (!value)
              throw CLI::ValidationError(name, "'" + text + "' is not a finite number " +
                                                   (or_0 ? "of at least 0" : "above 0"));
            slot = *value;
          },
          description)
      ->type_name(or_0 ? "FLOAT >= 0" : "FLOAT > 0");
}
/// Adds an option that sets `slot` to a duration in seconds.
inline CLI::Option* add_seconds(CLI::App& app, const std::string& name,
                                std::chrono::milliseconds& slot, const std::string& description) {
  const std::string before = std::to_string(slot.count() / 1000);
  return app
      .add_option_function<std::string>(
          name,
          [=, &slot](const std::string& text) {
            const auto seconds = number<double>(text, 0.001, 86'400);
            if (!seconds)
              throw CLI::ValidationError(
                  name, "'" + text + "' is not a number of seconds from 0.001 to 86400");
            slot = std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
          },
          description)
      ->type_name("SECONDS")
      ->default_str(before);
}
inline std::string default_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
/// Rejects empty values.
inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) {
        return text.empty() ? std::string("the value is empty") : std::string();
      },
      "");
}

/// Adds the options of a language model.
inline void add_text_options(CLI::App& app, Options& o) {
  app.add_option("--size", o.text.size,
                 "tiny: 2 layers over bytes; 10m: 6 layers over bytes; 124m: GPT-2's 12 layers and "
                 "50,257 tokens")
      ->check(CLI::IsMember({"tiny", "10m", "124m"}))
      ->capture_default_str();
  add_whole<int>(app, "--context", o.text.context,
                 "tokens of a window; default: 64, 256 or 1024, by the size", 1);
  app.add_option(
         "--style", o.text.style,
         "gpt2: LayerNormalization, learned positions, GELU; llama: RMSNormalization, rotary "
         "positions, SwiGLU")
      ->check(CLI::IsMember({"gpt2", "llama"}))
      ->capture_default_str();
  o.optimizer = "adamw";
  app.add_option("--optimizer", o.optimizer, "adamw, muon")
      ->check(CLI::IsMember({"adamw", "muon"}))
      ->capture_default_str();
  add_whole<std::uint64_t>(app, "--accumulate", o.text.accumulate,
                           "steps whose mean gradient makes one update", 1)
      ->default_str("1");
  auto* const generate = add_whole<std::size_t>(
      app, "--generate", o.text.generate,
      "print the prompt and this many tokens after it, at the end of training; with --init and "
      "without --data, --epochs, --steps-per-epoch, --save, --checkpoint and --export-onnx, instead "
      "of training",
      1);
  app.add_option(
         "--prompt", o.text.prompt,
         "text to continue; for 124m also the numbers of tokens; default: the end of a line")
      ->check(not_empty())
      ->needs(generate);
  add_positive(app, "--temperature", o.text.temperature,
               "of --generate: the logits are divided by it; 0: always the likeliest token", true)
      ->default_str("1")
      ->needs(generate);
  add_whole<int>(app, "--top-k", o.text.top_k,
                 "of --generate: draw among this many likeliest tokens; default: all", 1)
      ->needs(generate);
}

/// Checks that virtual shards can be divided among the replicas, with one thread each.
/// \throws CLI::ParseError
inline void check_virtual_shards(const Options& o) {
  if (o.virtual_shards == 0) return;
  const std::string option = fmt::format("--virtual-shards {}", o.virtual_shards);
  if (!std::has_single_bit(o.virtual_shards))
    throw CLI::ValidationError(
        option, fmt::format("the number of slices must be a power of two, such as {} or {}",
                            std::bit_floor(o.virtual_shards), std::bit_ceil(o.virtual_shards)));
  // With replicas == 0 the number of GPUs is not known yet.
  if (o.replicas > 0 && (!std::has_single_bit(o.replicas) || o.replicas > o.virtual_shards))
    throw CLI::ValidationError(
        option,
        fmt::format(
            "the slices cannot be divided among --replicas {}; use 1, 2, 4, ... replicas, at most "
            "one per slice",
            o.replicas));
  if (o.threads > 1)
    throw CLI::ValidationError(
        option,
        fmt::format("a slice is computed by one thread, not by --threads {}; remove --threads",
                    o.threads));
}

/// Checks that the other options leave room for compressed gradients. \throws CLI::ParseError
inline void check_wire(const Options& o) {
  if (o.wire_warm_up && o.wire != "top_k" && o.wire != "power_sgd")
    throw CLI::ValidationError(
        "--wire-warm-up " + std::to_string(*o.wire_warm_up),
        "--wire " + o.wire + " has no warm-up; add --wire top_k or power_sgd");
  if (o.wire.empty() || o.wire == "float32") return;
  if (o.update != "replicated")
    throw CLI::ValidationError(
        "--wire " + o.wire, fmt::format("only replicas with the whole update compress gradients; "
                                        "leave out --update {}",
                                        o.update));
  if (o.virtual_shards > 0)
    throw CLI::ValidationError(
        "--wire " + o.wire,
        fmt::format("compressed gradients depend on the number of replicas; leave out "
                    "--virtual-shards {}",
                    o.virtual_shards));
}

}  // namespace detail

/// Parses the command line. \throws CLI::ParseError, also for --help and --version.
inline Options parse(const Program& program, int argc, char** argv) {
  using detail::add_positive, detail::add_seconds, detail::add_whole, detail::not_empty;
  Options o;
  o.epochs = program.epochs;
  o.batch = program.batch;
  o.learning_rate = program.learning_rate;
  std::string progress = "auto", mode = "sync";
  bool no_shuffle = false, no_augment = false, quiet = false;

  CLI::App app(program.description, program.name);
  app.set_version_flag("--version", versions(program.has_workers), "print the versions and exit");
  add_whole<int>(app, "--epochs", o.epochs, "epochs", 1)->default_str(std::to_string(o.epochs));
  add_whole<std::uint64_t>(app, "--steps-per-epoch", o.steps_per_epoch,
                           "steps of an epoch; the data are then repeated indefinitely", 1);
  add_whole<std::uint64_t>(app, "--steps-per-execution", o.steps_per_execution,
                           "steps between two reports of the loss; on one GPU, one launch", 1)
      ->default_str("1");
  auto* const batch = add_whole<std::size_t>(app, "--batch", o.batch, "global batch", 1)
                          ->default_str(std::to_string(o.batch) +
                                        (program.batch_is_per_replica ? " x all replicas" : ""));
  auto* const rate =
      add_positive(app, "--learning-rate", o.learning_rate, "base rate")
          ->default_str(program.has_text ? "by the size" : detail::default_text(o.learning_rate));
  add_whole<std::uint64_t>(app, "--seed", o.seed, "seed of weights, order and noise", 0)
      ->default_str(std::to_string(o.seed));
  app.add_option("--init", o.init, "start from these weights (safetensors)")->check(not_empty());
  app.add_option("--save", o.save,
                 "write the weights at the end of training (safetensors), and next to them the "
                 "architecture (JSON)")
      ->check(not_empty());
  app.add_option("--export-onnx", o.export_onnx, "write the model at the end of training (ONNX)")
      ->check(not_empty());
  if (program.counts_devices)
    o.replicas = 0;
  else
    add_whole<int>(app, "--threads", o.threads, "threads of a replica; default: cores / replicas",
                   1, 1024);
  if (program.replica_limit > 0)
    add_whole<std::size_t>(app, "--replicas", o.replicas, "replicas in this process", 1,
                           program.replica_limit)
        ->default_str(program.counts_devices ? "all GPUs" : std::to_string(o.replicas));
  if (program.has_updates) {
    o.update = "replicated";
    auto* const update =
        app.add_option(
               "--update", o.update,
               "replicated: each replica makes the whole update; sharded, on CPUs: its share, "
               "with that share of the optimizer's memory; local, diloco, on CPUs: replicas train "
               "alone for rounds of steps")
            ->capture_default_str();
    if (program.counts_devices)
      update->check(CLI::IsMember({"replicated"}));
    else
      update->check(CLI::IsMember({"replicated", "sharded", "local", "diloco"}));
    add_whole<std::uint64_t>(app, "--sync-every", o.sync_every,
                             "steps of a round of --update local, by default 16, and of --update "
                             "diloco, by default 500",
                             1);
    o.wire = "float32";
    auto* const wire =
        app.add_option(
               "--wire", o.wire,
               "what replicas exchange: whole gradients, float32, or on CPUs bfloat16 (half of "
               "the bytes), top_k (the largest hundredth), power_sgd (factors of rank 1)")
            ->capture_default_str();
    if (program.counts_devices)
      wire->check(CLI::IsMember({"float32"}));
    else
      wire->check(CLI::IsMember({"float32", "bfloat16", "top_k", "power_sgd"}));
    add_whole<std::uint64_t>(app, "--wire-warm-up", o.wire_warm_up,
                             "updates in which top_k sends more, fewer in each, by default 0, and "
                             "before power_sgd begins, by default 10",
                             0);
  }
  add_whole<std::uint64_t>(app, "--verify-every", o.verify_every,
                           "steps between two comparisons of the replicas' weights", 1);
  auto* const checkpoint =
      app.add_option("--checkpoint", o.checkpoint,
                     "directory for checkpoints; the chief writes one after each epoch and when a "
                     "signal ends training")
          ->check(not_empty());
  add_whole<std::uint64_t>(app, "--checkpoint-every", o.checkpoint_every,
                           "steps from one checkpoint to the next, instead of one per epoch", 1)
      ->needs(checkpoint);
  app.add_flag("--resume", o.resume,
               "continue from the newest checkpoint; start from the beginning if there is none")
      ->needs(checkpoint);
  if (program.has_workers) {
    app.add_option("--cluster", o.cluster,
                   "file with the addresses of all workers (JSON, as TF_CONFIG's cluster)")
        ->check(not_empty());
    app.add_option("--task", o.task, "this process' task in the cluster: worker:1, chief:0")
        ->check(not_empty());
    if (program.has_servers) {
      app.add_option("--mode", mode,
                     "sync: each step waits for all workers; async: each worker makes steps of its "
                     "own")
          ->check(CLI::IsMember({"sync", "async"}))
          ->capture_default_str();
      add_whole<std::uint64_t>(app, "--staleness", o.staleness,
                               "updates that an asynchronous step may miss; default: 2 for each "
                               "worker",
                               0);
      add_whole<std::size_t>(app, "--backup-workers", o.backup_workers,
                             "workers that a synchronous step need not wait for: the slowest ones; "
                             "less than the workers",
                             0);
      add_whole<std::size_t>(app, "--ps-replicas", o.server_replicas,
                             "parameter servers that own each range of the weights; with 2 an "
                             "elastic job survives the death of one",
                             1);
    }
    add_whole<std::size_t>(
        app, "--elastic,--min-workers", o.min_workers,
        "the processes that are left after a loss go on if this many of them are "
        "workers; default: LOCKSTEP_MIN_WORKERS, else 1 with --mode async, else "
        "a loss ends the job",
        1);
    add_seconds(app, "--stall-timeout", o.stall_timeout,
                "a worker without progress in forward, backward or reduce is lost after this time");
    add_seconds(app, "--idle-timeout", o.idle_timeout,
                "the same in data, callbacks, evaluation and the first step");
    app.add_flag("--stragglers", o.stragglers,
                 "after each epoch, a table of each rank's time in each phase");
  }
  if (program.counts_devices)
    app.add_option("--precision", o.precision, "float32, tf32, mixed_bfloat16, mixed_float16")
        ->check(CLI::IsMember({"float32", "tf32", "mixed_bfloat16", "mixed_float16"}))
        ->capture_default_str();
  else
    app.add_option("--precision", o.precision, "float32, mixed_bfloat16")
        ->check(CLI::IsMember({"float32", "mixed_bfloat16"}))
        ->capture_default_str();
  app.add_option("--progress", progress,
                 "keras, classic, plain, json, none; default: keras on a terminal, else plain")
      ->check(CLI::IsMember({"keras", "classic", "plain", "json", "none"}));
  app.add_flag("--quiet", quiet, "the same as --progress none");
  app.add_option("--report", o.report, "write a report of the run (JSON)")->check(not_empty());
  app.add_option("--tensorboard", o.tensorboard,
                 "write event files for TensorBoard into this folder, in train/ and validation/")
      ->check(not_empty());
  app.add_option("--trace", o.trace,
                 "write what each replica does in ten steps, for https://ui.perfetto.dev (JSON)")
      ->check(not_empty());
  if (!program.has_workers)
    app.add_option("--profile", o.profile,
                   "after training, write a profile of a step (JSON), and print its table")
        ->check(not_empty());
  if (program.reads_data) {
    app.add_option("--data", o.data, program.data)->check(not_empty());
    add_whole<std::uint64_t>(app, "--skip", o.skip,
                             fmt::format("number of {} to skip at the start", program.examples), 0);
    add_whole<std::uint64_t>(app, "--take", o.take,
                             fmt::format("maximum number of {} to use", program.examples), 1);
    app.add_flag("--no-shuffle", no_shuffle,
                 fmt::format("use the {} in the order of the files", program.examples));
    app.add_flag("--validate", o.validate,
                 fmt::format("evaluate on the test {} after each epoch", program.examples));
    add_whole<std::size_t>(
        app, "--virtual-shards", o.virtual_shards,
        "slices of a batch, a power of two: equal bits for 1, 2, 4, ... replicas", 1,
        lockstep::virtual_shard_limit);
  }
  if (program.has_optimizers) {
    app.add_option("--optimizer", o.optimizer, "sgd, momentum, adam")
        ->check(CLI::IsMember({"sgd", "momentum", "adam"}))
        ->capture_default_str();
    if (!program.has_workers)
      add_whole<std::size_t>(
          app, "--show", o.show,
          "after training, print the test accuracy and this many test images with "
          "their predictions; implies --validate",
          1, 100);
  }
  if (program.has_text) detail::add_text_options(app, o);
  if (program.has_depths) {
    app.add_option("--depth", o.depth, "layers of the network: 20, 56")
        ->check(CLI::IsMember({"20", "56"}))
        ->capture_default_str();
    app.add_flag("--no-augment", no_augment, "use whole images, without crop and flip");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  } catch (const CLI::CallForVersion& version) {
    std::fputs(fmt::format("{}\n", version.what()).c_str(), stdout);
    throw;
  }
  if (program.has_text && rate->count() == 0)
    o.learning_rate = o.text.size == "tiny" ? 0.01 : o.text.size == "10m" ? 0.001 : 0.0006;
  const auto has = [&](const char* name) { return app.count(name) > 0; };
  o.text.generates_only = o.text.generate > 0 && has("--init") && !has("--data") &&
                          !has("--epochs") && !has("--steps-per-epoch") && !has("--save") &&
                          !has("--checkpoint") && !has("--export-onnx");
  if (o.precision != "float32" && !program.has_depths && !program.has_optimizers &&
      !program.has_text)
    throw CLI::ValidationError("--precision " + o.precision,
                               "this program was built with float32 only");
  detail::check_virtual_shards(o);
  detail::check_wire(o);
  o.asynchronous = mode == "async";
  if (o.trace && o.asynchronous)
    throw CLI::ValidationError("--trace " + *o.trace,
                               "asynchronous steps are not traced; leave out --mode async");
  const bool has_rounds = o.update == "local" || o.update == "diloco";
  if (o.trace && has_rounds)
    throw CLI::ValidationError(
        "--trace " + *o.trace,
        "rounds of local steps are not traced; leave out --update " + o.update);
  if (o.sync_every && !has_rounds)
    throw CLI::ValidationError("--sync-every " + std::to_string(*o.sync_every),
                               "replicas synchronise in each step; add --update local or diloco");
  const auto refuse_backups = [&](const char* why) {
    throw CLI::ValidationError("--backup-workers " + std::to_string(o.backup_workers), why);
  };
  if (o.backup_workers > 0 && o.asynchronous)
    refuse_backups("asynchronous steps wait for no worker; leave out --mode async");
  if (o.backup_workers > 0 && o.trace)
    refuse_backups("steps with backup workers are not traced; leave out --trace");
  if (o.staleness && !o.asynchronous)
    throw CLI::ValidationError("--staleness " + std::to_string(*o.staleness),
                               "synchronous steps miss no update; add --mode async");

  o.batch_is_per_replica = program.batch_is_per_replica && batch->count() == 0;
  o.shuffle = !no_shuffle;
  o.augment = !no_augment;
  if (o.show > 0) o.validate = true;
  using lockstep::ProgressStyle;
  if (quiet || progress == "none") o.progress = ProgressStyle::none;
  if (!quiet && progress == "keras") o.progress = ProgressStyle::keras;
  if (!quiet && progress == "classic") o.progress = ProgressStyle::classic;
  if (!quiet && progress == "plain") o.progress = ProgressStyle::plain;
  if (!quiet && progress == "json") o.progress = ProgressStyle::json;
  return o;
}

}  // namespace support
