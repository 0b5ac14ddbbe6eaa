/// \file
/// A user's library that is built with lockstep and hides it.
#pragma once

#define SHOWN __attribute__((visibility("default")))

SHOWN void library_logs();
/// Whether lockstep refuses the library a SignalStop.
SHOWN bool library_is_refused_a_signal_stop();
SHOWN void library_throws_usage_error();
