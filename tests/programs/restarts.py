"""lockstep-run --max-restarts, with shell scripts as the workers.

A script finds in $LOCKSTEP_RESTART how often the job was started before. checkpoints.py restarts programs that train.
"""

import re
import signal
import subprocess
import time
import unittest

import multi_worker

BIN = multi_worker.BIN


class Case(multi_worker.Case):
    def launch(self, count, options, script, *arguments, delay=0):
        """`script` gets `arguments` as $1, $2, ..."""
        return self.start(BIN / "lockstep-run", "-n", count, "--restart-delay", delay, *options, "sh", "-c", script, "-", *arguments)

    def own_lines(self, job):
        return [line.removeprefix("lockstep-run: ") for line in job.stderr().splitlines() if line.startswith("lockstep-run: ")]

    def checkpoints(self, *names):
        folder = self.dir / "run"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).mkdir()
        return folder


class Restarts(Case):
    def test_all_workers_start_again_after_a_crash(self):
        """With new ports, a new secret and a new job id."""
        script = 'echo "$TF_CONFIG" $LOCKSTEP_JOB_ID $(cat $LOCKSTEP_SECRET_FILE); [ $LOCKSTEP_RESTART-$LOCKSTEP_RANK = 0-1 ] && '
        for crash, cause in (("exit 1", "rank 1 failed first, with exit code 1"), ("exit 3", "rank 1 failed first, with exit code 3"),
                             ("kill -9 $$", "rank 1 was killed by signal 9 (Killed)"),
                             ("kill -SEGV $$", "rank 1 was killed by signal 11 (Segmentation fault)")):
            with self.subTest(crash):
                job = self.launch(2, ["--max-restarts", 3], script + crash + "; [ $LOCKSTEP_RESTART = 0 ] && sleep 100; exit 0")
                self.ends(job, 0)
                self.assertEqual(self.own_lines(job),
                                 [cause + "; restart 1 of 3 in 0.0 s, without --resume, since the command has no --checkpoint"])
                lines = job.stdout().splitlines()
                self.assertEqual(sorted(line[:3] for line in lines), ["[0]", "[0]", "[1]", "[1]"])
                self.assertEqual(len(set(lines)), 4)
                first, second = ([line[4:].rsplit(" ", 2) for line in lines if line.startswith("[0]")])
                for a, b in zip(first, second, strict=True):
                    self.assertNotEqual(a, b)
                self.no_process_is_left()

    def test_without_the_option_nothing_is_started_again(self):
        job = self.launch(2, [], "echo $LOCKSTEP_RESTART; exit 1")
        self.ends(job, 1)
        self.assertEqual([line[4:] for line in job.stdout().splitlines()], ["0", "0"])
        self.assertNotIn("restart", job.stderr())

    def test_a_job_that_was_refused_or_interrupted_is_not_started_again(self):
        for code in (2, 126, 127, 130, 143):
            with self.subTest(code):
                job = self.launch(2, ["--max-restarts", 3], f"echo run; exit {code}")
                self.ends(job, code)
                self.assertEqual(len(job.stdout().splitlines()), 2)
                self.assertRegex(job.last_line(), rf"with exit code {code}; the job is not restarted after this exit code$")

    def test_the_last_failure_gives_the_exit_code(self):
        job = self.launch(2, ["--max-restarts", 2], "[ $LOCKSTEP_RESTART = 2 ] && kill -9 $$; exit 1")
        self.ends(job, 137)
        lines = self.own_lines(job)
        self.assertEqual(len(lines), 3)
        for number in (1, 2):
            self.assertIn(f"; restart {number} of 2 in ", lines[number - 1])
        self.assertRegex(lines[2], r"^rank [01] was killed by signal 9 \(Killed\), which gives the exit code 137; "
                                   r"no restart is left of --max-restarts 2$")

    def test_logs_keep_the_output_of_all_starts(self):
        logs = self.dir / "logs"
        for _ in range(2):  # the first start empties the file
            job = self.launch(1, ["--max-restarts", 2, "--log-dir", logs], "echo start $LOCKSTEP_RESTART; exit 1")
            self.ends(job, 1)
            self.assertEqual((logs / "rank-0.log").read_text(), "start 0\nstart 1\nstart 2\n")


