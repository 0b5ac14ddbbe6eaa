"""mnist_parameter_server, lockstep-run --ps and lockstep-doctor --ps, with real processes on this machine."""

import json
import os
import pathlib
import signal
import unittest

import multi_worker

BIN = multi_worker.BIN
SHORT = ("--epochs", 1, "--steps-per-epoch", 6, "--quiet", "--virtual-shards", 8)


class Case(multi_worker.Case):
    def tasks(self, *arguments, chief=0, workers=1, servers=1, **kinds):
        """Starts each task of a cluster by hand; returns them by name."""
        ports = iter(multi_worker.free_ports(chief + workers + servers))
        cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
                   for job, count in (("chief", chief), ("worker", workers), ("ps", servers)) if count}
        return {f"{job}:{i}": self.start(BIN / kinds.get("program", "mnist_parameter_server"), *arguments,
                                         TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": job, "index": i}}))
                for job in cluster for i in range(len(cluster[job]))}


class ParameterServer(Case):
    def report(self, *command):
        path = self.dir / f"{len(list(self.dir.iterdir()))}.json"
        job = self.start(*command, "--report", path)
        self.ends(job, 0)
        return json.loads(path.read_text())

    def test_jobs_of_the_launcher_have_the_bits_of_one_device(self):
        alone = self.report(BIN / "mnist", *SHORT)
        for workers, servers in ((1, 1), (3, 2)):
            with self.subTest(workers=workers, servers=servers):
                found = self.report(BIN / "lockstep-run", "-n", workers, "--ps", servers, "mnist_parameter_server", "--mode", "sync", *SHORT)
                self.assertEqual(found["weights_sha256"], alone["weights_sha256"])
                self.assertEqual(found["step_loss"], alone["step_loss"])
                self.assertEqual((found["strategy"], found["workers"], found["replicas"], found["rank"]),
                                 ("parameter_server", workers, workers, 0))
                self.assertEqual(set(found["replica_weights_sha256"]), {alone["weights_sha256"]})
                self.assertEqual(len(found["replica_weights_sha256"]), workers + servers)

    def test_asynchronous_steps_that_miss_no_update_have_the_bits_of_one_device(self):
        alone = self.report(BIN / "mnist", *SHORT)
        found = self.report(BIN / "lockstep-run", "-n", 2, "--ps", 2, "mnist_parameter_server", "--mode", "async", "--staleness", 0, *SHORT)
        self.assertEqual(found["weights_sha256"], alone["weights_sha256"])
        self.assertEqual(found["step_loss"], alone["step_loss"])
        self.assertEqual((found["stale_max"], found["examples_once"], found["steps"]), (0, True, 6))
        free = self.report(BIN / "lockstep-run", "-n", 2, "--ps", 1, "mnist_parameter_server", "--mode", "async", *SHORT)
        self.assertLessEqual(free["stale_max"], 4)
        self.assertTrue(free["examples_once"])
        self.assertEqual(len(free["step_loss"]), 6)

    def test_steps_with_a_backup_worker_have_the_bits_of_one_device(self):
        alone = self.report(BIN / "mnist", *SHORT)
        found = self.report(BIN / "lockstep-run", "-n", 3, "--ps", 1, "mnist_parameter_server", "--backup-workers", 1, *SHORT)
        self.assertEqual(found["weights_sha256"], alone["weights_sha256"])
        self.assertEqual(found["step_loss"], alone["step_loss"])
        self.assertEqual((found["examples_once"], found["steps"]), (True, 6))
        self.assertGreaterEqual(found["copies_dropped"], 0)
        self.assertNotIn("stale_max", found)

    def test_tasks_of_tf_config_train_together(self):
        jobs = self.tasks(*SHORT, "--report", self.dir / "r.json", chief=1, workers=2, servers=2)
        for job in jobs.values():
            self.ends(job, 0)
        report = json.loads((self.dir / "r.json").read_text())
        self.assertEqual((report["workers"], report["rank"], report["steps"]), (2, 0, 6))
        table = jobs["chief:0"].stderr()
        self.assertIn("job of 2 workers and 2 parameter servers:", table)
        for line in ("rank 0 (chief:0,", "rank 2 (worker:1,", "rank 4 (ps:1,"):
            self.assertIn(line, table)

    def test_a_signal_at_a_server_ends_all_in_order(self):
        jobs = self.tasks("--epochs", 1000, "--progress", "json", workers=2, servers=1)
        self.await_text(jobs["worker:0"], '"event":"step","step":3')
        jobs["ps:0"].popen.send_signal(signal.SIGTERM)
        for job in jobs.values():
            self.ends(job, 143)

    def test_a_killed_server_is_named(self):
        jobs = self.tasks("--epochs", 1000, "--progress", "json", chief=1, workers=1, servers=1)
        self.await_text(jobs["chief:0"], '"event":"step","step":3')
        jobs["ps:0"].popen.kill()
        for name in ("chief:0", "worker:0"):
            self.ends(jobs[name], 3)
            self.assertRegex(jobs[name].stderr(), r"rank 2 \(127\.0\.0\.1:\d+\)")

    def process_of(self, rank):
        """The process with this rank in the description of the job."""
        for pid in self.left_over():
            folder = pathlib.Path(f"/proc/{pid}")
            try:
                if (f"LOCKSTEP_RANK={rank}\0".encode() in (folder / "environ").read_bytes()
                        and b"mnist_parameter_server" in (folder / "cmdline").read_bytes().split(b"\0")[0]):
                    return pid
            except OSError:
                pass
        return self.fail(f"rank {rank} is not there")

    def test_the_launcher_continues_after_the_death_of_a_server(self):
        options = ("--epochs", 4, "--steps-per-epoch", 300, "--virtual-shards", 8)
        alone = self.report(BIN / "mnist", "--quiet", *options)
        path, folder = self.dir / "restarted.json", self.dir / "run"
        job = self.start(BIN / "lockstep-run", "-n", 2, "--ps", 1, "--max-restarts", 2, "--restart-delay", 0,
                         BIN / "mnist_parameter_server", *options, "--progress", "json", "--checkpoint", folder, "--checkpoint-every", 50,
                         "--report", path)
        self.await_text(job, '"event":"step","step":120')
        os.kill(self.process_of(2), signal.SIGKILL)
        self.ends(job, 0)
        self.assertIn("rank 2 was killed by signal 9 (Killed); restart 1 of 2", job.stderr())
        found = json.loads(path.read_text())
        self.assertEqual(found["weights_sha256"], alone["weights_sha256"])
        self.assertGreater(found["first_step"], 0)

    def test_an_elastic_job_survives_a_server_and_a_worker(self):
        options = ("--epochs", 4, "--steps-per-epoch", 400, "--virtual-shards", 8)
        alone = self.report(BIN / "mnist", "--quiet", *options)
        path = self.dir / "elastic.json"
        job = self.start(BIN / "lockstep-run", "-n", 2, "--ps", 2, "--elastic", 1, "--max-restarts", 4, "--restart-delay", 0,
                         BIN / "mnist_parameter_server", *options, "--progress", "json", "--ps-replicas", 2, "--report", path)
        self.await_text(job, '"event":"step","step":50')
        os.kill(self.process_of(2), signal.SIGKILL)
        self.await_line(job, "has 2 workers and 2 parameter servers, 1 of them new; recovered")
        os.kill(self.process_of(1), signal.SIGKILL)
        self.ends(job, 0)
        self.assertIn("rank 2 was killed by signal 9 (Killed); restart 1 of 4, of this worker alone", job.stderr())
        self.assertIn("rank 1 was killed by signal 9 (Killed)", job.stderr())
        self.assertEqual(json.loads(path.read_text())["weights_sha256"], alone["weights_sha256"])

    def test_an_elastic_job_names_a_server_that_nobody_replaces(self):
        job = self.start(BIN / "lockstep-run", "-n", 2, "--ps", 1, "--elastic", 1, BIN / "mnist_parameter_server",
                         "--epochs", 1000, "--progress", "json")
        self.await_text(job, '"event":"step","step":5')
        os.kill(self.process_of(2), signal.SIGKILL)
        self.ends(job, 137)  # as of the first failure; the workers end with 3
        self.assertEqual(job.stderr().count("is a parameter server that is lost"), 2, job.stderr())
        self.assertIn("set .replicas = 2", job.stderr())
        for rank in (0, 1):
            self.assertIn(f"rank {rank} ended, with exit code 3", job.stderr())

    def test_a_killed_worker_leaves_an_asynchronous_job(self):
        path = self.dir / "left.json"
        job = self.start(BIN / "lockstep-run", "-n", 3, "--ps", 1, BIN / "mnist_parameter_server", "--mode", "async", "--epochs", 2,
                         "--steps-per-epoch", 300, "--progress", "json", "--report", path)
        self.await_text(job, '"event":"step","step":30')
        os.kill(self.process_of(2), signal.SIGKILL)
        self.ends(job, 0)
        self.assertIn("2 of 3 workers are left", job.stderr())
        report = json.loads(path.read_text())
        self.assertTrue(report["examples_once"])
        self.assertLessEqual(report["stale_max"], 6)

    def test_a_wrong_cluster_is_refused(self):
        ends = self.tasks(*SHORT, workers=1, servers=0)["worker:0"]
        self.ends(ends, 2)
        self.assertIn("TF_CONFIG: cluster has no ps; list at least one parameter server", ends.stderr())
        other = self.start(BIN / "mnist_multi_worker", *SHORT, TF_CONFIG=json.dumps(
            {"cluster": {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}, "task": {"type": "ps", "index": 0}}))
        self.ends(other, 2)
        self.assertIn("task.type is ps: parameter servers need the strategy ls::ParameterServer", other.stderr())
        few = self.start(BIN / "lockstep-run", "-n", 2, "--ps", 2, "--elastic", 3, "mnist_parameter_server")
        self.ends(few, 2)
        self.assertIn("the job has only 2 workers", few.stderr())
        for option, value, *more in (("--mode", "now"), ("--staleness", "1"), ("--backup-workers", "1", "--mode", "async")):
            refused = self.start(BIN / "mnist_parameter_server", option, value, *more, *SHORT)
            self.ends(refused, 2)
            self.assertIn(option, refused.stderr())
        backups = self.start(BIN / "lockstep-run", "-n", 1, "--ps", 1, "mnist_parameter_server", "--backup-workers", 1, *SHORT)
        self.ends(backups, 2)
        self.assertIn("backup_workers is 1, but the job has 1 worker, of which", backups.stderr())
        copies = self.start(BIN / "lockstep-run", "-n", 1, "--ps", 1, "mnist_parameter_server", "--ps-replicas", 2, *SHORT)
        self.ends(copies, 2)
        self.assertIn("replicas is 2, but the job has 1 parameter server;", copies.stderr())

    def test_the_doctor_examines_servers(self):
        job = self.start(BIN / "lockstep-run", "-n", 2, "--ps", 1, "--check", "mnist_parameter_server")
        self.ends(job, 0)
        self.assertRegex(job.stdout(), r"3 workers|2 +\S")


if __name__ == "__main__":
    unittest.main()
