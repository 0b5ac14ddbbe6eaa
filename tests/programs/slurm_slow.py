"""Slurm with four nodes: a slurmd in each of four network namespaces (Debian: slurmctld, slurmd, munge), and what srun,
mpirun and mpiexec start there. Needs root."""

import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import contract
import multi_worker
import network

BIN = contract.BIN
NODES = 4
NEEDED = ["slurmctld", "slurmd", "munged", "srun", "salloc", "sbatch", "scontrol", "sinfo", "ip", "unshare"]
CONFIGURATION = """
ClusterName=lockstep
SlurmctldHost=n1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName=n[1-4] NodeAddr=10.77.0.[1-4] CPUs=8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# A stand-in for torchrun: one a node, each of which starts two workers.
TORCHRUN = """#!/bin/sh
export MASTER_ADDR=n1 MASTER_PORT=29500 WORLD_SIZE=6 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none
export TORCHELASTIC_USE_AGENT_STORE=True GROUP_RANK=$SLURM_NODEID
RANK=$((2 * SLURM_NODEID)) LOCAL_RANK=0 "$@" &
RANK=$((2 * SLURM_NODEID + 1)) LOCAL_RANK=1 "$@" && wait $!
"""


class Cluster:
    """A controller on n1 and the daemons of n1 to n4. `command` runs something on n1."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        self.network = network.Namespaces(NODES)
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder))
        # No limits on the tasks, and so no control groups, which a container may lack.
        (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\n")
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"10.77.0.{i} n{i}\n" for i in range(1, NODES + 1)))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        shutil.chown(folder, "root", "root")
        self.daemon("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key",
                    f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed")
        self.until(lambda: (folder / "munge.socket").exists())
        self.daemon(*self.command(0, "slurmctld", "-D", "-f", folder / "slurm.conf"))
        for node in range(NODES):
            (folder / f"spool-n{node + 1}").mkdir()
            self.daemon(*self.command(node, "slurmd", "-D", "-N", f"n{node + 1}", "-f", folder / "slurm.conf"))
        self.until(lambda: self.states() == {"idle"})

    def command(self, node, *command):
        """On a node: its network, its name, and the cluster's host names."""
        script = 'mount --make-rprivate /; mount --bind "$0" /etc/hosts; hostname "$1"; shift; exec "$@"'
        return self.network.command(node, "unshare", "-m", "-u", "bash", "-c", script, self.folder / "hosts", f"n{node + 1}",
                                    "env", f"SLURM_CONF={self.folder}/slurm.conf", *command)

    def daemon(self, *command):
        with (self.folder / "daemons.log").open("ab") as log:
            self.daemons.append(subprocess.Popen([str(a) for a in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                 start_new_session=True))

    def states(self):
        done = subprocess.run([str(a) for a in self.command(0, "sinfo", "--noheader", "--format=%t")], capture_output=True,
                              text=True, timeout=60)
        return set(done.stdout.split()) if done.returncode == 0 else None

    def until(self, condition, limit=120):
        end = time.monotonic() + limit
        while not condition():
            dead = [d for d in self.daemons if d.poll() is not None]
            if dead or time.monotonic() > end:
                logs = "".join(p.read_text(errors="replace")[-3000:] for p in sorted(self.folder.glob("*.log")))
                raise AssertionError(f"the cluster did not start: {[d.args for d in dead]}\n{logs}")
            time.sleep(0.2)

    def remove(self):
        for daemon in reversed(self.daemons):
            daemon.kill()
            daemon.wait(20)
        self.network.remove()  # with what still runs on its nodes


class Slurm(multi_worker.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(subprocess.run(["mktemp", "-d", "/tmp/lockstep-slurm-XXXXXX"], capture_output=True, text=True,
                                                 check=True).stdout.strip())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        network.remove_namespaces_of_the_dead()
        cls.cluster = Cluster(cls.folder)
        cls.addClassCleanup(cls.cluster.remove)

    def setUp(self):
        super().setUp()
        self.images = self.data()
        self.options = ["--data", self.images, "--epochs", "1", "--threads", "1", "--quiet"]
        self.job = [BIN / "mnist_multi_worker", *self.options]
        self.cluster.until(lambda: self.cluster.states() == {"idle"})

    def on_first(self, *command, **variables):
        variables = {"LOCKSTEP_SECRET": network.SECRET, "LOCKSTEP_RENDEZVOUS_TIMEOUT": "30", **variables}
        return self.start(*self.cluster.command(0, *command), **variables)

    def script(self, name, text):
        path = self.dir / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def trains(self, workers, *command, report="report.json", **variables):
        """All workers join, whose number the report has."""
        path = self.dir / report
        self.ends(self.on_first(*command, "--report", path, **variables), 0)
        self.assertEqual(self.report_of(report)["workers"], workers)

    def test_a_step(self):
        self.trains(3, "srun", "-N3", "-n3", *self.job)
        self.trains(5, "srun", "-N3", "-n5", "--distribution=cyclic", *self.job)

    def test_a_step_over_a_heterogeneous_allocation(self):
        self.trains(4, "salloc", "-N1", "-n2", ":", "-N2", "-n2", "srun", "--het-group=0,1", *self.job)

    def test_rank_0_is_not_on_the_first_node(self):
        hosts = self.script("hosts", "n3\nn1\nn2\n")
        self.trains(3, "srun", "-n3", "--distribution=arbitrary", *self.job, SLURM_HOSTFILE=str(hosts))
        # Only srun's machine can read the file.
        own = self.script("own-hosts", "")
        job = self.on_first("sh", "-c", f'mount --bind {hosts} {own}; exec srun -n3 --distribution=arbitrary "$@"', "sh",
                            *self.job, SLURM_HOSTFILE=str(own), LOCKSTEP_RENDEZVOUS_TIMEOUT="10")
        self.assertNotEqual(job.wait(), 0)
        self.assertRegex(job.stderr(), "Slurm: rank 0 is on n3, not on n1, the first host of SLURM_STEP_NODELIST; set "
                                       r"LOCKSTEP_COORDINATOR=n3:\d+ on all ranks")

    def test_torchrun_inside_srun(self):
        torchrun = self.script("torchrun", TORCHRUN)
        self.trains(6, "srun", "-N3", "--ntasks-per-node=1", torchrun, *self.job)

    def test_mpich_in_an_allocation(self):
        if not shutil.which("mpiexec.hydra"):
            self.skipTest("needs mpiexec.hydra (Debian: mpich)")
        self.trains(6, "salloc", "-N3", "-n6", "mpiexec.hydra", "-n", 6, *self.job)

    def test_open_mpi_in_an_allocation(self):
        if not shutil.which("mpirun.openmpi"):
            self.skipTest("needs mpirun.openmpi (Debian: openmpi-bin)")
        self.trains(6, "salloc", "-N3", "-n6", "mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "-n", 6,
                    *self.job)

    def test_two_steps_at_once(self):
        both = self.script("both", f"""#!/bin/sh
srun --overlap -N2 -n2 "$@" --report {self.dir}/one.json & srun --overlap -N2 -n2 "$@" --report {self.dir}/two.json && wait $!
""")
        self.ends(self.on_first("salloc", "-N2", "-n4", both, *self.job), 0)
        for name in ("one.json", "two.json"):
            self.assertEqual(self.report_of(name)["workers"], 2)

    def test_lockstep_run_in_an_allocation(self):
        self.trains(4, "salloc", "-N2", "-n4", BIN / "lockstep-run", *self.job)

    def test_the_script_of_the_documentation(self):
        script = contract.ROOT / "packaging" / "deployment" / "slurm.sh"
        (self.dir / "mnist_multi_worker").symlink_to(BIN / "mnist_multi_worker")
        (self.dir / "mnist").symlink_to(self.images)
        secret = self.dir / "lockstep.secret"
        secret.write_text(network.SECRET)
        secret.chmod(0o600)
        job = self.on_first("sbatch", "--wait", "--cpus-per-task=1", f"--chdir={self.dir}",
                            f"--output={self.dir}/job.log", script, HOME=str(self.dir), LOCKSTEP_SECRET="")
        self.assertEqual(job.wait(600), 0, (self.dir / "job.log").read_text())
        self.assertTrue(any((self.dir / "run1").iterdir()))


if __name__ == "__main__":
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        print("left out: " + (f"needs {', '.join(missing)}; apt install slurmctld slurmd slurm-client munge iproute2" if missing
                              else "needs root, for network namespaces and slurmd"))
        sys.exit(4)
    unittest.main(verbosity=1)
