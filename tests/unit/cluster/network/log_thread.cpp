#include "lockstep/cluster/network/log_thread.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/deadline.hpp"

using lockstep::LogLevel;
using lockstep::detail::LogThread;
using namespace std::chrono_literals;

TEST_CASE("all lines are written, in order, before a log thread ends") {
  const testing::Deadline deadline(20s);
  std::vector<std::string> message;
  {
    LogThread log([&](LogLevel, std::string_view line) { message.emplace_back(line); });
    for (int i = 0; i < 100; ++i) log.log(LogLevel::info, std::to_string(i));
  }
  REQUIRE(message.size() == 100);
  for (std::size_t i = 0; i < message.size(); ++i) CHECK(message[i] == std::to_string(i));
}

TEST_CASE("a blocked sink blocks no caller, and dropped lines are counted") {
  const testing::Deadline deadline(20s);
  struct Shared {
    std::promise<void> enters, goes_on;
    std::size_t lines = 0;
    std::string last;
  } shared;
  {
    LogThread log(
        [&, go_on = shared.goes_on.get_future().share()](LogLevel, std::string_view line) {
          if (shared.lines++ == 0) {
            shared.enters.set_value();
            go_on.wait();
          }
          shared.last = line;
        });
    log.log(LogLevel::info, "first");
    shared.enters.get_future().wait();
    for (std::size_t i = 0; i < LogThread::capacity + 7; ++i) log.log(LogLevel::info, "line");
    shared.goes_on.set_value();
  }
  CHECK(shared.lines == LogThread::capacity + 2);
  CHECK(shared.last == "7 lines were dropped; the log is read too slowly");
}

TEST_CASE("a log thread whose sink never returns is detached after a second") {
  const testing::Deadline deadline(20s);
  struct Shared {
    std::promise<void> goes_on, gone;
    std::atomic<int> lines{0};
  };
  static Shared shared;  // the thread outlives the log
  const auto begin = std::chrono::steady_clock::now();
  {
    struct Last {  // a capture of the sink
      ~Last() { shared.gone.set_value(); }
    };
    LogThread log([last = std::make_shared<Last>()](LogLevel, std::string_view) {
      if (shared.lines++ == 0) shared.goes_on.get_future().wait();
    });
    log.log(LogLevel::info, "a line");
    log.log(LogLevel::info, "another");
  }
  CHECK(std::chrono::steady_clock::now() - begin < 3s);
  shared.goes_on.set_value();
  shared.gone.get_future().wait();
  CHECK(shared.lines == 1);  // the objects that the sink refers to may be gone
}
