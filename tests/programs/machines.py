"""mnist_multi_worker on machines that behave in odd ways: the wall clock jumps, system calls are short or interrupted, links
are slow, standard streams are closed, memory and files run out. A library that the workers preload replaces system calls.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import contract
import multi_worker

BIN = contract.BIN
SECRET = "a secret of this test, and of no other"

JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
/* Ten minutes more with each call, and sometimes an hour less. */
static long jump(void) {
  static long calls;
  const long call = __sync_fetch_and_add(&calls, 1);
  return call * 600 - (call % 7 == 6 ? 3600 : 0);
}
int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return result;
}
int gettimeofday(struct timeval* now, void* zone) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* copy) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (copy) *copy = exact.tv_sec;
  return exact.tv_sec;
}
"""

# The control connections are read on edges of epoll, where a call must not refuse input that is there: no EAGAIN.
SHORT_CALLS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static _Thread_local unsigned calls;
static int interrupted(void) {
  if (++calls % 2 == 0) return 0;  /* each second attempt succeeds */
  errno = EINTR;
  return 1;
}
static size_t few(size_t n) {
  const size_t most = 1 + calls * 31 % 997;
  return n < most ? n : most;
}
ssize_t send(int file, const void* p, size_t n, int flags) {
  return interrupted() ? -1 : syscall(SYS_sendto, file, p, n, flags, 0, 0);
}
ssize_t sendmsg(int file, const struct msghdr* m, int flags) {
  return interrupted() ? -1 : syscall(SYS_sendmsg, file, m, flags);
}
ssize_t recv(int file, void* p, size_t n, int flags) {
  return interrupted() ? -1 : syscall(SYS_recvfrom, file, p, few(n), flags, 0, 0);
}
ssize_t recvmsg(int file, struct msghdr* m, int flags) {
  if (interrupted()) return -1;
  size_t i = 0;
  while (i + 1 < m->msg_iovlen && m->msg_iov[i].iov_len == 0) ++i;
  struct iovec part = m->msg_iov[i];
  part.iov_len = few(part.iov_len);
  struct msghdr one = *m;
  one.msg_iov = &part;
  one.msg_iovlen = 1;
  return syscall(SYS_recvmsg, file, &one, flags);
}
"""

# About 500 kB a second in each direction, as the kernel delivers them: a part, then nothing for a while.
SLOW_LINK = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static _Thread_local int is_empty;
static ssize_t part(int file, struct msghdr* m, int flags) {
  if (is_empty) {
    is_empty = 0;
    usleep(60000);
    errno = EAGAIN;
    return -1;
  }
  const ssize_t got = syscall(SYS_recvmsg, file, m, flags);
  is_empty = got > 4096;
  return got;
}
ssize_t recv(int file, void* p, size_t n, int flags) {
  struct iovec one = {p, n < 16384 ? n : 16384};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
  return part(file, &m, flags);
}
ssize_t recvmsg(int file, struct msghdr* m, int flags) {
  size_t i = 0;
  while (i + 1 < m->msg_iovlen && m->msg_iov[i].iov_len == 0) ++i;
  struct iovec one = m->msg_iov[i];
  if (one.iov_len > 16384) one.iov_len = 16384;
  struct msghdr shorter = *m;
  shorter.msg_iov = &one;
  shorter.msg_iovlen = 1;
  return part(file, &shorter, flags);
}
"""

# Call $TEST_FAIL_AT of operator new throws. The C libraries get their memory: OpenSSL crashes if it cannot initialize.
FAILING_NEW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
extern void* __libc_malloc(size_t);
static long calls, fails_at = -1;
__attribute__((constructor)) static void begin(void) {
  const char* const at = getenv("TEST_FAIL_AT");
  if (at) fails_at = atol(at);
}
void* malloc(size_t n) {
  Dl_info caller;
  if (fails_at < 0 || !dladdr(__builtin_return_address(0), &caller) || !strstr(caller.dli_fname, "libstdc++") ||
      __sync_add_and_fetch(&calls, 1) != fails_at)
    return __libc_malloc(n);
  errno = ENOMEM;
  return NULL;
}
"""

# A thread that uses up the memory as soon as the file $TEST_HOG is there.
HOG = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void* use_up(void* nothing) {
  const char* const file = getenv("TEST_HOG");
  while (access(file, F_OK) != 0) usleep(1000);
  for (;;) memset(malloc(1 << 20), 1, 1 << 20);
  return nothing;
}
__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  const char* const rank = getenv("LOCKSTEP_RANK");
  if (rank && *rank == '1') pthread_create(&thread, NULL, use_up, NULL);
}
"""


class Case(multi_worker.Case):
    options = ["--epochs", 1, "--virtual-shards", 2, "--threads", 1, "--quiet"]

    def setUp(self):
        super().setUp()
        self.data_of_test = self.data()

    def digest_of_one(self):
        return self.report("mnist", "--data", self.data_of_test, *self.options)[0]["weights_sha256"]

    def pair(self, *options, prefix=(), **variables):
        """Two workers over TCP; `prefix(rank)` is put before the command."""
        ports = multi_worker.free_ports(2)
        return [self.start(*(prefix(rank) if prefix else []), BIN / "mnist_multi_worker", "--data", self.data_of_test,
                           "--report", self.dir / f"r{rank}.json", *self.options, *options,
                           TF_CONFIG=multi_worker.tf_config(ports, rank), LOCKSTEP_SECRET=SECRET,
                           **{"LOCKSTEP_TRANSPORT": "tcp", **variables})
                for rank in range(2)]

    def trains_as_one(self, jobs, digest):
        for job in jobs:
            self.ends(job, 0)
        self.assertEqual(self.report_of("r0.json")["weights_sha256"], digest)


