"""A job of four workers under random faults, which lockstep-run starts again: it ends with the bits of a run without faults.
LOCKSTEP_SOAK_SECONDS=86400 makes this a long test; run the script directly then, because ctest has a limit."""

import os
import pathlib
import random
import signal
import time
import unittest

import checkpoints
import multi_worker

SECONDS = float(os.environ.get("LOCKSTEP_SOAK_SECONDS", 60))
MEAN = 2.5  # seconds between two faults
WORKERS = 4


class Soak(checkpoints.Case):
    small = ["--threads", 1, "--optimizer", "adam", "--virtual-shards", WORKERS]

    def kill(self, job, draw, count=1, number=signal.SIGKILL):
        for rank in draw.sample(range(WORKERS), count):
            if pid := self.pid_of(job, rank):
                os.kill(pid, number)
        return True

    def pause(self, job, draw):
        """For less time than a silent worker has."""
        if pid := self.pid_of(job, draw.randrange(WORKERS)):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(draw.uniform(0, 0.8))
            os.kill(pid, signal.SIGCONT)
        return False

    def faults(self):
        return {
            "kill": self.kill,
            "kill two": lambda job, draw: self.kill(job, draw, 2),
            "crash": lambda job, draw: self.kill(job, draw, number=signal.SIGSEGV),
            "abort": lambda job, draw: self.kill(job, draw, number=signal.SIGABRT),
            "freeze": lambda job, draw: self.kill(job, draw, number=signal.SIGSTOP),
            "pause": self.pause,
        }

    def restarts(self, job):
        return job.stderr().count("; restart ")

    def test_a_job_under_random_faults_ends_with_the_bits_of_a_quiet_one(self):
        seed = random.randrange(2**32)
        draw = random.Random(seed)
        faults, counts = self.faults(), {}
        with self.subTest(seed=seed):
            job = self.job(WORKERS, *self.options(1_000_000), *self.saving(20)[:-1],
                           launcher=["--max-restarts", 1_000_000, "--restart-delay", 0])
            self.await_steps(job)
            files = len(list(pathlib.Path(f"/proc/{job.popen.pid}/fd").iterdir()))
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(draw.expovariate(1 / MEAN))
                name = draw.choice(list(faults))
                before = self.restarts(job)
                if faults[name](job, draw):
                    deadline = time.monotonic() + multi_worker.DEADLINE
                    while self.restarts(job) == before:
                        self.assertIsNone(job.popen.poll(), job.stderr())
                        self.assertLess(time.monotonic(), deadline, f"{name}: {job.stderr()}")
                        time.sleep(0.01)
                counts[name] = counts.get(name, 0) + 1
                self.await_steps(job, 25)  # a new checkpoint
            self.assertEqual(len(list(pathlib.Path(f"/proc/{job.popen.pid}/fd").iterdir())), files)
            job.popen.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(), 143, job.stderr())
            reached = self.steps()[-1]
            print(f"{sum(counts.values())} faults in {SECONDS:.0f} s, {reached} steps: {counts}", flush=True)
            epochs = reached // 3 + 1
            report = self.quiet("", *self.options(epochs), *self.saving(), workers=WORKERS)
            self.assertGreaterEqual(report["first_step"], reached)
            quiet = self.report("mnist", *self.options(epochs))[0]
            self.continues(quiet, report)
        self.no_process_is_left()


if __name__ == "__main__":
    unittest.main(verbosity=1)
