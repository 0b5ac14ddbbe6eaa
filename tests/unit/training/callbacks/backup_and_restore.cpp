#include "lockstep/training/callbacks/backup_and_restore.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <optional>

#include "fit_recorded.hpp"
#include "lockstep/checkpoints.hpp"
#include "named_hooks.hpp"
#include "unit/training/checkpoint/resume_support.hpp"
#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;

auto model() {
  return ls::Model{line::Net{}, line::Double{}, ls::MeanSquaredError{},
                   ls::SGD{.learning_rate = 0.1, .momentum = 0.9}};
}
auto fit(auto& model, const ls::Callbacks& callbacks,
         const ls::CheckpointOptions& checkpoint = {}) {
  return model.fit(line::points() | ls::batch(3), {.epochs = 3,
                                                   .callbacks = callbacks,
                                                   .checkpoint = checkpoint,
                                                   .progress = ls::ProgressStyle::none});
}

/// Where a run begins, and how many steps it makes.
struct Run {
  std::uint64_t first_step = 0;
  int epoch = 0;
  std::optional<std::string> first_batch{};
  std::uint64_t steps = 0;
};

/// The script's run, which crashes before step `crash` if there is one.
Run run_backup(const ls::BackupAndRestore& backup, std::optional<std::uint64_t> crash) {
  auto model = recorded::slope();
  Run run;
  const auto hooks = std::make_shared<callbacks_test::NamedHooks>(
      [&](callbacks_test::NamedHooks& self, const std::string& hook, const ls::Logs&) {
        if (hook == "train_begin") run.first_step = self.params().first_step;
        if (hook == "train_begin") run.epoch = self.params().initial_epoch;
        if (!hook.starts_with("train_batch_begin")) return;
        if (run.steps == crash) throw resume::Crash{};
        if (!run.first_batch) run.first_batch = hook.substr(hook.rfind(' ') + 1);
        ++run.steps;
      });
  model.fit(recorded::slope_data(8) | ls::batch(2),
            {.epochs = 3, .callbacks = {backup, hooks}, .progress = ls::ProgressStyle::none});
  return run;
}

}  // namespace

TEST_CASE("BackupAndRestore continues with the next step, and removes its checkpoints at the end") {
  const testing::Folder folder;
  const resume::Log lines;
  auto quiet = model();
  fit(quiet, {});
  for (const bool deletes : {true, false}) {
    const ls::BackupAndRestore backup{
        .backup_dir = folder / "backup", .save_freq = 1, .delete_checkpoint = deletes};
    const ls::detail::CheckpointDirectory directory(folder / "backup");
    auto first = model();
    CHECK_THROWS_AS(fit(first, {backup, std::make_shared<resume::CrashAfter>(6)}), resume::Crash);
    CHECK(directory.steps() == std::vector<std::uint64_t>{5});
    auto second = model();
    const auto history = fit(second, {backup});
    CHECK(second.steps() == 12);
    CHECK(history.epoch == std::vector{0, 1, 2});
    CHECK(resume::state_of(second) == resume::state_of(quiet));
    CHECK(directory.steps().size() == (deletes ? 0 : 1));
  }
}

TEST_CASE(
    "BackupAndRestore restores the step that Keras restores, and continues within its epoch") {
  const resume::Log lines;
  const auto document = recorded::read("fit_callbacks");
  REQUIRE(document["backups"].Size() == 32);
  for (const recorded::Json& row : document["backups"].GetArray()) {
    const testing::Folder folder;
    const bool is_by_epoch = row["save_freq"].IsString(), is_damaged = row["damaged"].GetBool();
    const ls::BackupAndRestore backup{.backup_dir = folder / "backup",
                                      .save_freq = is_by_epoch ? 0 : row["save_freq"].GetUint64(),
                                      .double_checkpoint = row["double_checkpoint"].GetBool(),
                                      .delete_checkpoint = row["delete_checkpoint"].GetBool()};
    const std::uint64_t crash = row["crash"].GetUint64();
    CAPTURE(backup.save_freq, backup.double_checkpoint, backup.delete_checkpoint, crash,
            is_damaged);
    CHECK_THROWS_AS(run_backup(backup, crash), resume::Crash);
    const ls::detail::CheckpointDirectory directory(backup.backup_dir);
    const std::vector<std::uint64_t> saved = directory.steps();
    CHECK(saved.size() == row["saved"].GetUint());
    if (is_damaged)
      std::filesystem::resize_file(directory.path_of(saved.back()) + "/weights.safetensors", 100);
    if (row["steps"].IsNull()) {
      CHECK_THROWS_WITH(run_backup(backup, {}), ContainsSubstring("no checkpoint is undamaged"));
      continue;
    }
    const Run run = run_backup(backup, {});
    const std::uint64_t restored = row["restored"].GetUint64();
    CHECK(run.first_step == restored);
    // Keras begins the interrupted epoch again, with the weights of a later step.
    CHECK(row["batch"].GetUint64() == 0);
    CHECK(static_cast<std::uint64_t>(run.epoch) == restored / 4);
    CHECK(run.first_batch == std::to_string(restored % 4));
    CHECK(run.steps == 12 - restored);
    if (restored % 4 == 0 && is_by_epoch) {
      CHECK(run.epoch == (row["epoch"].IsNull() ? 0 : row["epoch"].GetInt()));
      CHECK(run.steps == row["steps"].GetUint64());
    }
    CHECK(directory.steps().empty() == !row["left"].GetBool());
  }
}

TEST_CASE("BackupAndRestore refuses an empty directory's name, and a second request") {
  CHECK_THROWS_WITH(std::shared_ptr<ls::Callback>(ls::BackupAndRestore{}),
                    ContainsSubstring("backup_dir is empty"));
  const testing::Folder folder;
  const ls::BackupAndRestore backup{.backup_dir = folder / "backup"};
  auto m = model();
  CHECK_THROWS_WITH(fit(m, {backup}, {.directory = folder / "run"}),
                    ContainsSubstring("requested twice"));
  CHECK_THROWS_WITH(fit(m, {backup, backup}), ContainsSubstring("requested twice"));
}
