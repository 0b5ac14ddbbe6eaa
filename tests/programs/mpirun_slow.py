"""Open MPI's mpirun (Debian: openmpi-bin) starts two workers of mnist_multi_worker."""

import os
import shutil
import subprocess
import sys
import unittest

import torchrun_slow

MPIRUN = shutil.which("mpirun")


def is_open_mpi():
    return MPIRUN and "Open MPI" in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, timeout=60).stdout


class OpenMpi(torchrun_slow.Case):
    launcher = [MPIRUN, "-n", 2, "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]

    def test_two_workers(self):
        self.trains(*self.launcher)
        self.trains(*self.launcher, torchrun_slow.BIN / "lockstep-run")

    def test_a_worker_that_fails_ends_the_job(self):
        self.fails(*self.launcher)


if __name__ == "__main__":
    if not is_open_mpi():
        print("left out: there is no mpirun of Open MPI on the path; apt install openmpi-bin")
        sys.exit(4)
    unittest.main(verbosity=1)
