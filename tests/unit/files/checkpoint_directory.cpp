// Checkpoints on disk: a process is killed, and an operation fails, at each step of a save; files
// are cut and changed at each byte and bit.
#include "lockstep/files/checkpoint_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/core/process/threads.hpp"
#include "support/child.hpp"
#include "support/folder.hpp"

namespace ls = lockstep;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using ls::detail::CheckpointDirectory;
using ls::detail::CheckpointFile;

namespace {

/// An entry whose content depends on the step.
struct Entry {
  std::string weights, optimizer;
  std::vector<CheckpointFile> files;
  explicit Entry(std::uint64_t step, std::size_t size = 40)
      : weights(size, static_cast<char>('a' + step % 26)),
        optimizer(2 * size, static_cast<char>('A' + step % 26)) {
    const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
    files = {
        {"weights.safetensors", {bytes(weights).first(size / 2), bytes(weights).subspan(size / 2)}},
        {"optimizer.safetensors", {bytes(optimizer)}},
        {"callbacks.safetensors", {}}};
  }
};

void save(CheckpointDirectory& to, std::uint64_t step, std::size_t size = 40) {
  to.write(step, Entry(step, size).files, "{\n  \"steps\": " + std::to_string(step));
}

/// Whether the entry can be read and has the content of its step.
bool is_whole(const CheckpointDirectory& from, std::uint64_t step) {
  const auto entry = from.read(step);
  const Entry expected(step);
  const auto text = [&](const char* name) {
    const auto& bytes = entry.files.at(name);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  return text("weights.safetensors") == expected.weights &&
         text("optimizer.safetensors") == expected.optimizer &&
         text("callbacks.safetensors").empty();
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// Names in a directory, without the lock.
std::set<std::string> names(const std::string& path) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(path)) found.insert(entry.path().filename());
  found.erase("lock");
  return found;
}

// The fault of the operation number `at`, counted from 0: SIGKILL, or an errno.
int at = -1, done = 0, code = 0;
std::vector<std::string> operations;
int fault(std::string_view operation) {
  operations.emplace_back(operation);
  if (done++ != at) return 0;
  if (code == 0) ::kill(::getpid(), SIGKILL);
  return code;
}
struct Faults {
  explicit Faults(int number, int error = 0) {
    at = number;
    done = 0;
    code = error;
    operations.clear();
    ls::detail::checkpoint_fault() = fault;
  }
  ~Faults() { ls::detail::checkpoint_fault() = nullptr; }
};

/// Number of operations of a save into a new directory.
int operations_of_a_save() {
  const testing::Folder folder;
  fs::create_directory(folder / "run");
  const Faults count(-1);
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  save(to, 5);
  return done;
}

/// Kills a process at each operation of a save in turn, `least` times or more. Complete checkpoints
/// must load, and the next process must remove what the killed ones left.
void kill_at_each_operation(int least) {
  const int count = operations_of_a_save();
  REQUIRE(count >= 15);
  const testing::Folder folder;
  CheckpointDirectory directory(folder / "run");
  std::uint64_t step = 1;
  int trials = 0;
  while (trials < least)
    for (int number = 0; number <= count; ++number) {
      // The child finds the checkpoint of `step`, and is killed while it writes the next one.
      if (step == 1 && directory.steps().empty())
        REQUIRE(testing::in_child([&] {
                  CheckpointDirectory to(folder / "run");
                  to.open_for_writing();
                  save(to, 1);
                  return 0;
                }) == 0);
      const int status = testing::in_child([&] {
        const Faults kill(number);
        CheckpointDirectory to(folder / "run");
        to.open_for_writing();
        save(to, step + 1);
        return 0;
      });
      INFO("operation " << number);
      REQUIRE((status == 100 + SIGKILL || status == 0));
      const auto steps = directory.steps();
      REQUIRE_FALSE(steps.empty());
      CHECK(steps.back() >= step);
      for (const std::uint64_t found : steps) CHECK(is_whole(directory, found));
      step = steps.back();
      ++trials;
      if (steps.size() < 20) continue;
      CheckpointDirectory all(folder / "run");
      all.open_for_writing();
      for (const std::uint64_t found : steps)
        if (found != step) all.remove(found);
    }
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  for (const std::string& name : names(to.path())) CHECK(name.find("tmp") == std::string::npos);
}

}  // namespace

