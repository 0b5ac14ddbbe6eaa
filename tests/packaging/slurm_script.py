#!/usr/bin/env python3
"""packaging/deployment/slurm.sh with stand-ins for srun and scontrol: its command trains on two nodes of two tasks each, and it
requeues the job exactly after the exit codes that a restart can help. Programs are in $LOCKSTEP_BIN.
Usage: slurm_script.py"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "programs"))
import contract

SCRIPT = ROOT / "packaging" / "deployment" / "slurm.sh"
# The variables are those of Slurm 23.02 in a step of two nodes. 127.0.0.2 is this machine, too.
SRUN = """#!/bin/bash
echo "$*" >>srun.log
[[ -z ${STAND_IN_CODE:-} ]] || exit "$STAND_IN_CODE"
options=()
while [[ $1 == --* ]]; do options+=("$1"); shift; done
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_STEP_NODELIST=127.0.0.[1-2]
export SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE='2(x2)'
for rank in 0 1 2 3; do
  SLURM_PROCID=$rank SLURM_LOCALID=$((rank % 2)) SLURM_NODEID=$((rank / 2)) timeout 120 "$@" 2>"$rank.err" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit "${code:-0}"
"""


def free_job():
    """A job number whose port is free: the number modulo 4096, plus 61440."""
    for job in range(os.getpid() % 4096, os.getpid() % 4096 + 4096):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", job % 4096 + 61440))
                return str(job + 4096)
            except OSError:
                continue
    raise OSError("no port is free")


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        stand_ins = self.folder / "bin"
        stand_ins.mkdir()
        for name, text in (("srun", SRUN), ("scontrol", '#!/bin/bash\necho "$*" >>scontrol.log\n')):
            (stand_ins / name).write_text(text)
            (stand_ins / name).chmod(0o755)
        (self.folder / "mnist_multi_worker").symlink_to(contract.BIN / "mnist_multi_worker")

    def submit(self, **variables):
        foreign = ("SLURM", "LOCKSTEP", "OMPI", "PMI", "TF_CONFIG")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return subprocess.run([SCRIPT], cwd=self.folder, capture_output=True, text=True, timeout=300, env={
            **kept, "HOME": str(self.folder), "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": free_job(),
            "SLURM_CPUS_PER_TASK": "1", **variables})

    def requeued(self):
        log = self.folder / "scontrol.log"
        return log.read_text() if log.exists() else ""

    def test_two_nodes_of_two_tasks_train(self):
        data = self.folder / "mnist"
        data.mkdir()
        for name, count in zip(contract.NAMES, (256, 256, 64, 64)):
            (data / name).write_bytes(contract.images(count) if "images" in name else contract.labels(count))
        secret = self.folder / "lockstep.secret"
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
        done = self.submit()
        logs = [(self.folder / f"{rank}.err").read_text() for rank in range(4)]
        self.assertEqual(done.returncode, 0, done.stderr + "".join(logs))
        self.assertIn("the cluster comes from Slurm: this process is rank 0 of 4", logs[0])
        self.assertTrue((self.folder / "run1" / "latest").exists())
        self.assertEqual(self.requeued(), "")

    def test_codes_that_a_restart_can_help_requeue_the_job(self):
        for code, again in ((0, False), (1, True), (2, False), (3, True), (130, False), (137, True), (143, True)):
            with self.subTest(code):
                (self.folder / "scontrol.log").unlink(missing_ok=True)
                done = self.submit(STAND_IN_CODE=str(code), SLURM_JOB_ID="77")
                self.assertEqual(done.returncode, code)
                self.assertEqual(self.requeued(), "requeue 77\n" if again else "")
        done = self.submit(STAND_IN_CODE="3", SLURM_RESTART_COUNT="20")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(self.requeued().count("requeue"), 1)

    def test_tasks_have_the_cores_that_the_job_asked_for(self):
        self.submit(STAND_IN_CODE="0", SLURM_CPUS_PER_TASK="8")
        options = (self.folder / "srun.log").read_text().split()
        self.assertIn("--cpus-per-task=8", options)  # srun does not inherit it from sbatch
        self.assertIn("--distribution=block", options)  # ranks of a node are neighbors, so they exchange within it
        self.assertEqual(options[options.index("--threads") + 1], "8")


if __name__ == "__main__":
    unittest.main(verbosity=1)
