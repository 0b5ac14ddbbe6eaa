/// \file
/// A bounded busy wait, used before a thread sleeps on a condition variable.
#pragma once

#include "lockstep/core/process/contention.hpp"

namespace lockstep::detail {

/// A few hundred microseconds, about the time it takes to wake a thread on an idle virtual core.
inline constexpr int short_spins = 10'000;

/// The polls of a wait that would poll `spins` times: none while cores are contended, because the
/// thread that polls would delay the one that it waits for.
inline int polls(int spins) { return is_contended() ? 0 : spins; }

/// Polls `done()` up to polls(`spins`) times, tens of nanoseconds apart. \return its last result.
template <class Done>
bool spin_until(int spins, const Done& done) {
  const int most = polls(spins);
  for (int i = 0; i < most; ++i) {
    if (done()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");  // `yield` does not wait on most cores
#endif
  }
  return done();
}

}  // namespace lockstep::detail
