"""An elastic job of four hosts under mixed faults: processes die, are stopped or evicted, cables are cut, connections are reset,
the disk is full, clocks jump. Workers that have ended are started again. The job ends with the bits of a run without faults.

Each host is a network namespace and votes alone, so the job also loses its quorum, and then continues from a checkpoint.
LOCKSTEP_SOAK_SECONDS=3600 or LOCKSTEP_SOAK_FAULTS=2000 makes this a long test; run the script directly then, because ctest has
a limit. A seed in LOCKSTEP_SOAK_SEED repeats the choice of the faults. With LOCKSTEP_SOAK_UPDATE=sharded the workers divide the optimizer's
buffers.
"""

import collections
import contextlib
import ctypes
import json
import os
import random
import re
import signal
import struct
import subprocess
import time
import unittest

import checkpoints
import multi_worker
import network

BIN = multi_worker.BIN
FAULTS = int(os.environ.get("LOCKSTEP_SOAK_FAULTS", 0))
SECONDS = float(os.environ.get("LOCKSTEP_SOAK_SECONDS", 0 if FAULTS else 90))
SEED = int(os.environ.get("LOCKSTEP_SOAK_SEED", random.randrange(2**32)))
UPDATE = os.environ.get("LOCKSTEP_SOAK_UPDATE", "replicated")
HOSTS = 4
PACE = 10  # milliseconds of a step, of the worker that prints it
SILENCE = 1  # seconds
RECOVERED = 30  # seconds, on a machine with other work; a job without a quorum ends, and starts again, in this time
DISK = 60 << 20
# A step is slow where it is printed, and the wall clock has an offset that the test changes.
PRELOADED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long* offset;
__attribute__((constructor)) static void map_offset(void) {
  const char* path = getenv("TEST_CLOCK");
  const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void* at = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (at != MAP_FAILED) offset = at;
}
int fflush(FILE* stream) {
  static int (*next)(FILE*);
  if (!next) next = (int (*)(FILE*))dlsym(RTLD_NEXT, "fflush");
  if (stream == stdout && getenv("TEST_PACE")) usleep(1000 * atoi(getenv("TEST_PACE")));
  return next(stream);
}
int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
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


def leave_mounts_of_the_system():
    """Mounts of this process end with it."""
    new_mounts = 0x20000
    if ctypes.CDLL(None, use_errno=True).unshare(new_mounts) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, timeout=20)


def losses_in(lines):
    """The loss of each step."""
    events = [json.loads(line) for line in lines if '"event":"step"' in line]
    return {event["step"]: event["loss"] for event in events}


class Worker:
    """The process of a host, which is replaced by another one."""

    def __init__(self, process):
        self.process = process
        self.output = process.out.open()
        self.rest = ""
        self.steps = 0  # printed so far

    def new_losses(self):
        """The losses of the steps that were printed since the last call."""
        self.rest += self.output.read()
        *lines, self.rest = self.rest.split("\n")
        found = losses_in(lines)
        self.steps += len(found)
        return found

    def is_alive(self):
        return self.process.popen.poll() is None

    def signal(self, number):
        if self.is_alive():
            os.kill(self.process.popen.pid, number)


