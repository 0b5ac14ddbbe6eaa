"""lockstep-run --max-restarts and --elastic, with shell scripts as the workers.

A script finds in $LOCKSTEP_RESTART how often the job, or a worker of it, was started again before. checkpoints.py and
elastic.py restart programs that train.
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


class Elastic(Case):
    """Workers wait for files in the folder $0."""

    awaits = 'wait_for() { while [ ! -e "$0/$1" ]; do sleep 0.02; done; }; '

    def launch_elastic(self, count, least, options, script, *arguments, delay=0):
        return self.start(BIN / "lockstep-run", "-n", count, "--elastic", least, "--restart-delay", delay, *options, "sh", "-c",
                          self.awaits + script, self.dir, *arguments)

    def test_a_worker_that_dies_is_started_again_alone_under_the_same_description(self):
        script = ('echo "$TF_CONFIG" $LOCKSTEP_JOB_ID $(cat $LOCKSTEP_SECRET_FILE) $LOCKSTEP_MIN_WORKERS $LOCKSTEP_RESTART "$@"; '
                  '[ $LOCKSTEP_RANK = 1 ] || { wait_for again; exit 0; }; [ $LOCKSTEP_RESTART = 0 ] && %s; touch "$0/again"')
        for crash, cause in (("exit 3", "rank 1 ended, with exit code 3"), ("exit 1", "rank 1 ended, with exit code 1"),
                             ("kill -9 $$", "rank 1 was killed by signal 9 (Killed)")):
            with self.subTest(crash):
                (self.dir / "again").unlink(missing_ok=True)
                job = self.launch_elastic(3, 2, ["--max-restarts", 3], script % crash, "--checkpoint", "run")
                self.ends(job, 0)
                self.assertEqual(self.own_lines(job), [cause + "; restart 1 of 3, of this worker alone, in 0.0 s"])
                lines = job.stdout().splitlines()
                self.assertEqual(sorted(line[:3] for line in lines), ["[0]", "[1]", "[1]", "[2]"])
                first, second = (line[4:].split(" 2 ") for line in lines if line.startswith("[1]"))
                self.assertEqual(first[0], second[0])  # addresses, job id, secret
                self.assertEqual((first[1], second[1]), ("0 --checkpoint run", "1 --checkpoint run --resume"))
                self.no_process_is_left()

    def test_the_others_go_on_if_enough_are_left(self):
        script = '[ $LOCKSTEP_RANK = 2 ] && exit 7; wait_for go'
        job = self.launch_elastic(3, 2, [], script)
        self.await_line(job, "rank 2 ended, with exit code 7; 2 of 3 workers are left")
        (self.dir / "go").touch()
        self.ends(job, 0)

    def test_too_few_end_all_with_the_first_cause(self):
        script = ('[ $LOCKSTEP_RANK = 1 ] && kill -9 $$; [ $LOCKSTEP_RANK = 2 ] && { wait_for go; exit 3; }; '
                  'trap "echo heard; exit 143" TERM; wait_for never')
        job = self.launch_elastic(3, 2, ["--max-restarts", 1], script)
        self.await_line(job, "restart 1 of 1, of this worker alone")
        self.await_line(job, "rank 1 was killed by signal 9 (Killed); no restart is left of --max-restarts 1; 2 of 3 workers are left")
        (self.dir / "go").touch()
        self.ends(job, 137)
        self.assertEqual(self.own_lines(job)[-1], "rank 2 ended, with exit code 3; no restart is left of --max-restarts 1; "
                                                  "1 of 3 workers is left, fewer than --elastic 2, and the job ends")
        self.assertEqual(job.stdout(), "[0] heard\n")
        self.no_process_is_left()

    def test_the_workers_that_the_launcher_ends_do_not_hide_the_first_failure(self):
        for code, end, expected in ((3, 143, 3), (3, 0, 3), (143, 143, 7)):
            with self.subTest(code=code, end=end):
                script = (f'[ $LOCKSTEP_RANK = 1 ] && exit {code}; [ $LOCKSTEP_RANK = 2 ] && [ {expected} = 7 ] && {{ sleep 0.2; exit 7; }}; '
                          f'trap "exit {end}" TERM; wait_for never')
                job = self.launch_elastic(3, 3 if expected == 3 else 2, [], script)
                self.ends(job, expected)
                self.assertTrue(self.own_lines(job)[-1].endswith(", and the job ends"), job.stderr())

    def test_a_worker_that_cannot_be_started_again_counts_as_lost(self):
        script = '[ $LOCKSTEP_RANK = 1 ] && { rm -r "$0/logs"; exit 7; }; wait_for never'
        job = self.launch_elastic(2, 2, ["--max-restarts", 1, "--log-dir", self.dir / "logs"], script)
        self.ends(job, 7)
        self.assertEqual(self.own_lines(job)[1:], [
            f"rank 1 cannot be started again: {self.dir}/logs/rank-1.log: No such file or directory; no restart is left of "
            "--max-restarts 1; 1 of 2 workers is left, fewer than --elastic 2, and the job ends"])
        self.no_process_is_left()

    def test_a_refused_job_ends_but_a_refused_replacement_is_started_again(self):
        """The worker before it may still have its port."""
        job = self.launch_elastic(3, 1, ["--max-restarts", 5], '[ $LOCKSTEP_RANK = 1 ] && exit 2; wait_for never')
        self.ends(job, 2)
        self.assertEqual(self.own_lines(job), ["rank 1 ended, with exit code 2; it is not started again after this exit code, "
                                               "and the job ends"])
        script = ('[ $LOCKSTEP_RANK = 1 ] || { wait_for go; exit 0; }; [ $LOCKSTEP_RESTART = 0 ] && exit 1; '
                  '[ $LOCKSTEP_RESTART = 1 ] && exit 2; exit 127')
        job = self.launch_elastic(3, 2, ["--max-restarts", 5], script)
        self.await_line(job, "rank 1 ended, with exit code 127; it is not started again after this exit code; 2 of 3 workers are left")
        self.assertIn("rank 1 ended, with exit code 2; restart 2 of 5, of this worker alone, in 0.0 s", self.own_lines(job))
        (self.dir / "go").touch()
        self.ends(job, 0)

    def test_the_chief_matters_at_the_end(self):
        """It may have died while it wrote the results. It is the lowest rank of the workers that joined first, or of all."""
        for dies, replaced, code in ((0, "none", 5), (1, "none", 0), (0, "0", 0), (1, "0", 5), (0, "012", 5)):
            with self.subTest(dies=dies, replaced=replaced):
                for file in self.dir.glob("*"):
                    file.unlink()
                script = (f'[ $LOCKSTEP_RESTART = 0 ] && case {replaced} in *$LOCKSTEP_RANK*) '
                          '[ $LOCKSTEP_RANK = 2 ] || sleep 0.3; exit 1;; esac; touch "$0/$LOCKSTEP_RANK"; '
                          f'wait_for 0; wait_for 1; wait_for 2; [ $LOCKSTEP_RANK = {dies} ] && exit 5; sleep 0.2')
                options = [] if replaced == "none" else ["--max-restarts", len(replaced)]
                job = self.launch_elastic(3, 2, options, script)
                self.ends(job, code)

    def test_what_fails_after_the_others_have_ended_is_the_result(self):
        for restarted, code, expected in ((0, 5, 5), (0, 3, 3), (1, 3, 0), (1, 5, 5), (0, 143, 0)):
            with self.subTest(restarted=restarted, code=code):
                for file in self.dir.glob("*"):
                    file.unlink()
                script = (f'[ $LOCKSTEP_RANK = 1 ] || {{ wait_for 1; exit 0; }}; [ $LOCKSTEP_RESTART = {restarted} ] || exit 1; '
                          f'touch "$0/1"; sleep 0.2; exit {code}')
                job = self.launch_elastic(2, 1, ["--max-restarts", 5], script)
                self.ends(job, expected)
                self.assertEqual(len([line for line in self.own_lines(job) if "; restart" in line]), restarted)
                self.assertEqual(self.own_lines(job)[-1], f"rank 1 ended, with exit code {code}, after the job")

    def test_no_worker_is_started_again_after_the_job(self):
        job = self.launch_elastic(3, 2, ["--max-restarts", 5], "[ $LOCKSTEP_RANK = 1 ] && exit 1; wait_for go", delay=1000)
        self.await_line(job, "restart 1 of 5")
        (self.dir / "go").touch()
        self.ends(job, 0)
        self.assertEqual(self.own_lines(job)[1:], ["rank 1 is not started again: the job has ended"])

    def test_a_worker_that_starts_again_too_late_for_the_job_is_ended(self):
        """It would wait for a generation. The chief may take its time, and a worker that has joined as long as the chief."""
        for chief, end, code, line in (("", "sleep 100 & wait", 0, "rank 1 was ended: it started too late for the job"),
                                       ("sleep 3.2;", "wait_for ended; exit 9", 9, "rank 1 ended, with exit code 9, after the job")):
            with self.subTest(line):
                for file in self.dir.glob("*"):
                    file.unlink()
                script = ('[ $LOCKSTEP_RANK-$LOCKSTEP_RESTART = 1-0 ] && exit 1; '
                          f'[ $LOCKSTEP_RANK = 1 ] && {{ trap "exit 143" TERM; touch "$0/again"; {end}; }}; '
                          f'wait_for again; [ $LOCKSTEP_RANK = 2 ] && exit 0; {chief} touch "$0/ended"')
                job = self.launch_elastic(3, 2, ["--max-restarts", 5], script)
                self.ends(job, code)
                self.assertEqual(self.own_lines(job)[1:], [line])

    def test_the_same_worker_is_started_again_later_each_time(self):
        script = '[ $LOCKSTEP_RANK = 1 ] && exit 1; [ $LOCKSTEP_RESTART = 0 ] && exit 1; wait_for go'
        job = self.launch_elastic(2, 1, ["--max-restarts", 4], script, delay=0.1)
        self.await_line(job, "no restart is left")
        (self.dir / "go").touch()
        self.ends(job, 0)
        waited = {rank: [float(seconds) for seconds in re.findall(rf"rank {rank} .* in (\d+\.\d) s", job.stderr())] for rank in (0, 1)}
        self.assertEqual((len(waited[0]), len(waited[1])), (1, 3))
        for seconds in waited.values():
            for number, each in enumerate(seconds):
                self.assertGreaterEqual(each, 0.1 * 2**number - 0.05)
                self.assertLessEqual(each, 0.1 * 2**number * 1.25 + 0.05)

    def test_a_signal_ends_all_and_starts_none(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number):
                script = ('[ $LOCKSTEP_RANK = 1 ] && exit 1; trap "exit 143" TERM; trap "exit 130" INT; echo ready; '
                          'while :; do sleep 0.02; done')
                job = self.launch_elastic(3, 1, ["--max-restarts", 3], script, delay=1000)
                self.await_line(job, "restart 1 of 3")
                for rank in (0, 2):
                    self.await_text(job, f"[{rank}] ready")
                job.popen.send_signal(number)
                self.assertEqual(job.wait(10), code)
                self.assertEqual(len(self.own_lines(job)), 1)
                self.no_process_is_left()

    def test_a_second_ctrl_c_ends_also_those_who_do_not_listen(self):
        job = self.launch_elastic(2, 1, [], "trap '' INT; echo ready; while :; do sleep 0.1; done")
        for rank in range(2):
            self.await_text(job, f"[{rank}] ready")
        job.popen.send_signal(signal.SIGINT)
        with self.assertRaises(subprocess.TimeoutExpired):
            job.popen.wait(0.5)
        job.popen.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(10), 130)

    def test_a_worker_that_leaves_on_a_signal_is_not_started_again(self):
        job = self.launch_elastic(3, 2, ["--max-restarts", 3], "[ $LOCKSTEP_RANK = 1 ] && exit 143; wait_for go")
        self.await_line(job, "rank 1 ended, with exit code 143; it is not started again after this exit code; 2 of 3 workers are left")
        (self.dir / "go").touch()
        self.ends(job, 0)

    def test_a_job_that_ends_with_its_first_failure_is_not_elastic(self):
        job = self.start(BIN / "lockstep-run", "-n", 1, "sh", "-c", 'echo "-$LOCKSTEP_MIN_WORKERS-"', LOCKSTEP_MIN_WORKERS="2")
        self.ends(job, 0)
        self.assertEqual(job.stdout(), "[0] --\n")

    def test_wrong_command_lines(self):
        for least in ("0", "x", "3"):
            with self.subTest(least):
                job = self.start(BIN / "lockstep-run", "-n", 2, "--elastic", least, "true")
                self.ends(job, 2)
                self.assertIn("--elastic", job.stderr())
        self.assertIn("the job has only 2 workers", job.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=1)
