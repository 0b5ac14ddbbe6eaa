/// \file
/// Compares the options of a callback, their order and their defaults, with the arguments of Keras'
/// callback of that name.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "golden/recorded.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/training/callbacks/monitor.hpp"

namespace callbacks_test {

/// An option; `at` is its place in the struct.
struct Argument {
  std::string name, value;
  std::ptrdiff_t at;
};

/// The value as Python writes it.
inline std::string python(const std::string& value) { return "'" + value + "'"; }
inline std::string python(bool value) { return value ? "True" : "False"; }
inline std::string python(double value) { return lockstep::detail::python_number(value); }
inline std::string python(int value) { return std::to_string(value); }
inline std::string python(std::uint64_t value) { return std::to_string(value); }
inline std::string python(lockstep::MonitorMode mode) {
  using enum lockstep::MonitorMode;
  return mode == automatic ? "'auto'" : mode == min ? "'min'" : "'max'";
}
inline std::string python(const std::optional<double>& value) {
  return value ? python(*value) : "None";
}
template <class F>
std::string python(const std::function<F>& f) {
  return f ? "a function" : "None";
}

/// Whether the default is Keras': `verbose` is a number there, and save_freq "epoch" is 0 here.
inline bool is_default(const std::string& name, const std::string& ours, const std::string& keras) {
  if (keras.empty() || ours == keras) return true;  // keras.empty(): an argument without default
  if (name == "verbose") return ours == "False" && keras == "0";
  if (name == "save_freq") return ours == "0" && keras == "'epoch'";
  return ours.ends_with(".0") && ours.substr(0, ours.size() - 2) == keras;
}

/// Checks that `ours` has each of Keras' arguments except `left_out`, with its default and in its
/// order, and that each name of `left_out` exists in Keras.
inline void check_arguments(const std::string& callback, const std::vector<Argument>& ours,
                            std::vector<std::string> left_out = {}) {
  CAPTURE(callback);
  bool exists = false;
  std::ptrdiff_t last = -1;
  for (const auto document = recorded::read("callbacks");
       const recorded::Json& row : document["signatures"].GetArray()) {
    if (recorded::text(row[0]) != callback) continue;
    exists = true;
    const std::string name = recorded::text(row[1]), value = recorded::text(row[2]);
    if (name.empty() || std::erase(left_out, name) > 0) continue;
    CAPTURE(name, value);
    bool is_found = false;
    for (const Argument& argument : ours) {
      if (argument.name != name) continue;
      is_found = true;
      CAPTURE(argument.value);
      CHECK(is_default(name, argument.value, value));
      CHECK(argument.at > last);
      last = argument.at;
    }
    CHECK(is_found);
  }
  CHECK(exists);
  CHECK(left_out.empty());
}

}  // namespace callbacks_test

/// The Argument of an option of T.
#define LOCKSTEP_TEST_ARGUMENT(T, option)                                                        \
  [] {                                                                                           \
    const T object{};                                                                            \
    return callbacks_test::Argument{                                                             \
        #option, callbacks_test::python(object.option),                                          \
        reinterpret_cast<const char*>(&object.option) - reinterpret_cast<const char*>(&object)}; \
  }()
