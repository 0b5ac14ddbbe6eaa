"""PyTorch's torchrun starts two workers of mnist_multi_worker: $LOCKSTEP_TORCHRUN, or the one on the path."""

import os
import shutil
import signal
import sys
import unittest

import contract
import multi_worker

BIN = contract.BIN
TORCHRUN = os.environ.get("LOCKSTEP_TORCHRUN") or shutil.which("torchrun")


class Case(multi_worker.Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.kill_left_over)  # launchers may give their workers a session of their own
        self.options = ["--data", self.data(), "--epochs", "2", "--virtual-shards", "4", "--threads", "1", "--quiet"]

    def kill_left_over(self):
        for pid in self.left_over():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def trains(self, *launcher, **variables):
        """Two workers that give the bits of one process."""
        expected = self.report("mnist", *self.options)[0]["weights_sha256"]
        path = self.dir / "workers.json"
        self.ends(self.start(*launcher, BIN / "mnist_multi_worker", "--report", path, *self.options, **variables), 0)
        report = self.report_of(path.name)
        self.assertEqual((report["workers"], report["rank"], report["replicas"]), (2, 0, 2))
        self.assertEqual(report["weights_sha256"], expected)
        self.no_process_is_left()

    def trains_twice_at_once(self, *launchers):
        """Jobs of two launchers on this machine, none of which disturbs the other."""
        expected = self.report("mnist", *self.options)[0]["weights_sha256"]
        jobs = [self.start(*launcher, BIN / "mnist_multi_worker", "--report", self.dir / f"job{i}.json", *self.options)
                for i, launcher in enumerate(launchers)]
        for i, job in enumerate(jobs):
            self.ends(job, 0)
            self.assertEqual(self.report_of(f"job{i}.json")["weights_sha256"], expected)
        self.no_process_is_left()

    def fails(self, *launcher):
        """Rank 1 has no data: it reports this, the launcher's exit code is not 0, and no process is left."""
        script = f'rank=${{RANK:-$OMPI_COMM_WORLD_RANK}}; [ "$rank" = 1 ] && set -- "$@" --data {self.dir}/nowhere; ' \
                 f'exec {BIN}/mnist_multi_worker --threads 1 --epochs 1 --quiet "$@" 2>{self.dir}/rank-$rank'
        job = self.start(*launcher, "sh", "-c", script)
        self.assertNotEqual(job.wait(), 0)
        self.assertIn(f"mnist_multi_worker: rank 1: {self.dir}/nowhere", (self.dir / "rank-1").read_text())
        self.no_process_is_left()


class Torchrun(Case):
    def launcher(self, *options):
        return [TORCHRUN, "--nproc-per-node", 2, "--no-python", *options]

    def test_with_a_port_that_is_given(self):
        self.trains(*self.launcher("--master-addr", "127.0.0.1", "--master-port", multi_worker.free_ports(1)[0]))

    def test_two_jobs_with_neighboring_ports(self):
        first = multi_worker.free_ports(1)[0]
        self.trains_twice_at_once(*(self.launcher("--master-addr", "127.0.0.1", "--master-port", first + i) for i in range(2)))

    def test_standalone(self):
        self.trains(*self.launcher("--standalone"), LOCKSTEP_SECRET="a secret of this test, and of no other")

    def test_a_worker_that_fails_ends_the_job(self):
        self.fails(*self.launcher("--master-addr", "127.0.0.1", "--master-port", multi_worker.free_ports(1)[0]))


if __name__ == "__main__":
    if not TORCHRUN:
        print("left out: there is no torchrun on the path; pip install torch, or set LOCKSTEP_TORCHRUN to it")
        sys.exit(4)
    unittest.main(verbosity=1)