@network.needs_namespaces
class Soak(checkpoints.Case):
    small = ["--threads", 1, "--optimizer", "adam", "--virtual-shards", HOSTS]
    hosts_of = network.Case.hosts

    # --- the job ---

    def begin_job(self):
        leave_mounts_of_the_system()
        self.run_dir.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.run_dir], check=True, timeout=20)
        self.addCleanup(subprocess.run, ["umount", "-l", self.run_dir], timeout=20)
        self.hosts = self.hosts_of(HOSTS)
        self.preloaded = self.library(PRELOADED)
        self.clocks = [self.dir / f"clock{host}" for host in range(HOSTS)]
        for host in range(HOSTS):
            (self.dir / f"votes{host}").mkdir()
            self.set_clock(host, 0)
        self.losses = {}
        self.ends_of, self.effects = collections.Counter(), collections.Counter()
        self.starts = 0
        self.workers = [self.start_worker(host) for host in range(HOSTS)]

    def start_worker(self, host):
        self.starts += 1
        addresses = [f"{address}:{network.PORT}" for address in self.hosts.addresses]
        return Worker(self.start(
            *self.hosts.command(host, BIN / "mnist_multi_worker", *self.options(1_000_000), *self.saving(50), "--update", UPDATE),
            TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": host}}),
            LOCKSTEP_MIN_WORKERS="1", LOCKSTEP_ELASTIC_DIRECTORY=str(self.dir / f"votes{host}"), LOCKSTEP_SECRET=network.SECRET,
            LOCKSTEP_RENDEZVOUS_TIMEOUT="20", LOCKSTEP_SILENCE_TIMEOUT=str(SILENCE), LD_PRELOAD=str(self.preloaded),
            TEST_PACE=str(PACE), TEST_CLOCK=str(self.clocks[host])))

    def tend(self, starts=True):
        """Reads what the workers have printed, and starts those again that have ended. \\returns the number of new steps."""
        steps = 0
        for host, worker in enumerate(self.workers):
            has_ended = not worker.is_alive()
            for step, loss in worker.new_losses().items():
                self.assertEqual(self.losses.setdefault(step, loss), loss, f"step {step} of host {host}: {self.faults_so_far}")
                steps += 1
            if has_ended and starts:
                self.note_end(worker)
                self.workers[host] = self.start_worker(host)
        return steps

    def note_end(self, worker):
        process = worker.process
        code, errors = process.popen.returncode, process.stderr()
        worker.output.close()
        sentence = errors.strip().splitlines()[-1] if errors.strip() else ""
        is_locked = code == 1 and "another process" in sentence  # the chief that was stopped has the checkpoints still
        expected = (3, 143, *(-number for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM)))
        self.assertTrue(code in expected or is_locked, f"exit code {code} after {self.faults_so_far[-5:]}: {errors}")
        if code == 3:
            self.assertRegex(sentence, r"^mnist_multi_worker: rank \d", errors)
            code = "3: " + re.sub(r"rank \d+( \([^)]*\))*|\d+(\.\d+)?", "N", sentence.split(": ", 1)[1])[:100]
        self.ends_of[code] += 1
        process.out.unlink()
        process.err.unlink()

    def go_on(self, more=3):
        """Until the job has made some steps."""
        began = time.monotonic()
        if not self.goes_on(more, RECOVERED):
            self.fail("\n".join(f"host {host}: {worker.process.stderr()[-3000:]}" for host, worker in enumerate(self.workers)))
        self.times.append(time.monotonic() - began)

    def goes_on(self, more, seconds=5):
        """Whether the job makes some steps in this time. One that has lost its quorum needs all hosts to start again."""
        deadline = time.monotonic() + seconds
        steps = self.tend()
        while steps < more and time.monotonic() < deadline:
            time.sleep(0.01)
            steps += self.tend()
        return steps >= more

    # --- faults ---

    def some(self, count=1):
        return self.draw.sample(range(HOSTS), count)

    def kill(self, count=1, number=signal.SIGKILL):
        for host in self.some(count):
            self.workers[host].signal(number)

    def kill_while_they_recover(self):
        self.kill()
        time.sleep(self.draw.uniform(0, 0.15))
        self.tend()
        self.kill()

    def pause(self):
        """For less time than a silent worker has."""
        worker = self.workers[self.some()[0]]
        worker.signal(signal.SIGSTOP)
        time.sleep(self.draw.uniform(0, 0.6) * SILENCE)
        worker.signal(signal.SIGCONT)

    def freeze(self):
        worker = self.workers[self.some()[0]]
        worker.signal(signal.SIGSTOP)
        self.goes_on(3)
        worker.signal(signal.SIGCONT)

    def one_side_trains(self, side):
        """Asserts that at most one side of a cut makes steps, once those that had begun have ended."""
        time.sleep(0.5)
        self.tend()
        before = {worker: worker.steps for worker in self.workers}
        self.goes_on(10)
        made = [0, 0]
        for host, worker in enumerate(self.workers):
            made[host in side] += worker.steps - before.get(worker, 0)
        self.assertLessEqual(min(made), 2, f"hosts {side} and the others have trained: {self.faults_so_far[-5:]}")

    def cut(self):
        host = self.some()[0]
        self.hosts.cut(host)
        self.one_side_trains([host])
        self.hosts.repair(host)

    def blink(self):
        """A cable that is cut for less time than a silent worker has."""
        host = self.some()[0]
        self.hosts.cut(host)
        time.sleep(self.draw.uniform(0, 0.5) * SILENCE)
        self.hosts.repair(host)

    def cut_between(self):
        a, b = self.some(2)
        self.hosts.cut_between(a, b)
        self.goes_on(10)
        self.hosts.heal_between(a, b)

    def part(self):
        """Two hosts on each side, of which one goes on at most."""
        side = self.some(2)
        pairs = [(a, b) for a in side for b in range(HOSTS) if b not in side]
        for a, b in pairs:
            self.hosts.cut_between(a, b)
        self.one_side_trains(side)
        for a, b in pairs:
            self.hosts.heal_between(a, b)

    def reset(self):
        done = subprocess.run(self.hosts.command(self.some()[0], "ss", "-K", "-H", "-t", "state", "established"),
                              capture_output=True, text=True, timeout=20)
        self.effects["connections reset"] += done.stdout.count("\n")

    def fill_disk(self):
        filler = self.run_dir / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        self.go_on(110)  # two checkpoints are due; the second one logs the error of the first
        self.effects["checkpoints without space"] += any("free disk space" in worker.process.stderr() for worker in self.workers)
        if self.draw.random() < 0.5:
            self.kill()
            self.go_on()
        filler.unlink()

    def set_clock(self, host, seconds):
        with open(self.clocks[host], "r+b" if self.clocks[host].exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))

    def jump(self):
        self.set_clock(self.some()[0], self.draw.randrange(-10**7, 10**7))

    def all_faults(self):
        """With how often each is drawn."""
        return {
            "kill": (10, self.kill),
            "kill two": (3, lambda: self.kill(2)),
            "kill all": (1, lambda: self.kill(HOSTS)),
            "kill while they recover": (3, self.kill_while_they_recover),
            "crash": (2, lambda: self.kill(number=signal.SIGSEGV)),
            "abort": (2, lambda: self.kill(number=signal.SIGABRT)),
            "evict": (3, lambda: self.kill(number=signal.SIGTERM)),
            "pause": (5, self.pause),
            "freeze": (2, self.freeze),
            "cut": (1, self.cut),
            "blink": (3, self.blink),
            "cut between two": (1, self.cut_between),
            "part": (1, self.part),
            "reset": (5, self.reset),
            "full disk": (1, self.fill_disk),
            "clock": (5, self.jump),
        }

    def test_an_elastic_job_under_mixed_faults_ends_with_the_bits_of_a_quiet_one(self):
        self.draw, self.times, self.faults_so_far = random.Random(SEED), [], []
        print(f"LOCKSTEP_SOAK_SEED={SEED}", flush=True)
        self.begin_job()
        self.go_on()
        faults = self.all_faults()
        began = time.monotonic()
        while (not FAULTS or len(self.faults_so_far) < FAULTS) and (not SECONDS or time.monotonic() - began < SECONDS):
            name = self.draw.choices(list(faults), [often for often, _ in faults.values()])[0]
            self.faults_so_far.append(name)
            faults[name][1]()
            self.go_on()
            if len(self.faults_so_far) % 100 == 0:
                print(f"{len(self.faults_so_far)} faults after {time.monotonic() - began:.0f} s", flush=True)
        took = time.monotonic() - began
        self.ends_with_the_bits_of_a_quiet_run(took)

    def ends_with_the_bits_of_a_quiet_run(self, took):
        deadline = time.monotonic() + 3 * RECOVERED
        while [worker.is_alive() for worker in self.workers] != [True] * HOSTS or self.tend() < 1:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.2)
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        for worker in self.workers:
            self.assertIn(worker.process.wait(), (3, 143), worker.process.stderr())
        self.tend(starts=False)
        for worker in self.workers:
            worker.output.close()
        self.times.sort()
        kinds = collections.Counter(self.faults_so_far)
        print(f"{len(self.faults_so_far)} faults in {took:.0f} s: {dict(kinds)}; {self.starts} starts; {max(self.losses) + 1} steps; "
              f"three more steps after {self.times[len(self.times) // 2]:.2f} s (median), {self.times[-1]:.2f} s (most)", flush=True)
        print(f"{dict(self.effects)}", flush=True)
        for sentence, count in self.ends_of.most_common():
            print(f"{count} ended with {sentence}", flush=True)
        reached = self.steps()[-1]
        epochs = max(reached, *self.losses) // 3 + 1  # a job that started again may not have come as far again
        report = self.quiet("", *self.options(epochs), *self.saving(), workers=HOSTS)
        self.assertGreaterEqual(report["first_step"], reached)
        quiet, done = self.report("mnist", *self.options(epochs))
        self.continues(quiet, report)
        self.assertGreaterEqual(losses_in(done.stdout.splitlines()).items(), self.losses.items())
        self.no_process_is_left()


if __name__ == "__main__":
    unittest.main(verbosity=1)
