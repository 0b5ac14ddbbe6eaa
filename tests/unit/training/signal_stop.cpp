// SignalStop: in this process for the first signal, in a child for signals that end a process.
#include "lockstep/training/signal_stop.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>

namespace ls = lockstep;
using namespace std::chrono_literals;

namespace {
/// Waits up to ten seconds.
bool stops(const std::stop_token& token) {
  for (int i = 0; i < 2000 && !token.stop_requested(); ++i) std::this_thread::sleep_for(5ms);
  return token.stop_requested();
}
/// Exit status of a child process that runs `body`, which must not return.
template <class Body>
int child(Body body) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    std::signal(SIGINT, SIG_DFL);  // replaces Catch2's handlers
    std::signal(SIGTERM, SIG_DFL);
    ::alarm(20);
    body();
    ::_exit(99);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return status;
}

/// Whether data below the stack pointer, as oneDNN's kernels keep them, survive a signal. Raises
/// the signal by a system call, since a function call would overwrite the data.
[[gnu::noinline]] bool data_below_stack_pointer_survives(long process) {
  auto* const below = static_cast<volatile unsigned char*>(__builtin_frame_address(0)) - 8192;
  for (int i = 0; i < 7168; ++i) below[i] = 0x5a;
  long result = 62;  // kill
  asm volatile("syscall" : "+a"(result) : "D"(process), "S"(SIGINT) : "rcx", "r11", "memory");
  for (int i = 0; i < 7168; ++i)
    if (below[i] != 0x5a) return false;
  return result == 0;
}
}  // namespace

TEST_CASE("the first signal requests a stop and is remembered") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ls::SignalStop stop;
    CHECK(stop.signal() == 0);
    CHECK_FALSE(stop.token().stop_requested());
    ::raise(signal);
    CHECK(stop.signal() == signal);
    CHECK(stops(stop.token()));
  }
}

TEST_CASE("LOCKSTEP_STOP_SIGNALS adds signals, and only those") {
  const int status = child([] {
    ::setenv("LOCKSTEP_STOP_SIGNALS", "USR2,SIGUSR1", 1);
    for (const int signal : {SIGUSR1, SIGUSR2}) {
      ls::SignalStop stop;
      ::raise(signal);
      if (!stops(stop.token()) || stop.signal() != signal) ::_exit(90);
    }
    ::setenv("LOCKSTEP_STOP_SIGNALS", "USR2", 1);
    ls::SignalStop stop;
    ::raise(SIGUSR1);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGUSR1);
  using ls::detail::handled_signals;
  CHECK(handled_signals(nullptr) == std::vector{SIGINT, SIGTERM, SIGHUP});
  CHECK(handled_signals("") == handled_signals(nullptr));
  for (const char* wrong : {"USR3", "USR1 ", "usr1", ",", "USR1,,USR2", "10", "KILL"})
    CHECK_THROWS_WITH(handled_signals(wrong),
                      Catch::Matchers::ContainsSubstring("write one of them"));
}

TEST_CASE("the signal that stopped the job is reported, whatever this process receives") {
  ls::detail::adopt_signal(SIGTERM);  // ignored without a SignalStop
  CHECK(ls::detail::reported_signal() == 0);
  {
    ls::SignalStop stop;
    ls::detail::adopt_signal(SIGTERM);
    CHECK(stop.signal() == SIGTERM);
    CHECK(ls::detail::reported_signal() == SIGTERM);
    CHECK(ls::detail::reported_signal(stop.token()) == SIGTERM);
    CHECK(ls::detail::reported_signal(std::stop_source().get_token()) == 0);
    CHECK(ls::detail::reported_signal(std::stop_token()) == 0);
    CHECK(stops(stop.token()));
    ::raise(SIGINT);  // a launcher forwards Ctrl-C to all processes: still the first signal here
    CHECK(stop.signal() == SIGTERM);
  }
  CHECK(ls::detail::reported_signal() == 0);
  ls::SignalStop stop;
  CHECK(stop.signal() == 0);
  ::raise(SIGINT);
  CHECK(stop.signal() == SIGINT);
  ls::detail::adopt_signal(SIGTERM);  // another process has received SIGTERM, on which all agree
  CHECK(stop.signal() == SIGTERM);
}

TEST_CASE("a signal to the whole process also requests a stop") {
  ls::SignalStop stop;
  ::kill(::getpid(), SIGINT);
  CHECK(stops(stop.token()));
  CHECK(stop.signal() == SIGINT);
}

TEST_CASE("the second signal ends the process at once, by that signal") {
  for (const int second : {SIGINT, SIGTERM}) {
    const int status = child([second] {
      ls::SignalStop stop;
      ::raise(SIGINT);
      if (!stops(stop.token())) ::_exit(98);
      if (second == SIGINT) std::this_thread::sleep_for(60ms);
      ::raise(second);
      ::_exit(97);
    });
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == second);
  }
}

