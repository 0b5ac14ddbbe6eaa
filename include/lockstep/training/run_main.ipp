#pragma once

#include "lockstep/training/run_main.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

namespace lockstep {

ProgramFailure current_failure() {
  try {
    throw;
  } catch (const UsageError& e) {
    return {2, e.what()};
  } catch (const PeerLost& e) {
    return {3, e.what()};
  } catch (const Evicted& e) {
    return {128 + e.signal(), e.what()};
  } catch (const std::bad_alloc&) {
    return {1, "out of memory; use a smaller batch or a smaller model"};
  } catch (const std::exception& e) {
    return {1, e.what()};
  } catch (...) {
    return {1, "failed with an unknown exception; throw one that derives from std::exception"};
  }
}

}  // namespace lockstep

namespace lockstep::detail {

void ignore_file_size_signal() {
  struct ::sigaction now{};
  if (::sigaction(SIGXFSZ, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == SIG_DFL)
    ::signal(SIGXFSZ, SIG_IGN);
}

int report_failure() {
  const ProgramFailure failure = current_failure();
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, failure.message.c_str());
  return failure.exit_code;
}

}  // namespace lockstep::detail
