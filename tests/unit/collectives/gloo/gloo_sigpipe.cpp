#include "lockstep/collectives/gloo_sigpipe.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

namespace {

void write_to_nobody() {
  int ends[2];
  if (pipe(ends) != 0) _exit(99);
  close(ends[0]);
  (void)!write(ends[1], "x", 1);
  close(ends[1]);
}

/// The signal that killed a child process running `body`, or 0.
template <class Body>
int ended_by(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a write to a closed connection does not kill the process while SIGPIPE is blocked") {
  CHECK(ended_by([] { write_to_nobody(); }) == SIGPIPE);
  CHECK(ended_by([] {
          const lockstep::detail::SigpipeBlocked blocked;
          write_to_nobody();
        }) == 0);
  CHECK(ended_by([] {
          std::thread made_there;
          {
            const lockstep::detail::SigpipeBlocked blocked;
            made_there = std::thread([] { write_to_nobody(); });
          }
          made_there.join();
        }) == 0);
}

TEST_CASE("afterwards SIGPIPE has its previous effect") {
  CHECK(ended_by([] {
          {
            const lockstep::detail::SigpipeBlocked blocked;
            write_to_nobody();
          }
          write_to_nobody();
        }) == SIGPIPE);
  CHECK(ended_by([] {
          sigset_t pipe;
          sigemptyset(&pipe);
          sigaddset(&pipe, SIGPIPE);
          pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
          {
            const lockstep::detail::SigpipeBlocked blocked;
          }
          write_to_nobody();  // still blocked
        }) == 0);
}