TEST_CASE("an entry is read back as it was written, and the newest is named") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  CHECK(to.steps().empty());
  to.open_for_writing();
  save(to, 7);
  save(to, 12);
  CHECK(to.steps() == std::vector<std::uint64_t>{7, 12});
  CHECK(is_whole(to, 7));
  CHECK(is_whole(to, 12));
  CHECK(names(to.path()) == std::set<std::string>{"latest", "step-000000007", "step-000000012"});
  CHECK(content(to.path() + "/latest") == "step-000000012\n");
  CHECK_THAT(to.read(12).manifest, ContainsSubstring("\"steps\": 12"));
  to.remove(7);
  CHECK(to.steps() == std::vector<std::uint64_t>{12});
}

TEST_CASE("programs that are started while the directory is locked do not inherit the lock") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  int locks = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error) != to.path() + "/lock") continue;
    ++locks;
    CHECK((::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(locks == 1);
}

TEST_CASE("a process killed at any operation of a save leaves a complete checkpoint") {
  kill_at_each_operation(60);
}

TEST_CASE("a process killed at any operation of 1000 saves leaves a complete checkpoint",
          "[.slow]") {
  kill_at_each_operation(1000);
}

TEST_CASE("a save replaces a damaged entry of the same step, also if it is killed") {
  const testing::Folder folder;
  CheckpointDirectory directory(folder / "run");
  for (int number = 0; number < operations_of_a_save() + 2; ++number) {
    const int status = testing::in_child([&] {
      CheckpointDirectory to(folder / "run");
      to.open_for_writing();
      save(to, 3);
      save(to, 4);
      fs::resize_file(to.path_of(4) + "/weights.safetensors", 1);
      const Faults kill(number);
      save(to, 4);
      return 0;
    });
    REQUIRE((status == 100 + SIGKILL || status == 0));
    INFO("operation " << number);
    CHECK(is_whole(directory, 3));
    if (status == 0) CHECK(is_whole(directory, 4));
  }
}

TEST_CASE("a failed operation is reported with the file, and leaves the older entries") {
  const int count = operations_of_a_save();
  const testing::Folder folder;
  for (const int error : {EIO, ENOSPC, EROFS, ESTALE}) {
    int reported = 0;
    for (int number = 0; number < count; ++number) {
      const std::string path = folder / ("run" + std::to_string(error) + std::to_string(number));
      {
        CheckpointDirectory to(path);
        to.open_for_writing();
        save(to, 1);
      }
      CheckpointDirectory to(path);
      {
        const Faults fail(number, error);
        try {
          to.open_for_writing();
          save(to, 2);
        } catch (const ls::FileError& e) {
          ++reported;
          CHECK(e.path().starts_with(path));
          CHECK_THAT(e.what(), ContainsSubstring(std::generic_category().message(error)));
          // The kernel has dropped what it could not write: a second fsync would succeed.
          const std::string& failed = operations[static_cast<std::size_t>(number)];
          if (failed.starts_with("fsync"))
            CHECK(std::count(operations.begin(), operations.end(), failed) == 1);
        }
      }
      INFO("operation " << number);
      CHECK(is_whole(to, 1));
      for (const std::uint64_t step : to.steps()) CHECK(is_whole(to, step));
      if (number > 2) {  // the directory was opened
        save(to, 3);
        CHECK(is_whole(to, 3));
        for (const std::string& name : names(path)) CHECK(name.find("tmp") == std::string::npos);
      }
    }
    // All except those of the hint `latest`.
    CHECK(reported == count - 2);
  }
}

TEST_CASE("a full disk is reported with the bytes that are needed and free") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  save(to, 1);
  const int count = operations_of_a_save();
  std::set<std::string> messages;
  for (int number = 0; number < count; ++number) {
    const Faults fail(number, ENOSPC);
    try {
      save(to, 2, 1000);
    } catch (const ls::FileError& e) {
      messages.insert(e.what());
    }
  }
  bool names_bytes = false;
  for (const std::string& message : messages)
    names_bytes |=
        message.find("the checkpoint needs 3000 bytes and the disk has ") != message.npos;
  CHECK(names_bytes);
  CHECK(is_whole(to, 1));
}

TEST_CASE("the limit of file sizes is an error, not the end of the process") {
  const testing::Folder folder;
  CHECK(testing::in_child([&] {
          CheckpointDirectory to(folder / "run");
          to.open_for_writing();
          save(to, 1);
          const rlimit limit{100'000, 100'000};
          ::setrlimit(RLIMIT_FSIZE, &limit);
          std::signal(SIGXFSZ, SIG_DFL);
          std::string message;
          ls::detail::start_thread("test",
                                   [&] {  // as fit does
                                     try {
                                       save(to, 2, 1'000'000);
                                     } catch (const ls::FileError& e) {
                                       message = e.what();
                                     }
                                   })
              .join();
          return is_whole(to, 1) && message.find("ulimit -f") != message.npos ? 0 : 1;
        }) == 0);
}

