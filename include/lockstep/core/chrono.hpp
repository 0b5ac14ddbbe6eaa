/// \file
/// The clocks and durations of std::chrono, without the calendar and the time zones of <chrono>, which cost
/// 6 MB of compiler memory in each unit.
#pragma once

#if __has_include(<bits/chrono.h>)
#include <bits/chrono.h>  // of libstdc++
#else
#include <chrono>
#endif
