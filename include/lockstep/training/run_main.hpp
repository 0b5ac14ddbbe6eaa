/// \file
/// `run_main`: exit codes for `main`, and errors as one line on stderr. Invariant: no exception
/// leaves `run_main`.
#pragma once

#include <cxxabi.h>

#include <concepts>
#include <stop_token>
#include <string>
#include <type_traits>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/training/signal_stop.hpp"

namespace lockstep {

/// An exception as a program's exit code and message.
struct ProgramFailure {
  int exit_code;        ///< 1: an error; 2: incorrect use (UsageError); 3: lost peer (PeerLost)
  std::string message;  ///< one line
};

/// Translates the exception that is being handled. Call in a `catch` block.
/// \code
///   try {
///     train();
///   } catch (...) {
///     return ls::current_failure().exit_code;
///   }
/// \endcode
LOCKSTEP_COLD_DECL ProgramFailure current_failure();

namespace detail {
/// Ignores SIGXFSZ, unless the program handles it: a write beyond `ulimit -f` then fails with an
/// error that names the limit, instead of ending the process.
LOCKSTEP_COLD_DECL void ignore_file_size_signal();

/// Writes the current exception to stderr, as "program: message". \returns the exit code.
LOCKSTEP_COLD_DECL int report_failure();

/// Callable with Arguments, returning void or int.
template <class Body, class... Arguments>
concept MainBody = requires(Body body, Arguments... arguments) {
  requires std::is_void_v<decltype(body(arguments...))> ||
               std::same_as<decltype(body(arguments...)), int>;
};

template <class Body, class... Arguments>
int exit_code_of(Body& body, Arguments... arguments) {
  if constexpr (std::is_void_v<decltype(body(arguments...))>)
    return body(arguments...), 0;
  else
    return body(arguments...);
}
}  // namespace detail

/// Runs `body` and returns the exit code for `main`.
///
/// The code is 0, or the `int` that `body` returns; 2 after a UsageError, such as an invalid
/// cluster description; 3 after PeerLost, from which `lockstep-run` knows that another worker
/// failed first; 1 after any other exception. An exception is written to stderr as one line after
/// the program's name. SIGXFSZ is ignored, so that a file beyond `ulimit -f` is such an exception.
/// \code
///   int main() {
///     return ls::run_main([] { ... });
///   }
/// \endcode
/// A body that accepts a std::stop_token gets the token of a SignalStop. The exit code is then 130
/// after SIGINT, 143 after SIGTERM and 129 after SIGHUP, unless the body fails. A worker that is
/// still joining its job reacts to the first signal in its first step, that of an elastic job at
/// once; a second signal ends the process.
/// \code
///   int main(int argc, char** argv) {
///     return ls::run_main([&](std::stop_token stop) {
///       ...
///       model.fit(train, {.epochs = 3, .stop = stop});
///       model.save_weights(argv[1]);  // also after Ctrl-C
///     });
///   }
/// \endcode
template <class Body>
int run_main(Body&& body) {
  detail::ignore_file_size_signal();
  if constexpr (detail::MainBody<Body&>) {
    try {
      return detail::exit_code_of(body);
    } catch (const abi::__forced_unwind&) {  // pthread_exit
      throw;
    } catch (...) {
      return detail::report_failure();
    }
  } else if constexpr (detail::MainBody<Body&, std::stop_token>) {
    try {
      const SignalStop stop;
      const int code = detail::exit_code_of(body, stop.token());
      return code == 0 && stop.signal() != 0 ? 128 + stop.signal() : code;
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      return detail::report_failure();
    }
  } else {
    static_assert(detail::MainBody<Body&>,
                  "lockstep::run_main: the body must accept no argument or a std::stop_token, and "
                  "return void or int; write run_main([] { ... })");
    return 1;
  }
}

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/run_main.ipp"
#endif