TEST_CASE("a file cut at any byte is refused by name, and so is a missing one") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  save(to, 1);
  save(to, 2);
  const std::string entry = to.path_of(2);
  std::size_t cuts = 0;
  for (const std::string& name : names(entry)) {
    const std::string path = entry + "/" + name, whole = content(path);
    for (std::size_t size = 0; size < whole.size(); ++size, ++cuts) {
      put(path, whole.substr(0, size));
      CHECK_THROWS_AS(to.read(2), ls::CheckpointError);
    }
    put(path, whole + "x");
    CHECK_THROWS_AS(to.read(2), ls::CheckpointError);
    fs::remove(path);
    CHECK_THROWS_WITH(to.read(2), ContainsSubstring(path) && ContainsSubstring("is missing"));
    put(path, whole);
    CHECK(is_whole(to, 2));
  }
  CHECK(cuts > 300);
  CHECK(is_whole(to, 1));
}

TEST_CASE("one flipped bit anywhere in an entry is refused by name") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  save(to, 2);
  const std::string entry = to.path_of(2);
  std::size_t refused = 0, flipped = 0;
  for (const std::string& name : names(entry)) {
    const std::string path = entry + "/" + name, whole = content(path);
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit, ++flipped) {
      std::string changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      put(path, changed);
      try {
        static_cast<void>(to.read(2));
      } catch (const ls::CheckpointError& e) {
        refused += e.path() == path ? 1U : 0U;
      }
    }
    put(path, whole);
  }
  CHECK(flipped > 3000);
  CHECK(refused == flipped);
}

TEST_CASE("a manifest with a right checksum and wrong content is refused") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  save(to, 1);
  for (const char* description :
       {"{\"files\": 3", "[1", "{\"a\": ", "{\"files\": [{\"name\": 1}]", "nonsense"}) {
    to.write(2, {}, description);
    CHECK_THROWS_AS(to.read(2), ls::CheckpointError);
  }
  for (const char* name : {"../step-000000001/weights.safetensors", ".hidden"}) {
    const std::string text = "{\"files\": [{\"name\": \"" + std::string(name) +
                             "\", \"size\": 40, \"crc32c\": \"00000000\"}]";
    to.write(2, {}, text);
    CHECK_THROWS_WITH(to.read(2), ContainsSubstring("is not allowed"));
  }
}

TEST_CASE("a second process that writes to the directory is refused") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  save(to, 1);
  CheckpointDirectory other(folder / "run");
  CHECK_THROWS_WITH(other.open_for_writing(),
                    ContainsSubstring("another process writes checkpoints here (process " +
                                      std::to_string(::getpid()) + ")"));
  CHECK(is_whole(other, 1));  // it may read
  CHECK_THROWS_AS(save(other, 2), ls::UsageError);
}

TEST_CASE("a link in a directory that comes from elsewhere writes no other file") {
  const testing::Folder folder;
  const std::string precious = folder / "precious";
  const auto open = [&] { CheckpointDirectory(folder / "run").open_for_writing(); };
  open();
  put(precious, "precious line 1\n");
  fs::remove(folder / "run/lock");
  fs::create_symlink("../precious", folder / "run/lock");
  CHECK_THROWS_WITH(open(), ContainsSubstring("run/lock: it is a symbolic link"));
  fs::remove(folder / "run/lock");
  fs::create_symlink("../new", folder / "run/lock");
  CHECK_THROWS_AS(open(), ls::FileError);
  CHECK_FALSE(fs::exists(folder / "new"));
  fs::remove(folder / "run/lock");
  fs::create_hard_link(precious, folder / "run/lock");
  CHECK_THROWS_WITH(open(), ContainsSubstring("run/lock: it is not a lock file"));
  CHECK(content(precious) == "precious line 1\n");
  fs::remove(folder / "run/lock");
  put(folder / "run/lock", "31423");  // of a process that has ended

  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  for (const char* const name : {"latest.tmp", "best.tmp"})  // while the run goes on
    fs::create_symlink("../precious", folder / (std::string("run/") + name));
  save(to, 1);
  to.note("best", 1);
  CHECK(content(precious) == "precious line 1\n");
  for (const char* const name : {"latest", "best"}) {
    CHECK_FALSE(fs::is_symlink(folder / (std::string("run/") + name)));
    CHECK(content(folder / (std::string("run/") + name)) == "step-000000001\n");
  }
}

TEST_CASE("a file system without locks is named with what to do") {
  const testing::Folder folder;
  ls::detail::checkpoint_fault() = [](std::string_view operation) {
    return operation == "lock" ? ENOSYS : 0;
  };
  CheckpointDirectory to(folder / "run");
  CHECK_THROWS_WITH(to.open_for_writing(),
                    ContainsSubstring("Function not implemented") &&
                        ContainsSubstring("-o flock") &&
                        ContainsSubstring("choose a directory on another one"));
  ls::detail::checkpoint_fault() = nullptr;
}

