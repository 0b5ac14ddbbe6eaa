"""mpirun of Open MPI (Debian: openmpi-bin) and mpiexec of MPICH (mpich) start two workers of mnist_multi_worker."""

import os
import re
import shutil
import subprocess
import sys
import unittest

import torchrun_slow

MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
MPIEXEC = shutil.which("mpiexec.hydra")


def is_open_mpi():
    """Debian's name of it, mpirun.openmpi, calls itself OpenRTE."""
    version = [MPIRUN, "--version"]
    return MPIRUN and re.search("Open ?(MPI|RTE)", subprocess.run(version, capture_output=True, text=True, timeout=60).stdout)


@unittest.skipUnless(is_open_mpi(), "there is no mpirun of Open MPI on the path; apt install openmpi-bin")
class OpenMpi(torchrun_slow.Case):
    launcher = [MPIRUN, "-n", 2, "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]

    def test_two_workers(self):
        self.trains(*self.launcher)
        self.trains(*self.launcher, torchrun_slow.BIN / "lockstep-run")

    def test_two_jobs_at_once(self):
        for _ in range(3):
            self.trains_twice_at_once(self.launcher, self.launcher)

    def test_a_worker_that_fails_ends_the_job(self):
        self.fails(*self.launcher)


@unittest.skipUnless(MPIEXEC, "there is no mpiexec.hydra on the path; apt install mpich")
class Mpich(torchrun_slow.Case):
    """Its variables name no job: the workers of a machine find their launcher in /proc."""
    launcher = [MPIEXEC, "-n", 2]

    def test_two_workers(self):
        self.trains(*self.launcher)

    def test_two_jobs_at_once(self):
        self.trains_twice_at_once(self.launcher, self.launcher)

    def test_through_a_shell(self):
        self.trains(*self.launcher, "sh", "-c", '"$@"; exit $?', "sh")


if __name__ == "__main__":
    if not is_open_mpi() and not MPIEXEC:
        print("left out: there is neither mpirun of Open MPI nor mpiexec.hydra; apt install openmpi-bin mpich")
        sys.exit(4)
    unittest.main(verbosity=1)
