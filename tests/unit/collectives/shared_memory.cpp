#include "lockstep/collectives/shared_memory.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"

namespace {

using lockstep::SharedMemory;

const SharedMemory::Options plain{.bytes = 10'000, .run = "a run", .name = "x", .key = "a key"};

std::string refusal(const std::string& place, const SharedMemory::Options& options) {
  try {
    SharedMemory::open(place, options);
  } catch (const lockstep::Error& e) {
    return e.what();
  }
  return "";
}

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

/// The descriptor in "PID/FD".
int file_of(const SharedMemory& memory) {
  const std::string place = memory.place();
  return std::stoi(place.substr(place.find('/') + 1));
}

/// Runs f() in a fork. \return whether it returned true.
template <class F>
bool holds_in_fork(const F& f) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    bool holds = false;
    try {
      holds = f();
    } catch (const std::exception&) {
    }
    ::_exit(holds ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("processes that open a shared memory see the same bytes, which are 0 at first") {
  const auto memory = SharedMemory::create(plain);
  const std::string place = memory->place();
  CHECK(std::all_of(memory->data(), memory->data() + plain.bytes,
                    [](std::byte b) { return b == std::byte{0}; }));
  CHECK(holds_in_fork([&] {
    const auto same = SharedMemory::open(place, plain);
    std::memset(same->data(), 7, plain.bytes);
    return same->data() != memory->data();
  }));
  CHECK(std::all_of(memory->data(), memory->data() + plain.bytes,
                    [](std::byte b) { return b == std::byte{7}; }));
}

TEST_CASE("memory of another run, name, key or size is refused") {
  const auto memory = SharedMemory::create(plain);
  const std::string place = memory->place(), path = "/proc/" + std::to_string(::getpid()) + "/fd/" +
                                                    std::to_string(file_of(*memory));
  CHECK(refusal(place, plain).empty());
  const std::string other_run = "shared memory: " + path + " was not made for this run of the job";
  for (auto change : {+[](SharedMemory::Options& o) { o.run = "another run"; },
                      +[](SharedMemory::Options& o) { o.name = "y"; },
                      +[](SharedMemory::Options& o) { o.key = "another key"; },
                      +[](SharedMemory::Options& o) { o.key.clear(); },
                      +[](SharedMemory::Options& o) {
                        o.bytes -= 1;
                        o.bytes += 1;
                        o.run = "";
                      }}) {
    SharedMemory::Options options = plain;
    change(options);
    CHECK(refusal(place, options) == other_run);
  }
  SharedMemory::Options larger = plain;
  larger.bytes += 4096;
  CHECK(refusal(place, larger) == "shared memory: " + path + " has another size");
  memory->data()[-4096 + 30] ^= std::byte{1};  // one bit of the proof
  CHECK(refusal(place, plain) == other_run);
}

TEST_CASE("a place that does not lead to sealed memory of this user is refused") {
  for (const char* place :
       {"", "1", "/", "1/", "/1", "self/1", "1/1/1", "-1/2", "1/../../etc", " 1/2"})
    CHECK(refusal(place, plain).find("is not a place; expected 'PID/FD'") != std::string::npos);
  auto memory = SharedMemory::create(plain);
  const std::string place = memory->place();
  memory->close_file();
  CHECK(refusal(place, plain).find("cannot open /proc/") != std::string::npos);

  const int file = ::memfd_create("test", MFD_CLOEXEC);
  REQUIRE(::ftruncate(file, 4096 + static_cast<off_t>(plain.bytes)) == 0);
  const std::string unsealed = std::to_string(::getpid()) + "/" + std::to_string(file);
  CHECK(refusal(unsealed, plain).find("is not sealed memory") != std::string::npos);
  ::close(file);

  memory = SharedMemory::create(plain);
  if (::geteuid() == 0) {
    REQUIRE(::fchown(file_of(*memory), 12345, 0) == 0);
    CHECK(refusal(memory->place(), plain).find("belongs to another user") != std::string::npos);
  }
}

TEST_CASE("a shared memory keeps its size, is private to its user and not passed to programs") {
  const auto memory = SharedMemory::create(plain);
  const int file = file_of(*memory);
  CHECK(::ftruncate(file, 100) != 0);
  CHECK(::ftruncate(file, 1 << 20) != 0);
  CHECK(::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK((::fcntl(file, F_GETFD) & FD_CLOEXEC) != 0);
  struct stat status{};
  REQUIRE(::fstat(file, &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("a shared memory lives as long as it is mapped, whoever created it") {
  int to_parent[2], to_child[2];
  REQUIRE(::pipe(to_parent) == 0);
  REQUIRE(::pipe(to_child) == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const auto memory = SharedMemory::create(plain);
    std::memset(memory->data(), 5, plain.bytes);
    std::array<char, 64> place{};
    memory->place().copy(place.data(), place.size() - 1);
    char go = 0;
    if (::write(to_parent[1], place.data(), place.size()) > 0 && ::read(to_child[0], &go, 1) > 0) {
    }
    ::_exit(0);
  }
  std::array<char, 64> place{};
  REQUIRE(::read(to_parent[0], place.data(), place.size()) == 64);
  const auto same = SharedMemory::open(place.data(), plain);
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(same->data()[plain.bytes - 1] == std::byte{5});
  CHECK(refusal(place.data(), plain).find("cannot open") != std::string::npos);
  for (const int file : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) ::close(file);
}

TEST_CASE("a thousand openings leave no descriptor and no mapping") {
  const auto round = [] {
    const auto memory = SharedMemory::create(plain);
    const auto same = SharedMemory::open(memory->place(), plain);
    CHECK_FALSE(refusal(memory->place(), {.bytes = plain.bytes}).empty());
  };
  round();
  const std::size_t files = entries("/proc/self/fd"), maps = mappings();
  for (int i = 0; i < 1000; ++i) round();
  CHECK(entries("/proc/self/fd") == files);
  CHECK(mappings() <= maps + 4);  // the allocator may have mapped a little
}
