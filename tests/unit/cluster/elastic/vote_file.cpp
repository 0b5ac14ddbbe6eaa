#include "lockstep/cluster/elastic/vote_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/core/error.hpp"
#include "support/child.hpp"
#include "support/mount_namespace.hpp"
#include "unit/cluster/elastic/directory.hpp"

using namespace lockstep::detail;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t run = 0x1234;

std::string votes_of(const Directory& directory) {
  return directory.user() + "/0000000000001234/votes";
}

/// A process that votes and is killed.
void die_after(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::signal(SIGABRT, SIG_DFL);
    body();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  REQUIRE(WIFSIGNALED(status));
}

std::optional<Vote> read(VoteFile& votes, std::uint64_t number) {
  return votes.change({run, number}, [](Vote&) {});
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const lockstep::FileError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a vote survives the process that cast it, at any moment") {
  const Directory directory;
  const MachineFolder machine(directory.path);
  VoteFile votes(machine);
  votes.enter(run);
  die_after([&] {
    const MachineFolder own(directory.path);
    VoteFile theirs(own);
    theirs.enter(run);
    theirs.change({run, 3}, [](Vote& vote) { vote.prepare({4, 1}); });
  });
  CHECK(read(votes, 3) == Vote{{4, 1}, {}, ""});
  die_after([&] {  // between the promise and the vote
    const MachineFolder own(directory.path);
    VoteFile theirs(own);
    theirs.enter(run);
    theirs.change({run, 3}, [](Vote& vote) { vote.prepare({5, 0}); });
    theirs.change({run, 3}, [](Vote& vote) {
      vote.accept({5, 0}, "lost");
      ::kill(::getpid(), SIGKILL);
    });
  });
  CHECK(read(votes, 3) == Vote{{5, 0}, {}, ""});
  die_after([&] {
    const MachineFolder own(directory.path);
    VoteFile theirs(own);
    theirs.enter(run);
    theirs.change({run, 3}, [](Vote& vote) { vote.accept({6, 2}, std::string(40'000, 'v')); });
  });
  CHECK(read(votes, 3) == Vote{{6, 2}, {6, 2}, std::string(40'000, 'v')});

  // A later generation begins without votes, and closes the earlier one.
  CHECK(read(votes, 4) == Vote{});
  CHECK_FALSE(read(votes, 3).has_value());
  CHECK_FALSE(votes.change({run + 1, 4}, [](Vote&) {}).has_value());
}

TEST_CASE("a damaged, missing or replaced vote is an error and not a vote") {
  const Directory directory;
  const MachineFolder machine(directory.path);
  VoteFile votes(machine);
  votes.enter(run);
  votes.change({run, 1}, [](Vote& vote) { vote.accept({1, 1}, "value"); });
  const std::string path = votes_of(directory);
  std::string text = read_small_file(path);
  const auto write = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  };
  constexpr std::size_t record = 0, slot = 64 * 1024;  // the first vote after the creation
  for (const std::size_t at : {record, record + 20, record + 31, slot, slot + 20}) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write(damaged);
    CHECK(error_of([&] { read(votes, 1); }).find("is damaged") != std::string::npos);
  }
  write(text.substr(0, text.size() / 2));
  CHECK(error_of([&] { read(votes, 1); }).find("is damaged") != std::string::npos);
  write(text);
  CHECK(read(votes, 1)->value == "value");
  fs::remove(path);
  CHECK(error_of([&] { read(votes, 1); }).find("is missing") != std::string::npos);
  write(text);
  fs::remove_all(directory.user() + "/0000000000001234");
  CHECK(error_of([&] { read(votes, 1); }).find("was removed") != std::string::npos);
}

TEST_CASE("a vote needs no space") {
  const Directory directory;
  const MachineFolder machine(directory.path);
  VoteFile votes(machine);
  votes.enter(run);
  struct stat before{}, after{};
  REQUIRE(::stat(votes_of(directory).c_str(), &before) == 0);
  for (std::uint32_t round = 1; round < 5; ++round) {
    const std::string value(40'000, static_cast<char>('a' + round));
    votes.change({run, 1}, [&](Vote& vote) { vote.accept({round, 1}, value); });
    CHECK(read(votes, 1)->value == value);
  }
  REQUIRE(::stat(votes_of(directory).c_str(), &after) == 0);
  CHECK(after.st_ino == before.st_ino);
  CHECK(after.st_size == before.st_size);
  CHECK(after.st_blocks == before.st_blocks);
}

TEST_CASE("a machine whose file system is full can vote") {
  const Directory directory;
  constexpr int no_namespace = 77;
  const int status = testing::in_child([&] {
    if (!testing::enter_mount_namespace() ||
        ::mount("none", directory.path.c_str(), "tmpfs", 0, "size=1m") != 0)
      return no_namespace;
    const MachineFolder machine(directory.path);
    VoteFile votes(machine);
    votes.enter(run);
    const lockstep::FileDescriptor filler(
        ::open((directory.path + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string page(4096, 'x');
    while (::write(filler.number(), page.data(), page.size()) > 0) {
    }
    const std::string value(40'000, 'v');
    const bool is_full = errno == ENOSPC;
    votes.change({run, 3}, [&](Vote& vote) { vote.accept({6, 2}, value); });
    return is_full && read(votes, 3)->value == value ? 0 : 2;
  });
  if (status == no_namespace) SKIP("this user cannot make a mount namespace");
  CHECK(status == 0);
}

TEST_CASE("votes that are missing while a member lives are not created again") {
  const Directory directory;
  const MachineFolder machine(directory.path);
  VoteFile votes(machine);
  votes.enter(run);
  votes.change({run, 1}, [](Vote& vote) { vote.prepare({4, 1}); });
  fs::remove(votes_of(directory));
  VoteFile other(machine);
  const std::string error = error_of([&] { other.enter(run); });
  CHECK(error.find("was removed while its job runs") != std::string::npos);
  CHECK(error.find("RemoveIPC=yes") != std::string::npos);
  CHECK_FALSE(fs::exists(votes_of(directory)));
}

TEST_CASE("a process that is stopped while it votes is named as the reason") {
  const Directory directory;
  const MachineFolder machine(directory.path);
  VoteFile votes(machine);
  votes.enter(run);
  CHECK(votes.blocked_by().empty());
  const std::string path = directory.user() + "/0000000000001234/guard";
  auto other = open_locked(path, O_CREAT);
  REQUIRE(lock_alone(other));
  CHECK_FALSE(read(votes, 1).has_value());
  CHECK(votes.blocked_by() == path);
  other = {};
  CHECK(read(votes, 1).has_value());
  CHECK(votes.blocked_by().empty());
}

TEST_CASE("processes of a machine change a vote one after the other") {
  const Directory directory;
  const MachineFolder machine(directory.path);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      VoteFile votes(machine);
      votes.enter(run);
      for (std::uint32_t round = 1; round <= 25; ++round)
        while (!votes.change({run, 0}, [&](Vote& vote) {
          ++vote.promised.round;
          vote.promised.rank = rank;
        })) {
        }
      votes.change({run, 0}, [](Vote&) {});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  VoteFile votes(machine);
  votes.enter(run);
  for (auto& thread : threads) thread.join();
  CHECK(read(votes, 0)->promised.round == 100);
}