TEST_CASE("a signal that its sender repeats at once counts once") {  // GNU timeout does so
  int status = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {  // a busy machine may pause between the two
    status = child([] {
      ls::SignalStop stop;
      ::raise(SIGINT);
      ::raise(SIGINT);
      ::_exit(stops(stop.token()) && stop.signal() == SIGINT ? 0 : 98);
    });
    if (WIFEXITED(status)) break;
  }
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the previous handlers are restored") {
  static volatile std::sig_atomic_t seen = 0;
  const auto before = std::signal(SIGTERM, [](int) { seen = seen + 1; });
  {
    ls::SignalStop stop;
    ::raise(SIGTERM);
    CHECK(seen == 0);
    CHECK(stops(stop.token()));
  }
  ::raise(SIGTERM);
  CHECK(seen == 1);
  std::signal(SIGTERM, before);

  const int status = child([] {
    {
      ls::SignalStop stop;
    }
    ::raise(SIGINT);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("a signal that is ignored stays ignored") {  // nohup, or a shell's `&`
  const int status = child([] {
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    {
      ls::SignalStop stop;
      ::raise(SIGINT);
      ::raise(SIGINT);
      ::raise(SIGHUP);
      std::this_thread::sleep_for(20ms);
      if (stop.signal() != 0 || stop.token().stop_requested()) ::_exit(90);
      ::raise(SIGTERM);
      if (!stops(stop.token()) || stop.signal() != SIGTERM) ::_exit(91);
    }
    ::_exit(std::signal(SIGINT, SIG_DFL) == SIG_IGN ? 0 : 92);
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a second signal stop is rejected while the first exists") {
  {
    ls::SignalStop stop;
    CHECK_THROWS_AS(ls::SignalStop{}, ls::UsageError);
    CHECK_THROWS_WITH(ls::SignalStop{}, Catch::Matchers::ContainsSubstring("share its token()"));
    ::raise(SIGINT);
    CHECK(stops(stop.token()));
  }
  ls::SignalStop next;  // starts fresh
  CHECK(next.signal() == 0);
  std::this_thread::sleep_for(20ms);
  CHECK_FALSE(next.token().stop_requested());
}

TEST_CASE("the handler runs on an alternate stack, which is removed with it") {
#ifdef __SANITIZE_THREAD__
  SKIP("the thread sanitizer calls handlers later, on the stack of whoever runs then");
#endif
  const int status = child([] {
    ::stack_t stack{};
    stack.ss_flags = SS_DISABLE;
    ::sigaltstack(&stack, nullptr);  // Catch2 has an alternate stack, too
    {
      ls::SignalStop stop;
      ::sigaltstack(nullptr, &stack);
      if ((stack.ss_flags & SS_DISABLE) != 0) ::_exit(90);
      if (!data_below_stack_pointer_survives(::getpid())) ::_exit(91);
    }
    ::sigaltstack(nullptr, &stack);
    ::_exit((stack.ss_flags & SS_DISABLE) != 0 ? 0 : 92);
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("stop callbacks run outside of the signal handler") {
  ls::SignalStop stop;
  std::atomic<bool> ran = false;
  const std::stop_callback callback(stop.token(), [&] {
    const std::string allocates(1000, 'x');  // not allowed in a handler
    ran = allocates.size() == 1000;
  });
  ::raise(SIGTERM);
  REQUIRE(stops(stop.token()));
  for (int i = 0; i < 2000 && !ran; ++i) std::this_thread::sleep_for(5ms);
  CHECK(ran);
}
