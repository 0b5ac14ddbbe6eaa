"""Checkpoints of programs: killed, interrupted and resumed, with real processes on this machine.

checkpoints_slow.py does the same with more kills. Wherever results are compared, a run that was never interrupted
computes the expected ones.
"""

import os
import pathlib
import pty
import random
import re
import signal
import subprocess
import time
import unittest

import contract
import multi_worker

BIN = multi_worker.BIN


class Case(multi_worker.Case):
    small = ["--threads", 1, "--optimizer", "adam"]

    def setUp(self):
        super().setUp()
        self.run_dir = self.dir / "run"

    def options(self, epochs):
        """Three steps an epoch, the last one with two examples."""
        if not (self.dir / "data").exists():
            self.data()
        return ["--data", self.dir / "data", "--epochs", epochs, "--progress", "json", *self.small]

    def saving(self, every=3):
        return ["--checkpoint", self.run_dir, "--checkpoint-every", every, "--resume"]

    def steps(self):
        """The steps of the entries in the directory of checkpoints."""
        return sorted(int(entry.name[5:]) for entry in self.run_dir.glob("step-*") if not entry.name.endswith(".tmp"))

    def newest(self):
        return self.run_dir / f"step-{self.steps()[-1]:09}"

    def job(self, count, *options, launcher=(), name="job.json"):
        (self.dir / name).unlink(missing_ok=True)
        return self.start(BIN / "lockstep-run", "-n", count, *launcher, "mnist_multi_worker", "--report", self.dir / name, *options)

    def quiet(self, program, *options, workers=0):
        """The report of a run that is not interrupted."""
        if workers == 0:
            return self.report(program, *options)[0]
        self.ends(self.job(workers, *options, name="quiet.json"), 0)
        return self.report_of("quiet.json")

    def continues(self, quiet, report):
        """The report of the last part of a run: its bits, and the losses of its steps, are those of the quiet run."""
        self.assertEqual(report["weights_sha256"], quiet["weights_sha256"])
        self.assertEqual(report["first_step"] + report["steps"], quiet["steps"])
        self.assertEqual(report["step_loss"], quiet["step_loss"][report["first_step"]:])

    def pid_of(self, job, rank):
        children = pathlib.Path(f"/proc/{job.popen.pid}/task/{job.popen.pid}/children")
        for pid in map(int, children.read_text().split()):
            try:
                if f"LOCKSTEP_RANK={rank}\0".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                    return pid
            except OSError:
                pass
        return None

    @staticmethod
    def shown(job):
        """The number of steps that a job has shown."""
        return job.stdout().count('"event":"step"')

    def await_steps(self, job, more=1):
        before = self.shown(job)
        deadline = time.monotonic() + multi_worker.DEADLINE
        while self.shown(job) < before + more:
            self.assertIsNone(job.popen.poll(), job.stderr())
            self.assertLess(time.monotonic(), deadline, job.stderr())
            time.sleep(0.005)

    def await_checkpoint(self, job, after):
        """Waits for a checkpoint of a later step: a job that fails three times at the same one is not started again."""
        deadline = time.monotonic() + multi_worker.DEADLINE
        while not self.steps() or self.steps()[-1] <= after:
            self.assertIsNone(job.popen.poll(), job.stderr())
            self.assertLess(time.monotonic(), deadline, job.stderr())
            time.sleep(0.005)
        return self.steps()[-1]

    def survives(self, program, options, most_kills):
        """A run that is killed at random times and resumed ends with the bits of a quiet one."""
        seed = random.randrange(2**32)
        draw = random.Random(seed)
        began = time.monotonic()
        quiet = self.quiet(program, *options)
        longest = 1.6 * (time.monotonic() - began) / most_kills  # fewer than `most_kills` parts of this length rarely finish
        kills = 0
        with self.subTest(seed=seed):
            while kills < most_kills:
                job = self.start(BIN / program, *options, *self.saving())
                time.sleep(draw.uniform(0, longest))
                if job.popen.poll() is not None:
                    break
                job.popen.kill()
                self.assertEqual(job.wait(), -signal.SIGKILL)
                kills += 1
            self.assertGreaterEqual(kills, most_kills // 2)
            self.continues(quiet, self.quiet(program, *options, *self.saving()))
            self.assertEqual([entry.name for entry in self.run_dir.iterdir() if ".tmp" in entry.name], [])


class Killed(Case):
    kills, worker_kills, epochs, worker_epochs = 10, 5, 150, 500

    def test_a_run_that_is_killed_again_and_again_ends_with_the_bits_of_a_quiet_one(self):
        self.survives("mnist", self.options(self.epochs), self.kills)

    def test_a_job_whose_workers_are_killed_is_started_again_and_has_the_bits_of_a_quiet_one(self):
        seed = random.randrange(2**32)
        draw = random.Random(seed)
        options = self.options(self.worker_epochs)
        quiet = self.quiet("", *options, workers=3)
        # --resume is added by lockstep-run.
        job = self.job(3, *options, *self.saving()[:-1], launcher=["--max-restarts", 2 * self.worker_kills, "--restart-delay", 0])
        with self.subTest(seed=seed):
            newest = -1
            for number in range(self.worker_kills):
                self.await_steps(job)
                newest = self.await_checkpoint(job, newest)
                time.sleep(draw.uniform(0, 0.3))
                rank = (1, 0, 2)[number % 3]
                before = self.steps()
                os.kill(self.pid_of(job, rank), signal.SIGKILL)
                self.await_line(job, f"; restart {number + 1} of ")
                line = next(line for line in job.stderr().splitlines() if f"; restart {number + 1} of " in line)
                # One of the others may be reaped before the killed one.
                self.assertRegex(line, rf"^lockstep-run: rank {rank} was killed by signal 9 \(Killed\); "
                                       r"(before it rank \d exited with code 3, which means that it lost another worker; )?"
                                       rf"restart {number + 1} of {2 * self.worker_kills} in \d+\.\d s, from ")
                if before:
                    self.assertGreaterEqual(int(re.search(r"from step (\d+)$", line)[1]), before[-1])
            self.ends(job, 0)
            self.continues(quiet, self.report_of("job.json"))
        self.no_process_is_left()


class Interrupted(Case):
    def interrupted(self, jobs, code):
        """All end with `code`, after the same step, of which there is a checkpoint."""
        codes = [job.wait(20) for job in jobs]
        self.assertEqual(codes, [code] * len(jobs), "".join(job.stderr() for job in jobs))
        report = self.report_of("r0.json")  # of the chief; its digests are those of all ranks
        self.assertEqual(report["replica_weights_sha256"], [report["weights_sha256"]] * len(jobs))
        self.assertEqual(report["first_step"] + report["steps"], self.steps()[-1])

    def test_a_signal_at_any_rank_ends_all_after_the_same_step_with_a_checkpoint_of_it(self):
        options = [*self.options(60), *self.saving(every=1000)]
        quiet = self.quiet("", *self.options(60), workers=2)
        steps = 0
        for name, signals, code in (("chief", [(0, signal.SIGTERM)], 143), ("worker", [(1, signal.SIGTERM)], 143),
                                    ("worker, Ctrl-C", [(1, signal.SIGINT)], 130),
                                    ("all, Ctrl-C", [(0, signal.SIGINT), (1, signal.SIGINT)], 130)):
            with self.subTest(name):
                jobs = self.workers(2, *options)
                self.await_steps(jobs[0])
                for rank, number in signals:
                    jobs[rank].popen.send_signal(number)
                self.interrupted(jobs, code)
                self.assertGreater(self.steps()[-1], steps)
                steps = self.steps()[-1]
        job = self.job(2, *options, launcher=["--max-restarts", 3])
        self.await_steps(job)
        job.popen.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 143, job.stderr())
        self.assertNotIn("restart", job.stderr())
        self.assertGreater(self.steps()[-1], steps)
        job = self.job(2, *options)
        self.ends(job, 0)
        self.assertIn(f"training continues after {self.report_of('job.json')['first_step']} steps", job.stderr())
        self.continues(quiet, self.report_of("job.json"))

    def test_a_terminal_that_closes_saves_a_checkpoint(self):
        command = [str(word) for word in (BIN / "lockstep-run", "-n", 2, "--max-restarts", 3, "mnist_multi_worker",
                                          *self.options(1_000_000), *self.saving(every=1000))]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(command[0], command, {**os.environ, "TEST_MARKER": self.marker})
        shown = b""
        while b'"step":2,' not in shown:
            shown += os.read(terminal, 65536)
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 129)
        self.assertEqual(len(self.steps()), 1)
        self.no_process_is_left()

    def test_ranks_with_different_signals_end_with_the_same_code(self):
        options = [*self.options(1_000_000), *self.saving(every=1000)]
        for _ in range(3):
            jobs = self.workers(2, *options)
            self.await_steps(jobs[0])
            for job in jobs:
                job.popen.send_signal(signal.SIGSTOP)
            for job, number in zip(jobs, (signal.SIGINT, signal.SIGTERM), strict=True):
                job.popen.send_signal(number)
            for job in jobs:
                job.popen.send_signal(signal.SIGCONT)
            codes = {job.wait(20) for job in jobs}
            # SIGINT, if the ranks agreed on it one step before they would have agreed on SIGTERM.
            self.assertIn(codes, ({143}, {130}), jobs[0].stderr() + jobs[1].stderr())
            self.interrupted(jobs, codes.pop())

    def test_a_second_signal_ends_a_worker_at_once(self):
        options = [*self.options(1_000_000), *self.saving()]
        jobs = self.workers(2, *options)
        self.await_steps(jobs[0], more=8)  # the second checkpoint waits for the first to be on disk
        jobs[1].popen.send_signal(signal.SIGSTOP)  # the chief waits for it in its step
        time.sleep(0.1)
        jobs[0].popen.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        self.assertIsNone(jobs[0].popen.poll())
        jobs[0].popen.send_signal(signal.SIGTERM)
        self.assertEqual(jobs[0].wait(), -signal.SIGTERM)  # 3, if it were still there when it loses the worker
        jobs[1].kill()
        steps = self.steps()
        self.assertGreaterEqual(len(steps), 1)
        job = self.job(2, *self.options(steps[-1] // 3 + 1), *self.saving())
        self.ends(job, 0)
        self.assertIn(f"training continues after {steps[-1]} steps", job.stderr())


class OtherNumbersOfWorkers(Case):
    def test_virtual_shards_give_the_same_bits(self):
        options = ["--virtual-shards", 4, *self.saving()]
        quiet = self.quiet("mnist", *self.options(30), "--virtual-shards", 4)
        job = self.job(4, *self.options(30), *options)
        self.await_steps(job)
        job.popen.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 143, job.stderr())
        job = self.job(2, *self.options(20), *options)
        self.ends(job, 0)
        job = self.job(1, *self.options(30), *options)
        self.ends(job, 0)
        self.assertNotIn("up to rounding", job.stderr())
        self.continues(quiet, self.report_of("job.json"))

    def test_losses_are_equal_up_to_rounding_without_them(self):
        self.small = ["--threads", 1, "--learning-rate", 0.01]
        quiet = self.quiet("mnist", *self.options(4))
        losses = []
        for workers, epochs in ((4, 1), (2, 2), (1, 3)):
            job = self.job(workers, *self.options(epochs), *self.saving())
            self.ends(job, 0)
            self.assertEqual("up to rounding only: it has" in job.stderr(), workers < 4, job.stderr())
            losses += self.report_of("job.json")["step_loss"]
        losses += self.quiet("mnist", *self.options(4), *self.saving())["step_loss"]
        for a, b in zip(quiet["step_loss"], losses, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-6 * max(1, abs(a)))


class Damaged(Case):
    @staticmethod
    def flip(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def test_an_older_checkpoint_stands_in_for_a_damaged_one(self):
        quiet = self.quiet("mnist", *self.options(5))
        self.quiet("mnist", *self.options(3), *self.saving())
        self.assertEqual(self.steps(), [3, 6, 9])
        damaged = self.newest() / "weights.safetensors"
        self.flip(damaged)
        report, done = self.report("mnist", *self.options(5), *self.saving())
        self.assertIn(str(damaged), done.stderr)
        self.assertIn("training continues after 6 steps", done.stderr)
        self.continues(quiet, report)

    def test_without_an_undamaged_one_all_workers_end_before_training(self):
        self.quiet("mnist", *self.options(3), *self.saving())
        first, second, third = (self.run_dir / f"step-{step:09}" for step in (3, 6, 9))
        (first / "manifest.json").unlink()
        os.truncate(second / "optimizer.safetensors", 1000)
        self.flip(third / "weights.safetensors")
        done = contract.run("mnist", *self.options(5), *self.saving())
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        jobs = self.workers(2, *self.options(5), *self.saving())
        for job in jobs:
            self.ends(job, 1)
        for text in (done.stderr.splitlines()[-1], *(job.last_line() for job in jobs)):
            self.assertIn("no checkpoint is undamaged", text)
            for entry in (first, second, third):
                self.assertIn(str(entry), text)
        for file in (first / "manifest.json", second / "optimizer.safetensors", third / "weights.safetensors"):
            self.assertIn(str(file), done.stderr)
        self.assertEqual(self.steps(), [3, 6, 9])


class Refused(Case):
    def test_other_settings_are_named_on_all_ranks(self):
        self.ends(self.job(2, *self.options(1), *self.saving()), 0)
        small = self.small
        for name, other, expected_text in (
            ("seed", [*small, "--seed", 7], "seed was 1 and is 7 now; continue with the same seed"),
            ("batch", [*small, "--batch", 32], "global batch was 64 and is 32 now"),
            ("optimizer", ["--threads", 1, "--optimizer", "sgd"], "optimizer was "),
            ("data", [*small, "--take", 100], "training examples was 130 and is 100 now"),
        ):
            with self.subTest(name):
                self.small = other
                jobs = self.workers(2, *self.options(2), *self.saving())
                for job in jobs:
                    self.ends(job, 2)
                    self.assertEqual(job.stdout(), "")
                    self.assertIn(expected_text, job.last_line())
                    self.assertIn(str(self.newest()), job.last_line())
                self.assertEqual(len({job.last_line().split("checkpoint ", 1)[1] for job in jobs}), 1)

    def test_a_directory_with_checkpoints_is_not_overwritten(self):
        self.quiet("mnist", *self.options(1), *self.saving())
        done = contract.run("mnist", *self.options(1), *self.saving()[:-1])
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(str(self.run_dir), done.stderr)
        self.assertIn("resume", done.stderr)

    def test_resume_without_a_checkpoint_starts_training(self):
        quiet = self.quiet("mnist", *self.options(2))
        self.run_dir.mkdir()
        report = self.quiet("mnist", *self.options(2), *self.saving())
        self.assertEqual(report["first_step"], 0)
        self.continues(quiet, report)

    def test_places_that_cannot_hold_checkpoints_are_refused_before_training(self):
        (self.dir / "file").write_text("")
        (self.dir / "link").symlink_to(self.dir / "nowhere")
        for name, expected_text in (("file", "not a directory; choose another path"),
                                    ("link", "symbolic link whose target cannot be reached; remove the link"),
                                    ("missing/run", "create the folder that contains it"),
                                    ("file/run", "cannot be created")):
            with self.subTest(name):
                self.run_dir = self.dir / name
                done = contract.run("mnist", *self.options(1), *self.saving())
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertIn(str(self.run_dir), done.stderr)
                self.assertIn(expected_text, done.stderr)


class Disk(Case):
    def mounted(self, mount, *commands):
        """Runs mnist with each list of options in a namespace in which `mount` has run; $dir is self.dir."""
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            self.skipTest("this user cannot mount file systems")
        self.run_dir.mkdir(exist_ok=True)
        script = f"set -e; {mount}\n" + "".join(
            f"code=0; '{BIN}/mnist' --report '{self.dir}/r{i}.json' {' '.join(map(str, options))} "
            f"> '{self.dir}/out{i}' 2> '{self.dir}/err{i}' || code=$?; echo $code\n" for i, options in enumerate(commands))
        done = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(int(code), (self.dir / f"err{i}").read_text()) for i, code in enumerate(done.stdout.split())]

    def test_training_goes_on_without_a_checkpoint_for_which_the_disk_has_no_space(self):
        self.small = ["--threads", 1]  # SGD: a checkpoint has 1.4 MB
        quiet = self.quiet("mnist", *self.options(4))
        (code, error), (resumed, resumed_error) = self.mounted(
            f"mount -t tmpfs -o size=2m none '{self.run_dir}'", [*self.options(4), *self.saving()], [*self.options(4), *self.saving()])
        self.assertEqual(code, 0, error)
        self.assertEqual(self.report_of("r0.json")["weights_sha256"], quiet["weights_sha256"])
        found = re.search(r"the checkpoint needs (\d+) bytes and the disk has (\d+) free; free disk space.*training goes on", error)
        self.assertIsNotNone(found, error)
        self.assertGreater(int(found[1]), 347146 * 4)
        self.assertLess(int(found[2]), int(found[1]))
        # The older checkpoint is undamaged, and training continues from it.
        self.assertEqual(resumed, 0, resumed_error)
        self.assertIn("training continues after 3 steps", resumed_error)
        self.continues(quiet, self.report_of("r1.json"))

    def test_training_goes_on_without_a_checkpoint_beyond_the_limit_of_file_sizes(self):
        quiet = self.quiet("mnist", *self.options(2))
        path = self.dir / "limited.json"
        job = self.start("bash", "-c", 'ulimit -f 1000; exec "$@"', "-", BIN / "mnist", "--report", path, *self.options(2), *self.saving())
        self.ends(job, 0)
        self.assertRegex(job.stderr(), r"File too large.*needs \d+ bytes and the disk has \d+ free; raise the limit of file sizes "
                                       r"\(ulimit -f\); training goes on")
        self.continues(quiet, self.report_of(path.name))
        self.assertEqual(self.steps(), [])
        self.assertEqual([entry.name for entry in self.run_dir.iterdir()], ["lock"])

    def test_a_read_only_directory_is_refused_before_training(self):
        mount = f"mount -o bind '{self.run_dir}' '{self.run_dir}'; mount -o remount,ro,bind '{self.run_dir}'"
        (code, error), = self.mounted(mount, [*self.options(1), *self.saving()])
        self.assertEqual(code, 1, error)
        self.assertIn("choose a directory that you may write to", error)
        self.assertIn(str(self.run_dir), error)
        self.assertEqual((self.dir / "out0").read_text(), "")


if __name__ == "__main__":
    unittest.main(verbosity=1)
