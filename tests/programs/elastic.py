"""mnist_multi_worker as an elastic job: workers die, freeze and join again, and the losses are those of a quiet run.

Each worker sleeps in every step that it prints, so that a job lasts long enough to be disturbed and costs little. The
cases of elastic_slow.py are here too, as check_...
"""

import collections
import json
import os
import pathlib
import re
import signal
import time
import unittest

import multi_worker

BIN = multi_worker.BIN
RECOVERED = 5  # seconds, the goal from a kill to the next step; three times as much is asserted
PACE = 10  # milliseconds of a step, of the worker that prints it
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
        return {"LD_PRELOAD": str(self.library(SLEEP)), "TEST_PACE": str(PACE), "ASAN_OPTIONS": "verify_asan_link_order=0"}

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

    def kill(self, *ranks, number=signal.SIGKILL):
        for pid in [self.process_of(rank) for rank in ranks]:
            os.kill(pid, number)

    def await_members(self, job, count):
        """Until a log line of the launcher's output reports that many workers."""
        raise NotImplementedError

    def seconds_to_recover(self, job):
        began = time.monotonic()
        self.await_step(job, self.last_step(job) + 3, 3 * RECOVERED)
        return time.monotonic() - began


class Workers(Case):
    def is_the_quiet_run(self, job, steps, losses, digest):
        self.ends(job, 0)
        self.assertEqual(self.losses([job]), losses)
        self.assertEqual(sorted(losses), list(range(steps)))
        self.assertEqual(self.report_of("job.json")["weights_sha256"], digest)
        self.no_process_is_left()

    def test_killed_workers_join_again_and_the_losses_stay_the_same(self):
        steps = 450
        quiet = self.quiet_run(steps)
        job = self.launch(steps)
        self.await_step(job, 10)
        for ranks in ([2], [0], [1, 3]):  # one, the chief, two at once
            began = time.monotonic()
            self.kill(*ranks)
            self.await_restarts(job, ranks)
            took = self.seconds_to_recover(job)
        self.is_the_quiet_run(job, steps, *quiet)


if __name__ == "__main__":
    unittest.main(verbosity=1)