TEST_CASE("other folders and links in the directory are left alone") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  fs::create_directory(folder / "run/step-3");  // not the name of an entry
  save(to, 1);
  fs::create_directory(folder / "archive");
  put(folder / "archive/kept", "text");
  fs::create_directory_symlink(folder / "archive", to.path_of(2));
  CHECK(to.steps() == std::vector<std::uint64_t>{1, 2});
  to.remove_all();
  CHECK(to.steps().empty());
  CHECK(fs::exists(folder / "run/step-3"));
  CHECK(content(folder / "archive/kept") == "text");
  CHECK_FALSE(fs::exists(folder / "run/latest"));
}

TEST_CASE("a manifest that could not be read again is not written") {
  const testing::Folder folder;
  CheckpointDirectory to(folder / "run");
  to.open_for_writing();
  save(to, 1);
  const std::string text = "{\"text\": \"" + std::string(std::size_t{17} << 20, 'x') + "\"";
  CHECK_THROWS_WITH(to.write(2, {}, text), ContainsSubstring("its manifest would have"));
  CHECK(to.steps() == std::vector<std::uint64_t>{1});
}

TEST_CASE("a directory that cannot be used is named before training") {
  const testing::Folder folder;
  const auto open = [&](const std::string& path) {
    CheckpointDirectory(folder / path).open_for_writing();
  };
  CHECK_THROWS_WITH(open("no/such/run"), ContainsSubstring("create the folder that contains it"));
  put(folder / "file", "text");
  CHECK_THROWS_WITH(open("file"), ContainsSubstring("it is not a directory"));
  fs::create_symlink(folder / "nowhere", folder / "link");
  CHECK_THROWS_WITH(open("link"), ContainsSubstring("symbolic link whose target"));
  CHECK_THROWS_WITH(CheckpointDirectory(folder / "file").steps(), ContainsSubstring("file"));
  fs::create_directory(folder / "locked");
  fs::permissions(folder / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  if (::geteuid() != 0)
    CHECK_THROWS_WITH(open("locked"), ContainsSubstring("that you may write to"));
  CHECK_THROWS_AS(CheckpointDirectory("").open_for_writing(), ls::UsageError);
}

TEST_CASE("files that are not in memory as a whole are written and read in parts") {
  const testing::Folder folder;
  CheckpointDirectory to((folder.path() / "run").string());
  to.open_for_writing();
  constexpr std::size_t size = (std::size_t{5} << 20) / 2;
  const std::vector<std::byte> places(size);  // whose content is another
  std::vector<std::byte> part;
  std::size_t most = 0;
  const auto fetch = [&](std::span<const std::byte> place) -> std::span<const std::byte> {
    if (place.data() < places.data() || place.data() >= places.data() + size) return place;
    most = std::max(most, place.size());
    const auto first = static_cast<std::size_t>(place.data() - places.data());
    part.resize(place.size());
    for (std::size_t i = 0; i < part.size(); ++i)
      part[i] = static_cast<std::byte>((first + i) * 7 % 251);
    return part;
  };
  const std::vector<std::byte> head(10, std::byte{9});
  to.write(3, {{"weights.safetensors", {head, places}, fetch}}, "{\n  \"steps\": 3");
  CHECK(most == std::size_t{1} << 20);
  const auto entry = to.read(3);
  const auto& whole = entry.files.at("weights.safetensors");
  REQUIRE(whole.size() == 10 + size);
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (whole[i] != (i < 10 ? std::byte{9} : static_cast<std::byte>((i - 10) * 7 % 251)))
      FAIL("byte " << i);
  for (const std::size_t kept : {std::size_t{4}, std::size_t{1'100'000}, 2 * size}) {
    const auto keep = [&](std::string_view, std::span<const std::byte> begin) {
      CHECK(begin.size() == std::size_t{1} << 20);
      return std::uint64_t{kept};
    };
    const auto part_of_it = to.read(3, {}, keep);
    const auto& bytes = part_of_it.files.at("weights.safetensors");
    REQUIRE(bytes.size() == std::min(kept, whole.size()));
    CHECK(std::equal(bytes.begin(), bytes.end(), whole.begin()));
  }
  const auto path = folder.path() / "run" / "step-000000003" / "weights.safetensors";
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(2'000'000).put('x');
  const auto keep = [](auto&&...) { return std::uint64_t{4}; };
  CHECK_THROWS_WITH(to.read(3, {}, keep), ContainsSubstring("does not match its checksum"));
}
