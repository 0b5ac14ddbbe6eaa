/// \file
/// A short wait without sleep.
#pragma once

namespace lockstep::detail {

/// Some hundred microseconds; to wake a thread on an idle virtual core takes about as long.
inline constexpr int short_spins = 10'000;

/// Looks up to `spins` times, some tens of nanoseconds apart, whether `done()`; its last answer.
template <class Done>
bool spin_until(int spins, const Done& done) {
  for (int i = 0; i < spins; ++i) {
    if (done()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return done();
}

}  // namespace lockstep::detail
