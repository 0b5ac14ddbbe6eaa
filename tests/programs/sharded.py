"""--update sharded of the programs, with real processes on this machine."""

import shutil
import unittest

import contract
import multi_worker

SLOTS = 2 * 4 * 347146  # of Adam


class Sharded(multi_worker.Case):
    def options(self, *more):
        """Three steps an epoch, the last one with two examples."""
        if not (self.dir / "data").exists():
            self.data()
        return ["--data", self.dir / "data", "--optimizer", "adam", "--threads", 1, "--quiet", *more]

    def job(self, count, *options, **variables):
        """The reports of the workers' own results."""
        jobs = self.workers(count, *options, **variables)
        for job in jobs:
            self.ends(job, 0)
        return self.report_of("r0.json")

    def test_replicas_of_one_process_share_the_slots(self):
        found = [self.report("mnist_mirrored", *self.options("--replicas", 3, "--epochs", 2, "--update", update))[0]
                 for update in ("replicated", "sharded")]
        self.assertEqual([report["update"] for report in found], ["replicated", "sharded"])
        self.assertEqual([report["optimizer_bytes"] for report in found], [3 * SLOTS, SLOTS])
        self.assertEqual(found[0]["weights_sha256"], found[1]["weights_sha256"])
        self.assertEqual(found[0]["step_loss"], found[1]["step_loss"])
        planned = [report["peak_bytes"]["planned"] for report in found]
        self.assertEqual(planned[0] - planned[1], 2 * SLOTS)

    def test_workers_divide_the_slots_and_have_the_bits_of_whole_ones(self):
        for transport in ("tcp", "shared_memory"):
            with self.subTest(transport):
                found = [self.job(3, *self.options("--epochs", 2, "--verify-every", 1, "--update", update),
                                  LOCKSTEP_TRANSPORT=transport) for update in ("replicated", "sharded")]
                self.assertEqual(found[0]["optimizer_bytes"], SLOTS)
                self.assertLess(abs(found[1]["optimizer_bytes"] - SLOTS / 3), 2 * 4 * 128)
                self.assertEqual(found[0]["weights_sha256"], found[1]["weights_sha256"])
                self.assertEqual(found[0]["step_loss"], found[1]["step_loss"])

    def test_a_checkpoint_continues_on_other_workers_and_on_one_device(self):
        for update in ("replicated", "sharded"):
            self.job(2, *self.options("--epochs", 2, "--checkpoint", self.dir / update, "--update", update))

        def resumed(source, *job):
            """The digest and the first step of a run from a copy of a job's checkpoint."""
            run = self.dir / f"copy{len(list(self.dir.iterdir()))}"
            shutil.copytree(self.dir / source, run)
            options = self.options("--epochs", 4, "--checkpoint", run, "--resume")
            found = self.job(3, *options, "--update", *job) if job else self.report("mnist", *options)[0]
            return found["weights_sha256"], found["first_step"]

        for job in ((), ("sharded",)):
            with self.subTest(job):
                self.assertEqual(resumed("sharded", *job), resumed("replicated", *job))
        self.assertEqual(resumed("sharded", "replicated"), resumed("sharded", "sharded"))
        self.assertEqual(resumed("sharded")[1], 6)

    def test_workers_with_other_policies_end_with_the_same_sentence(self):
        jobs = self.workers(2, *self.options("--epochs", 1),
                            own=lambda rank: ["--update", ("replicated", "sharded")[rank]])
        for job in jobs:
            self.ends(job, 2)
        self.assertEqual(len({job.last_line() for job in jobs}), 1)
        self.assertIn('"update policy": "replicated" and "sharded"', jobs[0].last_line())

    def test_what_cannot_be_is_refused(self):
        for update in ("ring", ""):
            done = contract.run("mnist_mirrored", "--update", update)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--update", done.stderr)
        self.assertNotIn("--update", contract.run("mnist", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
