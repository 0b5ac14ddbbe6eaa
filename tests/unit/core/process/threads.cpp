#include "lockstep/core/process/threads.hpp"

#include <signal.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <thread>

#include "support/signals.hpp"

using lockstep::detail::start_computing_thread;
using lockstep::detail::start_thread;
using testing::threads_that_take;

namespace {

/// The signals blocked in the calling thread.
std::set<int> blocked() {
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  std::set<int> result;
  for (int s = 1; s < 32; ++s)
    if (sigismember(&now, s) == 1) result.insert(s);
  return result;
}

}  // namespace

TEST_CASE("a thread blocks signals to the process, but not its own faults") {
  const std::set<int> before = blocked();
  std::set<int> plain, computing;
  start_thread("test", [&] { plain = blocked(); }).join();
  start_computing_thread([&] { computing = blocked(); }).join();
  for (const std::set<int>& found : {plain, computing}) {
    for (const int sent : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE, SIGALRM})
      CHECK(found.contains(sent));
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) CHECK_FALSE(found.contains(fault));
  }
  CHECK(blocked() == before);
}

TEST_CASE("a signal to the process is handled by one of the program's threads") {
  static std::atomic<bool> came = false;
  struct sigaction action{}, old{};
  action.sa_handler = [](int) { came = true; };
  sigaction(SIGUSR1, &action, &old);
  const std::set<int> takers = threads_that_take(SIGUSR1);
  std::atomic<bool> ends = false;
  std::thread thread = start_thread("test", [&] {
    while (!ends) std::this_thread::yield();
  });
  CHECK(threads_that_take(SIGUSR1) == takers);
  kill(getpid(), SIGUSR1);
  while (!came) std::this_thread::yield();
  ends = true;
  thread.join();
  sigaction(SIGUSR1, &old, nullptr);
}
