#include "lockstep/collectives/shared_memory/shared_memory.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
    return true;
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

TEST_CASE("what is not memory is refused before it is opened for reading or writing") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const std::string pipe = std::to_string(::getpid()) + "/" + std::to_string(ends[0]);
  CHECK(refusal(pipe, plain).find("is not sealed memory") != std::string::npos);
  const auto memory = SharedMemory::create(plain);
  // A descriptor without the right to write leads to the same file, of which another one is opened.
  const std::string self = "/proc/self/fd/" + std::to_string(file_of(*memory));
  const int path = ::open(self.c_str(), O_PATH | O_CLOEXEC);
  CHECK(refusal(std::to_string(::getpid()) + "/" + std::to_string(path), plain).empty());
  for (const int file : {ends[0], ends[1], path}) ::close(file);
}

TEST_CASE("the heap is memory of its own, which needs none until it is reserved") {
  SharedMemory::Options options = plain;
  options.heap = std::size_t{8} << 30;
  const auto memory = SharedMemory::create(options);
  const std::string place = memory->place();
  REQUIRE(memory->heap_bytes() == options.heap);
  const auto blocks = [&] {
    struct stat status{};
    REQUIRE(::fstat(file_of(*memory), &status) == 0);
    return status.st_blocks * 512;
  };
  CHECK(blocks() <= 3 * 65536);
  const auto before = blocks();
  std::byte* const far = memory->heap() + options.heap - 1'000'000;
  if (!memory->reserve(far, 1'000'000)) SKIP("Linux 5.14 is needed");
  CHECK(blocks() - before >= 1'000'000);
  CHECK(blocks() - before <= 1'000'000 + 2 * 65536);
  std::memset(far, 3, 1'000'000);
  CHECK(holds_in_fork([&] {
    const auto same = SharedMemory::open(place, options);
    std::byte* const p = same->heap() + options.heap - 1'000'000;
    const bool is_same =
        std::all_of(p, p + 1'000'000, [](std::byte b) { return b == std::byte{3}; });
    p[7] = std::byte{9};
    return is_same;
  }));
  CHECK(far[7] == std::byte{9});
  CHECK(std::all_of(memory->data(), memory->data() + plain.bytes,
                    [](std::byte b) { return b == std::byte{0}; }));
  CHECK(refusal(place, plain).find("has another size") != std::string::npos);
}

TEST_CASE("where files or the address space are limited, there is no heap, and the rest works") {
  SharedMemory::Options options = plain;
  options.heap = std::size_t{8} << 30;
  CHECK(holds_in_fork([&] {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto memory = SharedMemory::create(options);
    const auto same = SharedMemory::open(memory->place(), options);
    memory->data()[5] = std::byte{5};
    return memory->heap() == nullptr && same->heap() == nullptr && same->heap_bytes() == 0 &&
           same->data()[5] == std::byte{5};
  }));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto memory = SharedMemory::create(options);
  const std::string place = memory->place();
  CHECK(holds_in_fork([&] {
    const rlimit limit{std::size_t{4} << 30, std::size_t{4} << 30};
    ::setrlimit(RLIMIT_AS, &limit);
    const auto same = SharedMemory::open(place, options);
    same->data()[6] = std::byte{6};
    return same->heap() == nullptr && same->heap_bytes() == 0;
  }));
  CHECK(memory->data()[6] == std::byte{6});
#endif
}

TEST_CASE("a forked child does not inherit the mapping, and does not unmap what lies there") {
  auto memory = SharedMemory::create(plain);
  void* const begin = memory->data() - 4096;
  CHECK(holds_in_fork([&] {
    unsigned char resident[3];
    if (::mincore(begin, 4096 * 3, resident) == 0) return false;  // ENOMEM: nothing is mapped
    auto* const own =
        ::mmap(begin, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memory.reset();
    *static_cast<char*>(own) = 1;
    return own == begin;
  }));
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
