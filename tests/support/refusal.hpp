/// \file
/// What an error says.
#pragma once

#include <functional>
#include <string>

namespace testing {

/// The words of the E that f() throws; empty if it throws none. Other errors go on.
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
