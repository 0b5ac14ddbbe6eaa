#include "lockstep/training/callbacks/backup_and_restore.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

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
