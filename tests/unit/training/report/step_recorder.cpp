#include "lockstep/training/report/step_recorder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/files/json_document.hpp"
#include "support/log_lines.hpp"
#include "support/trace_file.hpp"

namespace {

namespace ls = lockstep;
using ls::detail::ClockOffset;
using ls::detail::StepRecorder;
using ls::detail::TraceEvent;
using ls::detail::TraceLane;
using ls::detail::TraceRoundTrip;
using testing::TraceFile;

const ls::Work forward{.pass = ls::WorkPass::forward, .part = "dense", .step = 3};
const ls::Work update{.pass = ls::WorkPass::update, .part = "optimizer", .step = 3};

}  // namespace

TEST_CASE("a lane has an event for each label, from its begin to the next") {
  TraceLane lane;
  lane.begin(forward);
  CHECK(lane.now().part == std::string("dense"));
  lane.begin(update);
  lane.begin(ls::Work{});
  lane.begin(ls::Work{});  // between steps: no event
  REQUIRE(lane.events().size() == 2);
  const TraceEvent &a = lane.events()[0], &b = lane.events()[1];
  CHECK(a.work.pass == ls::WorkPass::forward);
  CHECK(b.work.pass == ls::WorkPass::update);
  CHECK(a.begin <= a.end);
  CHECK(a.end == b.begin);
}

TEST_CASE("the calls of a device end when it reports them, and follow each other without gaps") {
  TraceLane lane;
  const std::int64_t before = ls::detail::trace_time();
  lane.begin_calls(30);
  lane.add(forward, "gemm", 10);
  lane.add(forward, std::string("relu"), 20);
  const std::int64_t after = ls::detail::trace_time();
  lane.begin_calls(1e9);  // a wrong sum: the calls begin where the last ended
  lane.add(update, "sgd", 5);
  const auto& events = lane.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].call == "gemm");
  CHECK(events[1].call == "relu");
  CHECK(events[0].end - events[0].begin == 10'000);
  CHECK(events[1].begin == events[0].end);
  CHECK(events[1].end - events[1].begin == 20'000);
  CHECK(events[1].end >= before);
  CHECK(events[1].end <= after);
  CHECK(events[2].begin == events[1].end);
}

TEST_CASE("a lane with too many events counts the rest") {
  TraceLane lane;
  for (std::size_t i = 0; i < TraceLane::limit + 3; ++i) {
    lane.begin_exchange("bucket", 4);
    lane.end_exchange();
  }
  CHECK(lane.events().size() == TraceLane::limit);
  CHECK(lane.dropped() == 3);
}

TEST_CASE("offsets of clocks are within the bounds that common operations give") {
  // The process' clock is 1000 ahead. In true time the chief is in operations [0, 50], [60, 100] and
  // [200, 202], the process in [40, 51], [70, 90] and [201, 203].
  const std::vector<TraceRoundTrip> chief{{0, 50}, {60, 100}, {200, 202}};
  const std::vector<TraceRoundTrip> process{{1040, 1051}, {1070, 1090}, {1201, 1203}};
  const ClockOffset found = ls::detail::clock_offset(chief, process);
  CHECK(found.nanoseconds == 1001);  // from 1201 - 202 = 999 to 1203 - 200 = 1003
  CHECK(found.error == 2);
  const ClockOffset wide = ls::detail::clock_offset({chief.data(), 1}, {process.data(), 1});
  CHECK(wide.nanoseconds - wide.error <= 1000);
  CHECK(wide.nanoseconds + wide.error >= 1000);
  CHECK(ls::detail::clock_offset(chief, chief).nanoseconds == 0);
}

TEST_CASE("a trace is JSON with a thread for each lane, on the clock that is asked for") {
  StepRecorder trace;
  trace.open(2, 4, true, 10);
  trace.begin(ls::Phase::data, 3);
  trace.begin(ls::Phase::forward, 3);
  trace.replica(0).begin(forward);
  trace.replica(0).begin_exchange("bucket", 12);
  trace.replica(0).end_exchange();
  trace.replica(1).begin(forward);
  trace.replica(1).begin(ls::Work{});
  trace.background(1).begin_exchange("bucket", 8);
  trace.background(1).end_exchange();
  trace.begin(ls::Phase::idle, 3);
  const std::int64_t zero = trace.begin_time() - 5'000'000;
  const std::vector<std::string> events{trace.to_json(2, zero)};
  const std::vector<ClockOffset> clocks{{0, 0}, {-1500, 250}};
  const testing::LogLines log;
  const TraceFile file(ls::detail::trace_json(events, clocks, 7));
  REQUIRE(log.lines.size() == 1);
  CHECK(log.lines[0].find("7 events are missing") != std::string::npos);
  CHECK(file.thread_names() == std::vector<std::string>{"2/0 rank 2", "2/0 replica 4",
                                                        "2/3 replica 5",
                                                        "2/4 exchange of replica 5"});
  CHECK(file.find(2, 0, "dense", "forward").size() == 1);
  CHECK(file.find(2, 0, "bucket", "exchange").at(0).bytes == 12);
  CHECK(file.find(2, 0, "data", "loop").size() == 1);
  CHECK(file.find(2, 0, "step", "loop").at(0).step == 3);
  CHECK(file.find(2, 3, "dense", "forward").size() == 1);
  CHECK(file.find(2, 4, "bucket", "exchange").at(0).bytes == 8);
  for (const auto& e : file.events()) CHECK(e.begin >= 5000);
  CHECK(file.overlaps() == 0);
  CHECK(file.offsets() == std::vector<double>{0, -1.5});
  CHECK(file.errors() == std::vector<double>{0, 0.25});
  CHECK(file.dropped() == 7);
}

TEST_CASE("names in a trace may have quotes, and layers with such names are found again") {
  StepRecorder trace;
  trace.open(1, 0, true, 10);
  const char* const name = "a \"b\"\\c\n\xc3\xa9";
  trace.replica(0).begin({.pass = ls::WorkPass::forward, .part = name, .step = 1});
  trace.replica(0).begin(ls::Work{});
  const std::vector<std::string> events{trace.to_json(0, trace.begin_time())};
  const TraceFile file(ls::detail::trace_json(events, std::vector<ClockOffset>(1), 0));
  CHECK(file.find(0, 0, name, "forward").size() == 1);
}

TEST_CASE("the loop has a separate thread where replicas compute on devices") {
  StepRecorder trace;
  trace.open(1, 0, false, 10);
  trace.begin(ls::Phase::forward, 0);
  trace.replica(0).begin_calls(1);
  trace.replica(0).add(forward, "gemm", 1);
  trace.begin(ls::Phase::idle, 0);
  const std::vector<std::string> events{trace.to_json(0, trace.begin_time())};
  const TraceFile file(ls::detail::trace_json(events, std::vector<ClockOffset>(1), 0));
  CHECK(file.thread_names() == std::vector<std::string>{"0/0 rank 0", "0/1 replica 0", "0/0 loop"});
  CHECK(file.find(0, 1, "dense", "forward").at(0).call == "gemm");
  CHECK(file.find(0, 0, "step", "loop").size() == 1);
}
