#include "lockstep/cluster/elastic/machine_folder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "lockstep/cluster/elastic/vote_file.hpp"
#include "lockstep/core/error.hpp"
#include "unit/cluster/elastic/directory.hpp"

using namespace lockstep::detail;
namespace fs = std::filesystem;

TEST_CASE("processes of a machine have one identity, which ends with the last of them") {
  const Directory directory;
  auto first = std::make_unique<MachineFolder>(directory.path);
  auto second = std::make_unique<MachineFolder>(directory.path);
  const MachineId id = first->id();
  CHECK(second->id() == id);
  first.reset();
  CHECK(MachineFolder(directory.path).id() == id);
  CHECK(second->is_intact());
  second.reset();
  CHECK(fs::is_empty(directory.path));
  CHECK(MachineFolder(directory.path).id() != id);
}

TEST_CASE("the folder of a run whose processes were killed is removed by the next process") {
  const Directory directory;
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    const MachineFolder machine(directory.path);
    VoteFile votes(machine);
    votes.enter(7);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(pid, nullptr, 0);
  const std::string killed = directory.user() + "/0000000000000007";
  const std::string living = directory.user() + "/0000000000000008";
  CHECK(fs::exists(killed + "/votes"));
  fs::create_directory(directory.user() + "/0000000000000009");  // killed before the lock
  const MachineFolder machine(directory.path);
  CHECK_FALSE(fs::exists(killed));
  CHECK_FALSE(fs::exists(directory.user() + "/0000000000000009"));
  VoteFile votes(machine);
  votes.enter(8);
  const MachineFolder other(directory.path);
  CHECK(fs::exists(living + "/votes"));
  votes.leave();
  CHECK_FALSE(fs::exists(living));
}

TEST_CASE("a process that is stopped or killed while it removes a folder stops nobody") {
  const Directory directory;
  const std::string folder = directory.path + "/run";
  fs::create_directory(folder);
  lockstep::FileDescriptor lock = open_locked(folder + "/lock", O_CREAT);
  REQUIRE(lock_alone(lock));
  // A subfolder cannot be unlinked: the removal ends there, as if the process were killed.
  fs::create_directory(folder + "/rest");
  remove_folder(folder);
  CHECK_FALSE(fs::exists(folder));
  CHECK_FALSE(open_locked(folder + "/lock", O_CREAT).is_open());

  fs::create_directory(folder);  // and if it has only begun
  lock = open_locked(folder + "/lock", O_CREAT);
  REQUIRE(lock_alone(lock));
  std::string error;
  try {
    open_locked(folder + "/lock", 0);
  } catch (const lockstep::FileError& e) {
    error = e.what();
  }
  CHECK(error.find("may be stopped") != std::string::npos);

  const MachineFolder machine(directory.path);
  const std::string rest = directory.user() + "/0000000000000007.0123456789abcdef";
  fs::create_directory(rest);
  std::ofstream(rest + "/votes") << "x";
  {
    const MachineFolder next(directory.path);
  }
  CHECK_FALSE(fs::exists(rest));
}

TEST_CASE("a folder that others can access, or that is missing, is refused") {
  const Directory directory;
  const auto refusal = [&](const std::string& path) {
    try {
      const MachineFolder machine(path);
    } catch (const lockstep::UsageError& error) {  // no restart helps
      return std::string(error.what());
    } catch (const lockstep::FileError& error) {
      return "damage: " + std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(directory.path + "/none").find("elastic: " + directory.path + "/none/lockstep-") ==
        0);
  CHECK(refusal(directory.path + "/none").find("cannot be created") != std::string::npos);
  fs::create_directory(directory.user());
  ::chmod(directory.user().c_str(), 0755);
  CHECK(refusal(directory.path).find("only this user can access; set LOCKSTEP_ELASTIC_DIRECTORY") !=
        std::string::npos);
  fs::remove(directory.user());
  fs::create_symlink("/tmp", directory.user());
  CHECK(refusal(directory.path).find("only this user can access") != std::string::npos);
  fs::remove(directory.user());
  fs::create_directory(directory.user());
  ::chmod(directory.user().c_str(), 0700);
  std::ofstream(directory.user() + "/machine") << "short";
  CHECK(refusal(directory.path).find("is damaged") != std::string::npos);
  CHECK(refusal(directory.path).find("damage: ") == 0);
}