class Clocks(Case):
    def test_a_wall_clock_that_jumps_changes_nothing(self):
        library = self.library(JUMPING_CLOCK)
        times = subprocess.run([sys.executable, "-c", "import time; [print(time.time()) for _ in range(3)]"],
                               env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True, timeout=60)
        times = [float(t) for t in times.stdout.split()]
        self.assertGreater(max(times) - min(times), 1000)  # it jumps
        self.trains_as_one(self.pair(LD_PRELOAD=str(library)), self.digest_of_one())

    def test_monotonic_clocks_that_differ_by_days_change_nothing(self):
        shifted = ["unshare", "-T", "--monotonic", "1000000", "--boottime", "1000000"]
        if subprocess.run([*shifted, "true"], capture_output=True, timeout=60).returncode != 0:
            self.skipTest("needs time namespaces, which this user cannot make")
        self.trains_as_one(self.pair(prefix=lambda rank: shifted * rank), self.digest_of_one())


class Calls(Case):
    def test_short_and_interrupted_calls_give_the_same_bits(self):
        library, digest = self.library(SHORT_CALLS), self.digest_of_one()
        for wire in ("sealed", "plain_on_trusted_network"):
            with self.subTest(wire):
                self.trains_as_one(self.pair(LD_PRELOAD=str(library), LOCKSTEP_WIRE=wire), digest)

    def test_a_link_that_is_slow_but_moves_data_is_not_a_stall(self):
        self.options = [*self.options, "--steps-per-epoch", 2]
        digest = self.digest_of_one()
        began = time.monotonic()
        self.trains_as_one(self.pair("--stall-timeout", 3, "--idle-timeout", 3, LD_PRELOAD=str(self.library(SLOW_LINK))), digest)
        self.assertGreater(time.monotonic() - began, 7)  # two exchanges of more than three seconds each


class Streams(Case):
    def test_closed_standard_streams_change_nothing(self):
        digest = self.digest_of_one()
        for streams in ("<&- >&- 2>&-", ">&-", ">&- 2>&-"):
            with self.subTest(streams):
                closed = ["sh", "-c", f'exec "$@" {streams}', "sh"]
                jobs = self.pair("--progress", "json", "--checkpoint", self.dir / f"run{len(streams)}",
                                 "--checkpoint-every", 1, prefix=lambda rank: closed)
                self.trains_as_one(jobs, digest)
                self.assertEqual([job.stdout() for job in jobs], ["", ""])


class Memory(Case):
    def fail_at(self, library, number):
        """How two workers end if allocation `number` of rank 1 fails; the output of rank 1."""
        jobs = self.pair(LOCKSTEP_RENDEZVOUS_TIMEOUT="3",
                         prefix=lambda rank: ["env", f"LD_PRELOAD={library}", f"TEST_FAIL_AT={number}"] * rank)
        return [job.wait(20) for job in jobs], jobs[1].stderr()

    def check_failing_allocations(self, numbers):
        """Each job ends, in time and for both workers. The libraries' initialization, which aborts, is left out."""
        library = self.library(FAILING_NEW)
        thrown = 0
        for number in numbers:
            with self.subTest(number=number):
                codes, output = self.fail_at(library, number)
                thrown += codes[1] in (1, 3)
                self.assertIn(codes[1], (0, 1, 3, -signal.SIGABRT), output)
                self.assertEqual(codes[0], 0 if codes[1] == 0 else 3)
                if codes[1] != 0:
                    self.assertRegex(output.strip().splitlines()[-1], r"out of memory|bad_alloc")
        self.assertGreater(thrown, len(numbers) // 3)
        print(f"{len(numbers)} allocations failed, {thrown} of them in main", flush=True)

    def check_hint_at_memory(self):
        groups = pathlib.Path("/sys/fs/cgroup/memory")
        if not (groups / "memory.limit_in_bytes").exists() or os.geteuid() != 0:
            self.skipTest("needs control groups of version 1 and their owner")
        group = groups / f"lockstep-{os.getpid()}"
        group.mkdir()
        self.addCleanup(group.rmdir)
        (group / "memory.limit_in_bytes").write_text(str(16 << 20))
        hog = self.dir / "hog"
        job = self.start(BIN / "lockstep-run", "-n", 2, "mnist_multi_worker", "--data", self.data_of_test, "--epochs", 1_000_000,
                         "--progress", "json", LD_PRELOAD=str(self.library(HOG)), TEST_HOG=str(hog))
        self.await_text(job, '"step":2,')
        victim = next(pid for pid in self.left_over()
                      if b"LOCKSTEP_RANK=1\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        (group / "cgroup.procs").write_text(str(victim))
        hog.touch()
        self.assertEqual(job.wait(30), 137, job.stderr())
        self.assertIn("rank 1 was killed by signal 9 (Killed) after memory ran out; ", job.last_line())
        self.assertRegex(job.stderr(), r"\[0\] mnist_multi_worker: rank 1 \(.* closed its connection")


class Files(Case):
    def check_few_files(self):
        """Under any limit the chief trains or reports the limit, in one sentence."""
        trained, reported = 0, 0
        for limit in range(3, 48, 3):
            with self.subTest(limit=limit):
                jobs = self.pair(LOCKSTEP_RENDEZVOUS_TIMEOUT="3",
                                 prefix=lambda rank: ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"] * (1 - rank))
                codes = [job.wait(20) for job in jobs]
                if codes[0] == 0:
                    trained += 1
                    self.assertEqual(codes, [0, 0])
                else:
                    self.assertNotEqual(codes[1], 0)
                    if codes[0] != 127:  # of the loader of libraries
                        reported += 1
                        self.assertRegex(jobs[0].last_line(), r"ulimit -n|open files|Too many open files")
        self.assertGreater(trained, 0)
        self.assertGreater(reported, 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
