#include "lockstep/core/log.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using lockstep::LogLevel;

namespace {
/// Restores the previous sink.
class WithSink {
 public:
  explicit WithSink(lockstep::LogSink sink) : before_(lockstep::set_log(std::move(sink))) {}
  ~WithSink() { lockstep::set_log(std::move(before_)); }
  WithSink(const WithSink&) = delete;
  WithSink& operator=(const WithSink&) = delete;

 private:
  lockstep::LogSink before_;
};
}  // namespace

TEST_CASE("a message reaches the sink with its level") {
  std::vector<std::pair<LogLevel, std::string>> seen;
  const WithSink sink(
      [&](LogLevel level, std::string_view text) { seen.emplace_back(level, text); });
  lockstep::log(LogLevel::warning, "more threads than cores");
  lockstep::log(LogLevel::info, "");
  REQUIRE(seen.size() == 2);
  CHECK(seen[0] == std::pair{LogLevel::warning, std::string("more threads than cores")});
  CHECK(seen[1].first == LogLevel::info);
}

TEST_CASE("set_log returns the previous sink") {
  int first = 0, second = 0;
  const WithSink outer([&](LogLevel, std::string_view) { ++first; });
  {
    const WithSink inner([&](LogLevel, std::string_view) { ++second; });
    lockstep::log(LogLevel::info, "one");
  }
  lockstep::log(LogLevel::info, "two");
  CHECK(first == 1);
  CHECK(second == 1);
}

TEST_CASE("an empty sink silences the library") {
  int seen = 0;
  const WithSink outer([&](LogLevel, std::string_view) { ++seen; });
  const WithSink silent(nullptr);
  CHECK_NOTHROW(lockstep::log(LogLevel::error, "nobody hears this"));
  CHECK(seen == 0);
}

TEST_CASE("messages from several threads are serialized") {
  int seen = 0;  // not atomic: calls of the sink are serialized
  const WithSink sink([&](LogLevel, std::string_view) { ++seen; });
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int k = 0; k < 1000; ++k) lockstep::log(LogLevel::info, "x");
    });
  for (auto& thread : threads) thread.join();
  CHECK(seen == 4000);
}
