/// \file
/// The durations and the clocks of std::chrono, by a header whose waits take both. Not <chrono>:
/// its calendars and streams are a fiftieth of what a program costs the compiler.
#pragma once

#include <condition_variable>
