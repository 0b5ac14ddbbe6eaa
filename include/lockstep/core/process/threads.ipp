#pragma once

#include "lockstep/core/process/threads.hpp"

#include <pthread.h>

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/cores.hpp"

namespace lockstep::detail {

sigset_t asynchronous_signals() {
  sigset_t mask;
  sigfillset(&mask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
    sigdelset(&mask, fault);
  return mask;
}

SignalsBlocked::SignalsBlocked() {
  const sigset_t mask = asynchronous_signals();
  pthread_sigmask(SIG_BLOCK, &mask, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

/// Whether `CancellationDeferred` has disabled the cancellation of this thread.
inline thread_local bool is_cancellation_deferred = false;

CancellationDeferred::CancellationDeferred() : outer_(is_cancellation_deferred) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  if (before_ == PTHREAD_CANCEL_ENABLE) is_cancellation_deferred = true;
}

CancellationDeferred::~CancellationDeferred() {
  is_cancellation_deferred = outer_;
  pthread_setcancelstate(before_, nullptr);
}

void CancellationDeferred::point() {
  if (!is_cancellation_deferred) return;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  pthread_testcancel();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
}

std::exception_ptr current_error() {
  if (std::exception_ptr error = std::current_exception()) return error;
  return std::make_exception_ptr(
      Error("a thread that ran a callback, a layer or a data operation was ended by pthread_exit "
            "or pthread_cancel; return from the function instead"));
}

void throw_thread_error(std::string_view place, const std::system_error& error) {
  throw Error(
      "{}: no thread can be started ({}); raise the limit of threads (ulimit -u, or pids.max of "
      "the container), or free memory",
      place, error.code().message());
}

int forks() {
  static int count = 0;
  static const int status = pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(status);
  return count;
}

void OwningProcess::check(std::string_view place) const {
  if (forks() != forks_)
    throw UsageError(
        "{}: this process was forked from the one that created the model, and a fork does not "
        "copy threads; create the model in this process",
        place);
}

std::thread start_computing_thread(std::function<void()> f) {
  const SignalsBlocked blocked;
  return std::thread(std::move(f));
}

std::thread start_thread(std::string_view place, std::function<void()> f) {
  try {
    return start_computing_thread([f = std::move(f)] {
      leave_openmp_place();
      f();
    });
  } catch (const std::system_error& error) {
    throw_thread_error(place, error);
  }
}

}  // namespace lockstep::detail
