#include "lockstep/training/callbacks/callbacks.hpp"

#include <map>
#include <set>

#include "arguments.hpp"
#include "lockstep/checkpoints.hpp"

namespace {

using callbacks_test::check_arguments;
namespace ls = lockstep;

#define OPTION(option) LOCKSTEP_TEST_ARGUMENT(T, option)

/// Keras' classes without a callback here, and what to use instead.
const std::map<std::string, std::string> left_out{
    {"Callback", "ls::Callback, a base class"},
    {"CallbackList", "fit makes its own, ls::CallbackList; it has no arguments of fit"},
    {"History", "the result of fit"},
    {"OrbaxCheckpoint", "a format of JAX; ModelCheckpoint, or .checkpoint of fit"},
    {"RemoteMonitor", "an HTTP client; a custom callback"},
};
const std::set<std::string> present{
    "BackupAndRestore",      "CSVLogger",       "EarlyStopping",  "LambdaCallback",
    "LearningRateScheduler", "ModelCheckpoint", "ProgbarLogger",  "ReduceLROnPlateau",
    "SwapEMAWeights",        "TensorBoard",     "TerminateOnNaN",
};

}  // namespace

TEST_CASE("each callback of Keras exists or is left out on purpose") {
  std::set<std::string> keras, ours = present;
  for (const auto document = recorded::read("callbacks");
       const recorded::Json& row : document["signatures"].GetArray())
    keras.insert(recorded::text(row[0]));
  for (const auto& [name, instead] : left_out) ours.insert(name);
  CHECK(keras == ours);
}

TEST_CASE("callbacks have Keras' arguments, in Keras' order, with Keras' defaults") {
  {
    using T = ls::BackupAndRestore;
    check_arguments("BackupAndRestore", {OPTION(backup_dir), OPTION(save_freq),
                                         OPTION(double_checkpoint), OPTION(delete_checkpoint)});
  }
  {
    using T = ls::CSVLogger;
    check_arguments("CSVLogger", {OPTION(filename), OPTION(separator), OPTION(append)});
  }
  {
    using T = ls::EarlyStopping;
    check_arguments("EarlyStopping", {OPTION(monitor), OPTION(min_delta), OPTION(patience),
                                      OPTION(verbose), OPTION(mode), OPTION(baseline),
                                      OPTION(restore_best_weights), OPTION(start_from_epoch)});
  }
  {
    using T = ls::LambdaCallback;
    check_arguments("LambdaCallback", {OPTION(on_epoch_begin), OPTION(on_epoch_end),
                                       OPTION(on_train_begin), OPTION(on_train_end),
                                       OPTION(on_train_batch_begin), OPTION(on_train_batch_end)});
  }
  {
    using T = ls::LearningRateScheduler;
    check_arguments("LearningRateScheduler", {OPTION(schedule), OPTION(verbose)});
  }
  {
    using T = ls::ModelCheckpoint;
    check_arguments("ModelCheckpoint",
                    {OPTION(filepath), OPTION(monitor), OPTION(verbose), OPTION(save_best_only),
                     OPTION(save_weights_only), OPTION(mode), OPTION(save_freq),
                     OPTION(initial_value_threshold)});
  }
  check_arguments("ProgbarLogger", {});
  {
    using T = ls::ReduceLROnPlateau;
    check_arguments("ReduceLROnPlateau",
                    {OPTION(monitor), OPTION(factor), OPTION(patience), OPTION(verbose),
                     OPTION(mode), OPTION(min_delta), OPTION(cooldown), OPTION(min_lr)});
  }
  {
    using T = ls::SwapEMAWeights;
    check_arguments("SwapEMAWeights", {OPTION(swap_on_epoch)});
  }
  {
    using T = ls::TerminateOnNaN;
    check_arguments("TerminateOnNaN", {OPTION(raise_error)});
  }
}
