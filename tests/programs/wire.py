"""--wire of the programs, with real processes on this machine."""

import statistics
import unittest

import contract
import multi_worker

WEIGHTS = 347146
# The bytes that each of two workers sends in a step, besides the step's sums.
BYTES = {"float32": 4 * WEIGHTS, "bfloat16": 2 * WEIGHTS,
         "top_k": 8 * (3 + 1 + 3461 + 1 + 6 + 1),
         "power_sgd": 4 * (32 + 64 + 10 + (9 + 32) + (5408 + 64) + (64 + 10))}


class Wire(multi_worker.Case):
    def options(self, *more):
        """Three steps an epoch, the last one with two examples."""
        if not (self.dir / "data").exists():
            self.data()
        return ["--data", self.dir / "data", "--optimizer", "adam", "--threads", 1, "--quiet", *more]

    def job(self, *options, **variables):
        """The chief's report of two workers."""
        for job in self.workers(2, *options, **variables):
            self.ends(job, 0)
        return self.report_of("r0.json")

    def test_two_workers_send_the_bytes_of_their_format(self):
        for transport in ("tcp", "shared_memory"):
            for wire, expected in BYTES.items():
                with self.subTest(transport=transport, wire=wire):
                    found = self.job(*self.options("--epochs", 8, "--verify-every", 1, "--wire", wire),
                                     LOCKSTEP_TRANSPORT=transport)
                    self.assertEqual((found["wire"], found["update"]), (wire, "replicated"))
                    # The sums: loss, accuracy and requests, which are doubles.
                    self.assertLess(abs(found["wire_bytes"] - expected), 0.02 * expected + 200)
                    self.assertEqual(len(set(found["replica_weights_sha256"])), 1)
                    self.assertLess(statistics.fmean(found["step_loss"][-3:]), found["step_loss"][0])

    def test_a_checkpoint_continues_with_what_workers_have_kept(self):
        for wire in ("top_k", "power_sgd"):
            with self.subTest(wire):
                options = self.options("--wire", wire, "--checkpoint", self.dir / wire)
                self.job(*options, "--epochs", 5)
                found = self.job(*options, "--epochs", 6, "--resume")
                whole = self.job(*self.options("--wire", wire, "--epochs", 6))
                self.assertEqual(found["first_step"], 15)
                self.assertEqual(found["weights_sha256"], whole["weights_sha256"])

    def test_workers_with_other_formats_end_with_the_same_sentence(self):
        jobs = self.workers(2, *self.options("--epochs", 1),
                            own=lambda rank: ["--wire", ("bfloat16", "top_k")[rank]])
        for job in jobs:
            self.ends(job, 2)
        self.assertEqual(len({job.last_line() for job in jobs}), 1)
        self.assertIn('"update policy": "wire bfloat16" and "wire top_k of 0.01 of the elements"', jobs[0].last_line())

    def test_what_cannot_be_is_refused(self):
        for own, text in ((["--wire", "float16"], "--wire"),
                          (["--wire-warm-up", 9], "add --wire top_k or power_sgd"),
                          (["--wire", "top_k", "--update", "sharded"], "leave out --update sharded"),
                          (["--wire", "bfloat16", "--virtual-shards", 4], "leave out --virtual-shards 4")):
            done = contract.run("mnist_multi_worker", *own)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)
        self.assertNotIn("--wire", contract.run("mnist", "--help").stdout)
        for own, variables, text in ((["--min-workers", 1], {}, "--min-workers 1: with --wire bfloat16"),
                                     ([], {"LOCKSTEP_MIN_WORKERS": "1"}, "LOCKSTEP_MIN_WORKERS is set: with --wire")):
            job, = self.workers(1, *self.options("--wire", "bfloat16", *own), **variables)
            self.ends(job, 2)
            self.assertIn(text, job.last_line())


if __name__ == "__main__":
    unittest.main()
