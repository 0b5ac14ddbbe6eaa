/// \file
/// Reads a trace in Chrome's format, with a parser of its own instead of the code that writes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/files/json_document.hpp"

namespace testing {

/// The events of a trace.
class TraceFile {
 public:
  struct Event {
    std::string name{}, category{}, call{};
    std::size_t process = 0, thread = 0, step = 0, bytes = 0;
    double begin = 0, duration = 0;  ///< microseconds
    bool resumes = false;
  };

  /// \throws JsonError unless `json` is a trace.
  explicit TraceFile(const std::string& json) {
    using namespace lockstep::detail;
    const JsonDocument document(json, "trace", {.bytes = std::size_t{64} << 20});
    const JsonValue root = document.root();
    for (const JsonValue& value : json_list(root, "traceEvents")) {
      const std::size_t process = json_natural(value, "pid"), thread = json_natural(value, "tid");
      const JsonValue arguments = json_member(value, "args");
      if (json_text(value, "ph") == "M") {
        names_.push_back(std::to_string(process) + "/" + std::to_string(thread) + " " +
                         std::string(json_text(arguments, "name")));
        continue;
      }
      Event e{.name = std::string(json_text(value, "name")),
              .category = std::string(json_text(value, "cat")),
              .process = process,
              .thread = thread,
              .begin = json_double(json_member(value, "ts")),
              .duration = json_double(json_member(value, "dur"))};
      for (const JsonMember& m : arguments.members()) {
        if (m.key == "step") e.step = m.value.natural();
        if (m.key == "resumes") e.resumes = m.value.boolean();
        if (m.key == "bytes") e.bytes = m.value.natural();
        if (m.key == "call") e.call = std::string(m.value.text());
      }
      events_.push_back(std::move(e));
    }
    const JsonValue other = json_member(root, "otherData");
    for (const JsonValue& v : json_list(other, "clock_offset_us")) offsets_.push_back(v.number());
    for (const JsonValue& v : json_list(other, "clock_error_us")) errors_.push_back(v.number());
    dropped_ = json_natural(other, "dropped_events");
  }

  /// "process/thread name", in the order of the file.
  const std::vector<std::string>& thread_names() const { return names_; }
  const std::vector<Event>& events() const { return events_; }
  std::vector<Event> find(std::size_t process, std::size_t thread, std::string_view name,
                          std::string_view category) const {
    std::vector<Event> found;
    for (const Event& e : events_)
      if (e.process == process && e.thread == thread && e.name == name && e.category == category)
        found.push_back(e);
    return found;
  }
  const std::vector<double>& offsets() const { return offsets_; }
  const std::vector<double>& errors() const { return errors_; }
  std::size_t dropped() const { return dropped_; }

  /// Pairs of events of one thread of which neither contains the other although they overlap.
  std::size_t overlaps() const {
    constexpr double rounding = 1e-4;  // numbers have three digits
    std::map<std::pair<std::size_t, std::size_t>, std::vector<Event>> threads;
    for (const Event& e : events_) threads[{e.process, e.thread}].push_back(e);
    std::size_t found = 0;
    for (auto& [thread, events] : threads) {
      std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.duration > b.duration;
      });
      std::vector<double> ends;  // of the events that contain the current one
      for (const Event& e : events) {
        while (!ends.empty() && ends.back() <= e.begin + rounding) ends.pop_back();
        if (!ends.empty() && e.begin + e.duration > ends.back() + rounding) ++found;
        ends.push_back(e.begin + e.duration);
      }
    }
    return found;
  }

 private:
  std::vector<std::string> names_;
  std::vector<Event> events_;
  std::vector<double> offsets_, errors_;
  std::size_t dropped_ = 0;
};

}  // namespace testing
