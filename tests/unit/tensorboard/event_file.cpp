#include "lockstep/tensorboard/event_file.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/tensorboard/event.hpp"
#include "support/event_reader.hpp"
#include "support/log_lines.hpp"
#include "support/temporary_folder.hpp"

namespace {

using Catch::Matchers::ContainsSubstring;
using lockstep::detail::EventFile;

constexpr double hour = 3600;

/// Bounds the size of files that this process writes; exceeding it is the error EFBIG.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

std::string event(const std::string& text) {
  std::string summary;
  lockstep::detail::append_text(summary, "text", text);
  return lockstep::detail::summary_event(0, 0, summary);
}

/// The texts in a folder's files, after the version.
std::vector<std::string> texts_in(const std::string& folder) {
  std::vector<std::string> result;
  for (const auto& e : testing::events_in(folder))
    for (const auto& v : e.values) result.push_back(v.strings.at(0));
  return result;
}

}  // namespace

TEST_CASE("an event file has TensorFlow's name, and its first event is the version") {
  const TemporaryFolder place;
  const EventFile file(place / "a/b", hour, 10);
  const std::string name = std::filesystem::path(file.path()).filename().string();
  const std::string process = std::to_string(::getpid());
  CHECK(std::regex_match(
      name, std::regex("events\\.out\\.tfevents\\.\\d{10}\\.[^/]+\\." + process + "\\.\\d+")));
  const auto events = testing::events_in(place / "a/b");
  REQUIRE(events.size() == 1);
  CHECK(events[0].version == "brain.Event:2");
}

TEST_CASE("two event files of one folder have different names") {
  const TemporaryFolder place;
  const EventFile first(place / "run", hour, 10), second(place / "run", hour, 10);
  CHECK(first.path() != second.path());
  CHECK(testing::events_in(place / "run").size() == 2);
}

TEST_CASE("files of one folder sort in the order in which they were made") {
  const TemporaryFolder place;
  std::vector<std::string> paths;
  for (int i = 0; i < 12; ++i)  // their numbers go from one digit to two, or from two to three
    for (int k = 0; k < 10; ++k) paths.push_back(EventFile(place / "run", hour, 10).path());
  CHECK(std::is_sorted(paths.begin(), paths.end()));
  CHECK(std::adjacent_find(paths.begin(), paths.end()) == paths.end());
}

TEST_CASE("a file sorts after those of a host whose clock is ahead") {
  const TemporaryFolder place;
  std::filesystem::create_directory(place / "run");
  const std::string ahead = place / "run/events.out.tfevents.5000000000.zebra.99.7";
  std::ofstream{ahead};
  for (const std::string other : {"events.out.tfevents.x", "events.out.tfevents.9999999999.h.1.1",
                                  "events.out.tfevents.6000.h.1.1", "notes.txt"})
    std::ofstream{place / "run/" + other};
  const EventFile file(place / "run", hour, 10);
  CHECK(file.path() > ahead);
  CHECK_THAT(file.path(), ContainsSubstring("/events.out.tfevents.5000000001."));
}

TEST_CASE("events are written when the queue is full, when they are old, and at the end") {
  const TemporaryFolder place;
  {
    EventFile file(place / "run", hour, 2);
    file.append(event("1"));
    CHECK(texts_in(place / "run").empty());
    file.append(event("2"));
    CHECK(texts_in(place / "run").size() == 2);
    file.append(event("3"));
    file.flush();
    CHECK(texts_in(place / "run").size() == 3);
    file.append(event("4"));
  }
  CHECK(texts_in(place / "run") == std::vector<std::string>{"1", "2", "3", "4"});
  EventFile at_once(place / "at_once", 0, 100);
  at_once.append(event("5"));
  CHECK(texts_in(place / "at_once") == std::vector<std::string>{"5"});
}

TEST_CASE("a killed process keeps its flushed events") {
  const TemporaryFolder place;
  const pid_t child = ::fork();
  if (child == 0) {
    EventFile file(place / "run", hour, 100);
    file.append(event("flushed"));
    file.flush();
    file.append(event("pending"));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(texts_in(place / "run") == std::vector<std::string>{"flushed"});
}

TEST_CASE("a full disk is logged once, leaves whole records, and the file goes on when it can") {
  const TemporaryFolder place;
  testing::LogLines log;
  EventFile file(place / "run", hour, 1);
  file.append(event("before"));
  const auto size = std::filesystem::file_size(file.path());
  {
    const FileLimit limit(size + 100);
    file.append(event(std::string(1000, 'x')));
    CHECK(std::filesystem::file_size(file.path()) == size);
    file.append(event(std::string(1000, 'y')));
    file.append(event("small enough"));
  }
  file.append(event("after"));
  REQUIRE(log.lines.size() == 1);
  CHECK_THAT(log.lines[0], ContainsSubstring(file.path()) && ContainsSubstring("File too large") &&
                               ContainsSubstring("training goes on"));
  CHECK(texts_in(place / "run") == std::vector<std::string>{"before", "small enough", "after"});
}

TEST_CASE("a file that was created on a full disk begins with the version all the same") {
  const TemporaryFolder place;
  testing::LogLines log;
  std::unique_ptr<EventFile> file;
  {
    const FileLimit limit(10);
    file = std::make_unique<EventFile>(place / "run", hour, 1);
    file->append(event("lost"));
    CHECK(std::filesystem::file_size(file->path()) == 0);
  }
  file->append(event("after"));
  CHECK(log.lines.size() == 1);
  const auto events = testing::events_in(place / "run");
  REQUIRE(events.size() == 2);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(texts_in(place / "run") == std::vector<std::string>{"after"});
}

TEST_CASE("a folder that cannot be created is an error with its name") {
  const TemporaryFolder place;
  std::ofstream(place / "file") << "not a folder";
  CHECK_THROWS_MATCHES(EventFile(place / "file/train", hour, 1), lockstep::FileError,
                       Catch::Matchers::MessageMatches(ContainsSubstring("file/train") &&
                                                       ContainsSubstring("cannot be created")));
  CHECK_THROWS_AS(EventFile(place / "file", hour, 1), lockstep::FileError);
}
