/// Checkpoints in a job of processes: while the chief writes one, or fails to.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/faults.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/files/checkpoint_directory.hpp"
#include "support/folder.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;
using ls::detail::checkpoint_fault;

namespace {

/// Trains two epochs of three steps, by default with a checkpoint after each epoch.
void train_and_save(Here& own, const ls::CheckpointOptions& checkpoint,
                    ls::Callbacks callbacks = {}, std::stop_token stop = {}) {
  ls::Model model{line::Classes{}, ls::MultiWorkerMirrored<ls::Reference<double>>{},
                  replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
  auto options = line::quiet(2);
  options.checkpoint = checkpoint;
  options.callbacks = std::move(callbacks);
  options.stop = std::move(stop);
  own.run_and_report([&] { model.fit(line::classes(24) | ls::batch(8), options); });
}

}  // namespace

TEST_CASE("peers know that the chief has failed before its last checkpoint is on disk") {
  const testing::Folder folder;
  Processes job(2, [&](Here& own) {
    checkpoint_fault() = [](std::string_view operation) {
      if (operation == "rename entry") std::this_thread::sleep_for(5s);
      return 0;
    };
    train_and_save(own, {.directory = folder / "run"},
                   {ls::LambdaCallback{.on_epoch_begin = [&](int epoch, const ls::Logs&) {
                     if (epoch == 1 && own.rank == 0 && own.begin_fault())
                       throw std::runtime_error(failure_text);
                   }}});
  });
  REQUIRE(job.all_end());
  CAPTURE(job.report(1).what.text);
  REQUIRE(job.report(1).outcome == Outcome::peer_lost);
  CHECK(std::string(job.report(1).how).find(failure_text) != std::string::npos);
  CHECK(between(job.report(0).fault_at, job.report(1).reported_at) < 3s);
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps().size() == 1);
}

TEST_CASE("a required checkpoint that cannot be written ends the job, also if it is the last one") {
  for (const int failing : {1, 2}) {
    CAPTURE(failing);
    const testing::Folder folder;
    Processes job(2, [&](Here& own) {
      static int saves = 0;
      static int fails_at = 0;
      fails_at = failing;
      checkpoint_fault() = [](std::string_view operation) {
        saves += operation == "mkdir entry";
        return saves == fails_at && operation.starts_with("fsync weights") ? EIO : 0;
      };
      train_and_save(own, {.directory = folder / "run", .required = true});
    });
    REQUIRE(job.all_end());
    CAPTURE(job.report(0).what.text, job.report(1).what.text);
    CHECK(job.report(0).outcome == Outcome::error);
    REQUIRE(job.report(1).outcome == Outcome::peer_lost);
    CHECK(job.report(1).lost_rank == 0);
    CHECK(std::string(job.report(1).how).find("cannot be synced to disk") != std::string::npos);
  }
}

TEST_CASE("a signal while the last checkpoint is written reaches all processes") {
  const testing::Folder folder;
  Processes job(2, [&](Here& own) {
    static int saves = 0;
    const ls::SignalStop stop;
    if (own.rank == 0)
      checkpoint_fault() = [](std::string_view operation) {
        if (operation == "rename entry" && ++saves == 2) {
          ::kill(::getpid(), SIGTERM);
          std::this_thread::sleep_for(300ms);
        }
        return 0;
      };
    train_and_save(own, {.directory = folder / "run"}, {}, stop.token());
    own.give({static_cast<double>(stop.signal())});
  });
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) {
    CAPTURE(r, job.report(r).what.text);
    CHECK(job.numbers(r) == std::vector<double>{SIGTERM});
  }
}
