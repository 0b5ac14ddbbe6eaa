/// \file
/// Objects that must be unique in a process, in a program with a library that hides its copy of lockstep.
#include <cstdio>
#include <string>
#include <string_view>

#include <lockstep/lockstep.hpp>

#include "speaker.hpp"

namespace ls = lockstep;

int main() {
  std::string heard;
  ls::set_log([&](ls::LogLevel, std::string_view text) { heard = text; });
  library_logs();
  bool caught = false;
  try {
    library_throws_usage_error();
  } catch (const ls::UsageError&) {
    caught = true;
  }
  const bool free = !library_is_refused_a_signal_stop();
  const ls::SignalStop stop;
  std::printf("log: %s, signals: %s, errors: %s\n", heard == "from the library" ? "one" : "two",
              free && library_is_refused_a_signal_stop() ? "one" : "two", caught ? "one" : "two");
}
