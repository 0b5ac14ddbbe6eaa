"""mnist_multi_worker as an elastic job: workers die, freeze and join again, and the losses are those of a quiet run.

Each worker sleeps in every step that it prints, so that a job lasts long enough to be disturbed and costs little. The
cases of elastic_slow.py are here too, as check_...
"""

import json
import os
import pathlib
import random
import re
import signal
import time
import unittest

import contract
import multi_worker
import network

BIN = multi_worker.BIN
RECOVERED = 5  # seconds, the goal from a kill to the next step; three times as much is asserted
PACE = 20  # milliseconds of a step, of the worker that prints it
MEMBERS = r"generation \d+ has %d workers.*; recovered"
# fflush is called after each line of --progress json.
SLEEP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int fflush(FILE* stream) {
  static int (*next)(FILE*);
  if (!next) next = (int (*)(FILE*))dlsym(RTLD_NEXT, "fflush");
  if (stream == stdout && getenv("TEST_PACE")) usleep(1000 * atoi(getenv("TEST_PACE")));
  return next(stream);
}
"""


class Case(multi_worker.Case):
    def setUp(self):
        super().setUp()
        self.data_of_test = self.data()

    def options(self, steps):
        """130 examples are three steps of 64."""
        return ["--data", self.data_of_test, "--epochs", steps // 3, "--virtual-shards", 4, "--progress", "json"]

    def quiet_run(self, steps):
        """The losses by step, and the digest of the weights, of one process."""
        job = self.start(BIN / "mnist", *self.options(steps), "--report", self.dir / "quiet.json")
        self.ends(job, 0)
        return self.losses([job]), self.report_of("quiet.json")["weights_sha256"]

    def paced(self):
        return {"LD_PRELOAD": str(self.library(SLEEP)), "TEST_PACE": str(PACE)}

    def launch(self, steps, *options, least=2, restarts=10, **variables):
        return self.start(BIN / "lockstep-run", "-n", 4, "--elastic", least, "--max-restarts", restarts, "--restart-delay", 0,
                          BIN / "mnist_multi_worker", *self.options(steps), "--report", self.dir / "job.json", *options,
                          **self.paced(), **variables)

    def events(self, job):
        """(printed by, event), in the order of the output; None without a launcher."""
        found = []
        for line in job.stdout().splitlines(keepends=True):
            match = re.fullmatch(r"(?:\[(\d+)\] )?(\{.*\})\n", line)
            if match:
                found.append((match[1] and int(match[1]), json.loads(match[2])))
        return found

    def losses(self, jobs):
        """The loss of each step, which must be the same wherever it was printed."""
        losses = {}
        for job in jobs:
            for _, event in self.events(job):
                if event["event"] == "step":
                    self.assertEqual(losses.setdefault(event["step"], event["loss"]), event["loss"], event)
        return losses

    def await_step(self, job, step, seconds=multi_worker.DEADLINE):
        """Until a step from this one on was printed. Its number."""
        deadline = time.monotonic() + seconds
        while True:
            steps = [int(number) for number in re.findall(r'"step":(\d+),', job.stdout())]
            if steps and steps[-1] >= step:
                return steps[-1]
            self.assertIsNone(job.popen.poll(), job.stderr())
            self.assertLess(time.monotonic(), deadline, job.stderr())
            time.sleep(0.01)

    def last_step(self, job):
        return self.await_step(job, 0)

    def process_of(self, rank):
        """The process with this place in the description of the job, which may be a later one."""
        found = []
        for pid in self.left_over():
            folder = pathlib.Path(f"/proc/{pid}")
            try:
                if (f"LOCKSTEP_RANK={rank}\0".encode() in (folder / "environ").read_bytes()
                        and b"mnist_multi_worker" in (folder / "cmdline").read_bytes().split(b"\0")[0]):
                    found.append(pid)
            except OSError:
                pass
        self.assertEqual(len(found), 1, found)
        return found[0]

    def age(self, rank):
        """Seconds since this process started; 0 if it is about to be started again."""
        try:
            started = int(pathlib.Path(f"/proc/{self.process_of(rank)}/stat").read_text().rpartition(")")[2].split()[19])
        except (AssertionError, OSError):
            return 0
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")

    def kill(self, *ranks, number=signal.SIGKILL):
        for pid in [self.process_of(rank) for rank in ranks]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def seconds_to_recover(self, job):
        began = time.monotonic()
        self.await_step(job, self.last_step(job) + 3, 3 * RECOVERED)
        return time.monotonic() - began

    def await_workers(self, job, count, after=0):
        """Until a log line reports a generation of `count` workers, from the offset `after` on. The offset of its end."""
        deadline = time.monotonic() + multi_worker.DEADLINE
        while True:
            found = re.compile(MEMBERS % count).search(job.stderr(), after)
            if found:
                return found.end()
            self.assertIsNone(job.popen.poll(), job.stderr())
            self.assertLess(time.monotonic(), deadline, job.stderr())
            time.sleep(0.01)


class Workers(Case):
    def is_the_quiet_run(self, job, steps, quiet):
        self.ends(job, 0)
        losses, digest = quiet
        found = self.losses([job])
        # A chief may die after a step and before its line.
        chiefs = 1 + len(re.findall("rank 0 .* (?:could not|closed|or another worker has ended)", job.stderr()))
        self.assertLess(len(losses) - len(found), chiefs, job.stderr())
        self.assertEqual({step: losses[step] for step in found}, found)
        self.assertEqual(sorted(losses), list(range(steps)))
        self.assertEqual(len(re.findall('"step":', job.stdout())), len(found), job.stderr())
        self.assertEqual(self.report_of("job.json")["weights_sha256"], digest)
        self.no_process_is_left()

    def lose_and_replace(self, job, seen, *ranks):
        """Kills workers and waits until their replacements have joined. As await_workers."""
        self.kill(*ranks)
        took = self.seconds_to_recover(job)
        print(f"ranks {ranks} killed: three more steps after {took:.2f} s", flush=True)
        return self.await_workers(job, 4, seen)

    def test_killed_workers_join_again_and_the_losses_stay_the_same(self):
        steps = 240
        quiet = self.quiet_run(steps)
        job = self.launch(steps)
        self.await_step(job, 10)
        seen = 0
        for ranks in ((2,), (0,), (1, 3)):  # one, the chief, two at once
            seen = self.lose_and_replace(job, seen, *ranks)
        self.is_the_quiet_run(job, steps, quiet)

    def test_fewer_than_the_minimum_end_with_the_cause(self):
        job = self.launch(3_000_000, least=4, restarts=0)
        self.await_step(job, 3)
        self.kill(2)
        self.assertEqual(job.wait(20), 137, job.stderr())
        self.assertIn("lockstep-run: rank 2 was killed by signal 9 (Killed); 3 of 4 workers are left, fewer than --elastic 4, and the "
                      "job ends\n", job.stderr())
        self.no_process_is_left()

    def test_sigterm_ends_all_with_the_weights_saved(self):
        job = self.launch(3_000_000, "--save", self.dir / "w")
        self.await_step(job, 3)
        job.popen.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 143, job.stderr())
        self.assertEqual(len(contract.safetensors(self.dir / "w")), 6)
        self.no_process_is_left()

    def test_an_evicted_worker_leaves_and_the_others_go_on(self):
        for rank, number, code in ((2, signal.SIGTERM, 143), (0, signal.SIGHUP, 129)):
            with self.subTest(rank=rank):
                job = self.launch(3_000_000)
                last = self.await_step(job, 3)
                self.kill(rank, number=number)
                self.await_line(job, f"rank {rank} ended, with exit code {code}; it is not started again after this exit code; "
                                     "3 of 4 workers are left")
                self.await_step(job, self.last_step(job) + 10, 3 * RECOVERED)
                job.popen.send_signal(signal.SIGTERM)
                self.assertEqual(job.wait(20), 143, job.stderr())

    def check_a_job_of_which_all_workers_die_continues_from_its_checkpoint(self):
        steps = 300
        losses, digest = self.quiet_run(steps)
        job = self.launch(steps, "--checkpoint", self.dir / "run", "--checkpoint-every", 10)
        self.await_step(job, 100)
        self.kill(0, 1, 2, 3)
        self.ends(job, 0)
        report = self.report_of("job.json")
        self.assertEqual(report["weights_sha256"], digest)
        self.assertGreaterEqual(report["first_step"], 50, job.stderr())
        self.assertEqual(self.losses([job]), losses)
        self.no_process_is_left()

    def check_a_frozen_worker_is_replaced_when_it_wakes(self):
        steps = 1500
        quiet = self.quiet_run(steps)
        for rank in (2, 0):
            with self.subTest(rank=rank):
                job = self.launch(steps)
                self.await_step(job, 10)
                zombie = self.process_of(rank)
                os.kill(zombie, signal.SIGSTOP)
                began = time.monotonic()
                print(f"rank {rank} frozen: three more steps after {self.seconds_to_recover(job):.2f} s", flush=True)
                time.sleep(max(0, 5 - (time.monotonic() - began)))
                seen = len(job.stderr())
                os.kill(zombie, signal.SIGCONT)
                self.await_line(job, f"rank {rank} ended, with exit code 3; restart")
                self.assertRegex(job.stderr(), rf"(?m)^\[{rank}\] mnist_multi_worker: .*without this process")
                self.await_workers(job, 4, seen)
                self.is_the_quiet_run(job, steps, quiet)

    def check_random_kills(self, jobs=int(os.environ.get("JOBS", 20)), kills=10):
        """Of one or two workers, also the chief, also while the others recover."""
        steps = 2400
        quiet = self.quiet_run(steps)
        for number in range(jobs):
            chance = random.Random(number)
            with self.subTest(job=number):
                job = self.launch(steps, restarts=1000)
                self.await_step(job, 3)
                for _ in range(kills):
                    time.sleep(chance.uniform(0, 3))
                    victims = chance.sample(range(4), chance.choice((1, 1, 2)))
                    # One that has the state must be left.
                    if any(rank not in victims and self.age(rank) > 8 for rank in range(4)):
                        for rank in victims:
                            if self.age(rank) > 0:
                                self.kill(rank)
                job.wait(3 * multi_worker.DEADLINE)
                self.is_the_quiet_run(job, steps, quiet)
                print(f"job {number}: {job.stderr().count('; restart ')} restarts", flush=True)


@network.needs_namespaces
class Partitions(Case):
    """Four hosts, each of which votes alone."""

    hosts = network.Case.hosts
    wait = {"LOCKSTEP_RENDEZVOUS_TIMEOUT": "20"}

    def worker(self, hosts, host, steps, *options):
        addresses = [f"{address}:{network.PORT}" for address in hosts.addresses]
        votes = self.dir / f"votes{host}"
        votes.mkdir(exist_ok=True)
        return self.start(*hosts.command(host, BIN / "mnist_multi_worker", *self.options(steps), "--report",
                                         self.dir / f"r{host}.json", *options),
                          TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": host}}),
                          LOCKSTEP_MIN_WORKERS="1", LOCKSTEP_ELASTIC_DIRECTORY=str(votes), LOCKSTEP_SECRET=network.SECRET,
                          **self.wait, **self.paced())

    def cut_and_heal(self, alone, steps=900):
        """Those hosts are cut off from the others, and later start again."""
        quiet, digest = self.quiet_run(steps)
        hosts = self.hosts(4)
        jobs = [self.worker(hosts, host, steps) for host in range(4)]
        chief = min(set(range(4)) - set(alone))
        self.await_step(jobs[0], 10)
        pairs = [(a, b) for a in alone for b in range(4) if b not in alone]
        for a, b in pairs:
            hosts.cut_between(a, b)
        began, last = time.monotonic(), self.last_step(jobs[0])
        self.await_step(jobs[chief], last + 10, network.SILENT + 3 * RECOVERED)
        print(f"hosts {alone} cut off: ten more steps after {time.monotonic() - began:.2f} s", flush=True)
        for host in alone:
            self.assertEqual(jobs[host].wait(40), 3, jobs[host].stderr())
            print(f"host {host}: {jobs[host].last_line()}", flush=True)
        # Both sides may have made the step of the cut, and no other.
        written = [set(self.losses([job])) for job in jobs]
        self.assertLessEqual(len(set().union(*(written[host] for host in alone)) & written[chief]) if chief not in alone and chief > 0
                             else max(written[alone[0]], default=-1) - last, 1)
        for a, b in pairs:
            hosts.heal_between(a, b)
        again = [self.worker(hosts, host, steps) for host in alone]
        self.await_workers(jobs[chief], 4, len(jobs[chief].stderr()))
        for job in (*again, *(jobs[host] for host in range(4) if host not in alone)):
            self.ends(job, 0)
        self.assertEqual(self.losses(jobs + again), quiet)
        self.assertEqual(self.report_of(f"r{chief}.json")["weights_sha256"], digest)

    def check_half_without_rank_0_stops(self):
        self.cut_and_heal((2, 3))

    def check_a_chief_that_is_cut_off_stops(self):
        self.cut_and_heal((0,))

    def check_a_worker_that_is_cut_off_stops(self):
        self.cut_and_heal((3,))


if __name__ == "__main__":
    unittest.main(verbosity=1)
