/// \file
/// Features that code compiled into every program uses only if the program includes them. Invariant:
/// a header-only program compiles nothing of a feature whose header none of its units includes. The
/// compiled form has the features of its components, whatever is included.
#pragma once

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The implementation of a feature's interface; null if no unit of the program includes its header.
///
/// In the header-only form it is set when the static objects of a unit with that header are made: a
/// static object of another unit may come before. In the compiled form it is always there, by a
/// specialization, which the header of the interface declares:
/// \code
///   // what the training loop knows:
///   struct TracePort {
///     virtual std::shared_ptr<StepTrace> make() const = 0;
///   };
///   #ifdef LOCKSTEP_SEPARATE_COMPILATION
///   template <>
///   const TracePort* port<TracePort>();
///   #endif
///   if (const TracePort* const trace = port<TracePort>()) ...
///
///   // step_recorder.ipp, which the feature's header includes in the header-only form:
///   #ifdef LOCKSTEP_SEPARATE_COMPILATION
///   template <>
///   const TracePort* port<TracePort>() { return plug<TracePort, StepRecorders>(); }
///   #else
///   inline const Plugged<TracePort, StepRecorders> plugged_trace;
///   #endif
/// \endcode
#ifdef LOCKSTEP_SEPARATE_COMPILATION
template <class Interface>
const Interface* port();
#else
template <class Interface>
inline constinit const Interface* plugged = nullptr;
template <class Interface>
const Interface* port() {
  return plugged<Interface>;
}
#endif

/// An Implementation without state.
template <class Interface, class Implementation>
const Interface* plug() {
  static const Implementation implementation{};
  return &implementation;
}

#ifndef LOCKSTEP_SEPARATE_COMPILATION
/// Makes `port<Interface>` the Implementation.
template <class Interface, class Implementation>
struct Plugged {
  Plugged() { plugged<Interface> = plug<Interface, Implementation>(); }
};
#endif

/// Whether a unit has the header that defines T. For function templates that refuse to compile
/// without it.
template <class T>
concept Complete = requires { sizeof(T); };

}  // namespace lockstep::detail
