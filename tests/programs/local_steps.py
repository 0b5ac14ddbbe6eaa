"""--update local and diloco of the programs, with real processes on this machine."""

import signal
import time
import unittest

import contract
import multi_worker

BUFFER = 4 * 347146  # as large as the weights


class LocalSteps(multi_worker.Case):
    def options(self, *more):
        """Ten steps an epoch, the last one with 24 examples."""
        return ["--take", 600, "--optimizer", "adam", "--threads", 1, "--quiet", *more]

    def alone(self, *options):
        return self.report("mnist_mirrored", *self.options("--replicas", 2, *options))[0]

    def job(self, *options, own=None):
        """The chief's report."""
        for job in self.workers(2, *self.options(*options), own=own):
            self.ends(job, 0)
        return self.report_of("r0.json")

    def test_workers_have_the_bits_of_replicas_in_one_process(self):
        for update, slots in (("local", 3), ("diloco", 4)):
            with self.subTest(update):
                options = ["--epochs", 2, "--update", update, "--sync-every", 4, "--verify-every", 1]
                one, two = self.alone(*options), self.job(*options)
                self.assertEqual((one["update"], one["optimizer_bytes"]), (update, 2 * slots * BUFFER))
                self.assertEqual((two["update"], two["optimizer_bytes"]), (update, slots * BUFFER))
                self.assertEqual(len(set(two["replica_weights_sha256"])), 1)
                self.assertEqual(one["weights_sha256"], two["weights_sha256"])
                self.assertEqual(one["step_loss"], two["step_loss"])
                self.assertEqual(len(one["step_loss"]), 20)
                self.assertEqual(one["steps"], 20)
        self.assertNotEqual(one["weights_sha256"], self.alone("--epochs", 2)["weights_sha256"])

    def test_a_worker_that_stands_still_changes_no_bit(self):
        options = ["--epochs", 6, "--update", "diloco", "--sync-every", 4]
        quiet = self.job(*options)
        jobs = self.workers(2, *self.options(*options, "--stall-timeout", 60))
        for _ in range(3):
            time.sleep(0.2)
            if jobs[1].popen.poll() is None:
                jobs[1].popen.send_signal(signal.SIGSTOP)
                time.sleep(0.7)
                jobs[1].popen.send_signal(signal.SIGCONT)
        for job in jobs:
            self.ends(job, 0)
        self.assertEqual(self.report_of("r0.json")["weights_sha256"], quiet["weights_sha256"])

    def test_a_job_continues_with_the_slots_of_each_worker(self):
        options = ["--update", "diloco", "--sync-every", 4]
        whole = self.alone("--epochs", 4, *options)
        self.job("--epochs", 2, *options, "--checkpoint", self.dir / "run")
        found = self.job("--epochs", 4, *options, "--checkpoint", self.dir / "run", "--resume")
        self.assertEqual(found["first_step"], 20)
        self.assertEqual(found["weights_sha256"], whole["weights_sha256"])

    def test_workers_with_other_rounds_end_with_the_same_sentence(self):
        jobs = self.workers(2, *self.options("--epochs", 1),
                            own=lambda rank: (["--update", "local"], ["--update", "diloco", "--sync-every", 16])[rank])
        for job in jobs:
            self.ends(job, 2)
        self.assertEqual(len({job.last_line() for job in jobs}), 1)
        self.assertIn('"update policy": "diloco, 16 steps, outer rate 1, momentum 0" and '
                      '"diloco, 16 steps, outer rate 0.7, momentum 0.9"', jobs[0].last_line())

    def test_what_cannot_be_is_refused(self):
        for options, text in ((["--sync-every", 4], "--sync-every 4"),
                              (["--update", "sharded", "--sync-every", 4], "replicas synchronise in each step"),
                              (["--update", "local", "--sync-every", 0], "--sync-every"),
                              (["--update", "local", "--trace", "t.json"], "are not traced"),
                              (self.options("--update", "local", "--virtual-shards", 4), "leave it out")):
            done = contract.run("mnist_mirrored", *options)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn(text, done.stderr)
        job, = self.workers(1, *self.options("--update", "local", "--min-workers", 1))
        self.ends(job, 2)
        self.assertIn("--min-workers 1: with --update local", job.last_line())


if __name__ == "__main__":
    unittest.main()