class Checkpoints(Case):
    def test_the_job_resumes_from_the_first_restart_on(self):
        for own, first, later in ((["--checkpoint", "run"], "--checkpoint run", "--checkpoint run --resume"),
                                  (["--checkpoint=run"], "--checkpoint=run", "--checkpoint=run --resume"),
                                  (["--resume", "--checkpoint", "run"], "--resume --checkpoint run", "--resume --checkpoint run"),
                                  (["--checkpoints", "run"], "--checkpoints run", "--checkpoints run")):
            with self.subTest(own):
                job = self.launch(1, ["--max-restarts", 2], 'echo "$*"; [ $LOCKSTEP_RESTART = 2 ] || exit 1', *own)
                self.ends(job, 0)
                self.assertEqual([line[4:] for line in job.stdout().splitlines()], [first, later, later])

    def test_each_restart_names_the_newest_checkpoint(self):
        folder = self.checkpoints("step-000000007", "step-000000040", "step-9.tmp", "step-x", "step-", "other-99")
        script = 'mkdir "$2/step-00000010$LOCKSTEP_RESTART"; exit 1'
        job = self.launch(1, ["--max-restarts", 4], script, "--checkpoint", folder)
        self.ends(job, 1)
        lines = self.own_lines(job)
        for number in range(4):
            self.assertRegex(lines[number], rf"restart {number + 1} of 4 in 0\.0 s, from step 10{number}$")
        self.assertIn("no restart is left of --max-restarts 4", lines[4])

    def test_a_job_that_fails_three_times_at_one_step_ends(self):
        for names, script, starts, place in (
            ((), "exit 1", 3, "before its first checkpoint"),
            (("step-000000012",), "exit 1", 3, "at step 12"),
            # A newer checkpoint in the second start: it counts from there.
            (("step-000000012",), '[ $LOCKSTEP_RESTART = 1 ] && mkdir "$2/step-000000013"; exit 1', 4, "at step 13"),
        ):
            with self.subTest(names=names, script=script):
                self.setUp()
                job = self.launch(1, ["--max-restarts", 9], "echo run; " + script, "--checkpoint", self.checkpoints(*names))
                self.ends(job, 1)
                self.assertEqual(len(job.stdout().splitlines()), starts)
                lines = self.own_lines(job)
                self.assertEqual(len(lines), starts)
                self.assertEqual(lines[-1], f"rank 0 failed first, with exit code 1; the job failed three times {place} and is not restarted")
        self.assertIn("from step 12", lines[0])
        self.assertIn("from step 13", lines[1])

    def test_a_directory_that_is_not_there_yet_has_no_checkpoint(self):
        job = self.launch(1, ["--max-restarts", 1], "[ $LOCKSTEP_RESTART = 1 ] || exit 1", "--checkpoint", self.dir / "none")
        self.ends(job, 0)
        self.assertTrue(job.last_line().endswith("from the start, without a checkpoint"), job.last_line())


class Delays(Case):
    def test_each_restart_waits_twice_as_long_and_a_part(self):
        job = self.launch(1, ["--max-restarts", 4], "exit 1", delay=0.1)
        began = time.monotonic()
        self.ends(job, 1)
        waited = [float(re.search(r" in (\d+\.\d) s,", line)[1]) for line in self.own_lines(job)[:4]]
        for number, seconds in enumerate(waited):
            self.assertGreaterEqual(seconds, 0.1 * 2**number - 0.05)
            self.assertLessEqual(seconds, 0.1 * 2**number * 1.25 + 0.05)
        self.assertGreaterEqual(time.monotonic() - began, sum(waited) - 0.2)

    def test_a_newer_checkpoint_resets_the_wait(self):
        run = self.dir / "run"
        job = self.launch(1, ["--max-restarts", 4], 'mkdir -p "$2/step-00000000$LOCKSTEP_RESTART"; exit 1', "--checkpoint", run, delay=0.2)
        self.ends(job, 1)
        for line in self.own_lines(job)[:4]:
            self.assertLessEqual(float(re.search(r" in (\d+\.\d) s,", line)[1]), 0.2 * 1.25 + 0.05)

    def test_a_signal_ends_the_wait_at_once(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number):
                job = self.launch(1, ["--max-restarts", 1], "echo run; exit 1", delay=1000)
                self.await_line(job, "restart 1 of 1")
                self.assertRegex(job.last_line(), r"in 1[0-2]\d\d\.\d s, ")
                job.popen.send_signal(signal.SIGUSR1)  # for the workers: does not end the wait
                with self.assertRaises(subprocess.TimeoutExpired):
                    job.popen.wait(0.3)
                job.popen.send_signal(number)
                self.assertEqual(job.wait(10), code)
                self.assertEqual(len(job.stdout().splitlines()), 1)

    def test_a_job_that_a_signal_ended_is_not_started_again(self):
        for reaction in ("exit 143", "exit 0", "exit 1", "kill -9 $$"):
            with self.subTest(reaction):
                script = f"trap '{reaction}' TERM; echo ready; while :; do sleep 0.05; done"
                job = self.launch(2, ["--max-restarts", 3], script)
                for rank in range(2):
                    self.await_text(job, f"[{rank}] ready")
                job.popen.send_signal(signal.SIGTERM)
                self.assertEqual(job.wait(10), 143, job.stderr())
                self.assertNotIn("restart", job.stderr())

    def test_wrong_command_lines(self):
        for option, value in (("--max-restarts", "-1"), ("--max-restarts", "x"), ("--restart-delay", "-1"), ("--restart-delay", "x")):
            with self.subTest(option=option, value=value):
                job = self.start(BIN / "lockstep-run", "-n", 1, option, value, "true")
                self.ends(job, 2)
                self.assertIn(option, job.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=1)
