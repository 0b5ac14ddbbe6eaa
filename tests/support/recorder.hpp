/// \file
/// A table of entry points that records each call by name and can inject failures. It computes
/// nothing, so it is not for tests of values.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace testing {

/// The calls of a test's threads in order, and the failures to inject. Read the calls only while no
/// other thread makes one.
class Recorder {
 public:
  Recorder() { instance = this; }
  ~Recorder() { instance = nullptr; }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Makes the n-th call of `name` from now on, counted from 1, return `result` and do nothing.
  void fail(const std::string& name, int result, std::size_t n = 1) {
    failures_[name].push_back({counts_[name] + n, result});
  }
  const std::vector<std::string>& calls() const { return calls_; }
  void forget() { calls_.clear(); }
  std::size_t count(std::string_view name) const {
    std::size_t n = 0;
    for (const std::string& call : calls_) n += call == name;
    return n;
  }

  /// Records a call. Returns true and the result if the call is to fail.
  std::pair<bool, int> note(const char* name) {
    const std::scoped_lock lock(mutex_);
    calls_.emplace_back(name);
    const std::size_t n = ++counts_[name];
    for (const auto& [when, result] : failures_[name])
      if (when == n) return {true, result};
    return {false, 0};
  }

  static inline Recorder* instance = nullptr;

 private:
  std::mutex mutex_;
  std::vector<std::string> calls_;
  std::map<std::string, std::size_t> counts_;
  std::map<std::string, std::vector<std::pair<std::size_t, int>>> failures_;
};

namespace recording {

/// A function that records its name and forwards to the original entry.
template <class Tag, class F>
struct Recorded;
template <class Tag, class R, class... A>
struct Recorded<Tag, R (*)(A...)> {
  static inline R (*next)(A...) = nullptr;
  static inline const char* name = "";
  static R call(A... arguments) {
    // Functions that only format an error are not recorded.
    if constexpr (std::is_pointer_v<R> || std::is_void_v<R>) {
      return next(arguments...);
    } else {
      const auto [fails, result] = Recorder::instance->note(name);
      if (fails) return static_cast<R>(result);
      return next != nullptr ? next(arguments...) : R{};
    }
  }
};

template <class Tag, class F>
void record(F& entry, const char* name) {
  Recorded<Tag, F>::next = entry;
  Recorded<Tag, F>::name = name;
  entry = &Recorded<Tag, F>::call;
}

}  // namespace recording
}  // namespace testing

/// Use in a function: wraps one function of `table` in a recorder; for LIST macros (see
/// libraries/library.hpp).
#define LOCKSTEP_RECORD_QUOTE(name) #name
#define LOCKSTEP_RECORD(name)                                                 \
  {                                                                           \
    struct Tag {};                                                            \
    testing::recording::record<Tag>(table.name, LOCKSTEP_RECORD_QUOTE(name)); \
  }
