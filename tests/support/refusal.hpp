/// \file
/// The message of an expected error.
#pragma once

#include <functional>
#include <string>

namespace testing {

/// The message of the E that f() throws; empty if it throws none. Other exceptions propagate.
template <class E>
std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

}  // namespace testing
