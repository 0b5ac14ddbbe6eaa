"""lockstep-run on several hosts: -H, --hostfile, Slurm. The remote shell is a script that runs the command here.

The hosts' names end in .invalid, which no network has, so that none of them is this machine.
"""

import json
import os
import pathlib
import random
import re
import signal
import time
import unittest

import multi_worker
import network

BIN = multi_worker.BIN
DEADLINE = multi_worker.DEADLINE
# Like ssh it runs a command line, and passes no variables on. The marker finds what is left over.
SHELL = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
host=$1
shift
[ "$host" = down.invalid ] && echo "ssh: connect to host down.invalid: no route" >&2 && exit 255
env -i PATH="$PATH" TEST_MARKER="$TEST_MARKER" HOST="$host" sh -c "$*"
"""
# A connection whose end nobody sees: `sleep` holds the agent's input open. It has no marker.
DEAD_SHELL = """#!/bin/sh
folder=$(dirname "$0")
host=$1
shift
mkfifo "$folder/fifo"
exec 3<&0
env -i sleep 100 3<&- >"$folder/fifo" 2>/dev/null &
tee "$folder/input" <&3 >"$folder/fifo" &
exec 3<&-
env -i PATH="$PATH" TEST_MARKER="$TEST_MARKER" HOST="$host" sh -c "$*" <"$folder/fifo"
"""
SSH = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
while [ "${1#-}" != "$1" ]; do shift 2; done
host=$1
shift
env -i PATH="$PATH" TEST_MARKER="$TEST_MARKER" HOST="$host" sh -c "$*"
"""
# An sshd refuses connections while ten have not authenticated yet. It takes a moment.
BUSY_SSHD = """#!/bin/sh
folder=$(dirname "$0")/open
mkdir -p "$folder"
touch "$folder/$$"
if [ $(ls "$folder" | wc -l) -gt 10 ]; then
  rm "$folder/$$"
  echo "kex_exchange_identification: read: Connection reset by peer" >&2
  exit 255
fi
sleep 0.1
rm "$folder/$$"
shift
exec sh -c "$*"
"""
# The first two connections to b.invalid are refused.
MOODY_SSHD = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
host=$1
shift
[ $host = b.invalid ] && [ $(grep -c "^b" "$(dirname "$0")/calls") -le 2 ] && exit 255
HOST=$host exec sh -c "$*"
"""
# A name server that does not answer.
NAMES = """
#include <stdio.h>
#include <unistd.h>
int getaddrinfo(const char* name, const char* service, const void* hints, void** found) {
  fprintf(stderr, "looking up %s\\n", name);
  return sleep(100) + 1;
}
"""
# A name server that takes longer than a worker tries to listen at a busy address, and an address that is busy.
LATE_NAMES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
int getaddrinfo(const char* name, const char* service, const void* hints, void** found) {
  if (name[0] == 'l') usleep(1100000);
  return ((int (*)(const char*, const char*, const void*, void**))dlsym(RTLD_NEXT, "getaddrinfo"))(name, service, hints, found);
}
int bind(int socket, const void* address, unsigned size) {
  static int calls;
  if (calls++ == 0) return errno = EADDRINUSE, -1;
  return ((int (*)(int, const void*, unsigned))dlsym(RTLD_NEXT, "bind"))(socket, address, size);
}
"""
SRUN = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
while [ "$1" != sh ]; do
  case $1 in --nodelist=*) host=${1#--nodelist=} ;; esac
  shift
done
exec env -i PATH="$PATH" TEST_MARKER="$TEST_MARKER" HOST="$host" "$@"
"""


class Case(multi_worker.Case):
    def setUp(self):
        super().setUp()
        self.shell = self.script("remote-shell", SHELL)

    def script(self, name, text):
        path = self.dir / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def launch(self, options, script, *arguments, **variables):
        return self.start(BIN / "lockstep-run", *options, "sh", "-c", script, "-", *arguments,
                          **{"LOCKSTEP_RSH": str(self.shell), **variables})

    def calls(self):
        return (self.dir / "calls").read_text().splitlines()


class Hosts(Case):
    hosts = ["-H", "a.invalid:2,b.invalid:1"]

    def test_each_host_gets_its_workers_and_they_get_one_job(self):
        script = 'echo "$HOST|$LOCKSTEP_RANK|$TF_CONFIG|$LOCKSTEP_JOB_ID|$(cat $LOCKSTEP_SECRET_FILE)|$(pwd)|$*|$LOCKSTEP_WIRE|$A|$B|$C$LOCKSTEP_MIN_WORKERS"'
        job = self.launch([*self.hosts, "--port", 4000, "-x", "A=a b", "-x", "B"], script, "x y", "it's",
                          LOCKSTEP_WIRE="sealed", LOCKSTEP_COORDINATOR="elsewhere:1", LOCKSTEP_MIN_WORKERS="1", B="b", C="c")
        self.ends(job, 0)
        lines = dict(re.match(r"\[(\d)\] (.*)", line).groups() for line in job.stdout().splitlines())
        self.assertEqual(sorted(lines), ["0", "1", "2"])
        found = {int(rank): line.split("|") for rank, line in lines.items()}
        workers = ["a.invalid:4000", "a.invalid:4001", "b.invalid:4002"]
        for rank, (host, own, config, *_, folder, arguments, wire, a, b, c) in found.items():
            self.assertEqual((host + f":{4000 + rank}", own), (workers[rank], str(rank)))
            self.assertEqual(json.loads(config), {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
            self.assertEqual((arguments, wire, a, b, c), ("x y it's", "sealed", "a b", "b", ""))
            self.assertEqual(folder, os.getcwd())
        for part in (3, 4):  # the job's id and the secret
            self.assertEqual(len({line[part] for line in found.values()}), 1)
        secret = found[0][4]
        self.assertRegex(secret, r"^[0-9a-f]{64}$")
        self.assertNotIn(secret, "\n".join(self.calls()))
        self.assertEqual(sorted(call.split()[0] for call in self.calls()), ["a.invalid", "a.invalid", "b.invalid"])
        self.no_process_is_left()

    def test_the_secret_is_not_in_an_environment_or_a_command_line(self):
        # grep gets the secret from the file, since the other workers find its command line.
        job = self.launch(self.hosts, 'for p in /proc/[0-9]*; do grep -qa "$TEST_MARKER" $p/environ 2>/dev/null && '
                                      'cat $p/cmdline $p/environ 2>/dev/null | tr "\\0" "\\n" >$1.$LOCKSTEP_RANK && '
                                      'grep -acf $LOCKSTEP_SECRET_FILE $1.$LOCKSTEP_RANK; '
                                      'grep -ax -e --agent $1.$LOCKSTEP_RANK; done; echo searched', self.dir / "words")
        self.ends(job, 0)
        self.assertEqual(job.stdout().count("searched"), 3)
        self.assertNotRegex(job.stdout(), r"\] [1-9]")
        self.assertRegex(job.stdout(), r"\] 0\n")  # processes were found
        self.assertIn("] --agent\n", job.stdout())  # and their command lines

    def test_a_failure_ends_all_and_names_the_host(self):
        job = self.launch(self.hosts, "[ $LOCKSTEP_RANK = 2 ] && exit 7; sleep 100")
        self.ends(job, 7)
        self.assertEqual(job.last_line(), "lockstep-run: rank 2 failed first, with exit code 7 on b.invalid")
        self.no_process_is_left()

    def test_a_killed_worker_gives_its_signal(self):
        job = self.launch(self.hosts, "[ $LOCKSTEP_RANK = 1 ] && kill -9 $$; sleep 100")
        self.ends(job, 137)
        self.assertIn("rank 1 failed first, with exit code 137 on a.invalid", job.last_line())
        self.no_process_is_left()

    def test_a_worker_of_an_elastic_job_is_started_again_on_its_host(self):
        script = ('echo "$HOST $LOCKSTEP_RESTART $LOCKSTEP_MIN_WORKERS $TF_CONFIG $LOCKSTEP_JOB_ID $(cat $LOCKSTEP_SECRET_FILE)"; '
                  '[ $LOCKSTEP_RANK = 2 ] && { [ $LOCKSTEP_RESTART = 0 ] && kill -9 $$; touch "$1"; }; '
                  'while [ ! -e "$1" ]; do sleep 0.02; done')
        job = self.launch([*self.hosts, "--elastic", 2, "--max-restarts", 1, "--restart-delay", 0], script, self.dir / "again")
        self.ends(job, 0)
        self.assertEqual(job.last_line(), "lockstep-run: rank 2 ended, with exit code 137 on b.invalid; restart 1 of 1, of this worker "
                                          "alone, in 0.0 s")
        first, second = (line for line in job.stdout().splitlines() if line.startswith("[2]"))
        self.assertEqual(first.replace("b.invalid 0 2", "b.invalid 1 2"), second)
        self.assertEqual(sorted(call.split()[0] for call in self.calls()), ["a.invalid", "a.invalid", "b.invalid", "b.invalid"])
        self.no_process_is_left()

    def test_a_worker_of_an_elastic_job_waits_for_its_port_after_a_slow_lookup(self):
        """The worker before it on its host may still have the port."""
        port = random.randrange(20000, 30000)  # no connection of another test takes it during the lookup
        config = {"cluster": {"worker": ["127.0.0.1:1", f"localhost:{port}"]}, "task": {"type": "worker", "index": 1}}
        job = self.start(BIN / "mnist_multi_worker", "--data", self.data(), "--epochs", 1, TF_CONFIG=json.dumps(config),
                         LOCKSTEP_MIN_WORKERS="1", LOCKSTEP_RENDEZVOUS_TIMEOUT="2", LD_PRELOAD=str(self.library(LATE_NAMES)))
        self.ends(job, 3)
        self.assertIn("rank 0 (127.0.0.1:1) did not join within 2 s", job.last_line())

    def test_a_host_that_is_down_is_named(self):
        job = self.launch(["-H", "a.invalid,down.invalid"], "sleep 100")
        self.ends(job, 255)
        self.assertIn("[1] ssh: connect to host down.invalid: no route", job.stderr())
        self.assertIn("down.invalid is not reachable by the remote shell, or it lost the connection (ssh down.invalid true)",
                      job.last_line())
        self.assertEqual(len([call for call in self.calls() if call.startswith("down")]), 3)
        self.no_process_is_left()

    def test_many_workers_start_on_a_host(self):
        self.shell = self.script("busy-sshd", BUSY_SSHD)
        job = self.launch(["-H", "a.invalid:32"], "echo $LOCKSTEP_RANK")
        self.ends(job, 0)
        self.assertEqual(sorted(job.stdout().splitlines()), sorted(f"[{i}] {i}" for i in range(32)))
        self.assertEqual(job.stderr(), "")

    def test_a_connection_that_is_refused_is_tried_again(self):
        self.shell = self.script("moody-sshd", MOODY_SSHD)
        job = self.launch(["-H", "a.invalid,b.invalid"], "echo on $HOST")
        self.ends(job, 0)
        self.assertEqual(sorted(job.stdout().splitlines()), ["[0] on a.invalid", "[1] on b.invalid"])
        self.assertEqual(job.stderr(), "".join(f"lockstep-run: rank 1: b.invalid did not accept the connection; attempt {n} of 3\n"
                                               for n in (2, 3)))

    def test_a_worker_that_has_started_is_not_started_twice(self):
        job = self.launch(["-H", "a.invalid"], "exit 255")
        self.ends(job, 255)
        self.assertEqual(len(self.calls()), 1)

    def test_a_signal_ends_a_job_whose_workers_wait_for_connections(self):
        self.shell = self.script("slow-sshd", '#!/bin/sh\nfolder=$(dirname "$0")\necho "$@" >>"$folder/calls"\n'
                                              'while [ ! -e "$folder/end" ]; do sleep 0.05; done\nexit 255\n')
        job = self.launch(["-H", "a.invalid:10"], "true")
        self.await_in(lambda: str(len(self.calls())) if (self.dir / "calls").exists() else "", job, "8")
        job.popen.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        (self.dir / "end").touch()
        self.assertEqual(job.wait(15), 143)
        self.assertEqual(len(self.calls()), 8)
        self.no_process_is_left()

    def test_a_start_up_file_may_read_a_line(self):
        shell = '#!/bin/sh\nshift\nexec sh -c "READS $*"\n'
        self.shell = self.script("reading-shell", shell.replace("READS", "read line; read line;"))
        job = self.launch(["-H", "a.invalid"], "echo ready")
        self.ends(job, 0)
        self.assertEqual(job.stdout(), "[0] ready\n")
        self.shell = self.script("reading-shell", shell.replace("READS", "head -n 20 >/dev/null;"))
        job = self.launch(["-H", "a.invalid"], "echo ready")
        self.ends(job, 2)
        self.assertIn("something here reads standard input before this program", job.stderr())

    def test_no_page_that_a_core_dump_has_holds_the_secret(self):
        job = self.launch(self.hosts, 'cat $LOCKSTEP_SECRET_FILE >"$1"; echo ready; sleep 100', self.dir / "secret")
        self.await_in(lambda: str(job.stdout().count("\n")), job, "3")
        secret = (self.dir / "secret").read_bytes().strip()
        self.assertRegex(secret, rb"^[0-9a-f]{64}$")
        commands = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.left_over()}
        launched = [pid for pid, words in commands.items() if words.split(b"\0")[0].endswith(b"lockstep-run")]
        self.assertEqual(len(launched), 4)
        for pid in launched:
            memory = self.dumped(pid)
            self.assertIn(self.marker.encode(), memory)  # of its environment: the pages were found
            self.assertEqual(memory.count(secret), 0, commands[pid])
        job.popen.send_signal(signal.SIGTERM)
        self.ends(job, 143)

    def dumped(self, pid):
        """Private memory of a process, without the pages that are excluded from core dumps."""
        found = b""
        with open(f"/proc/{pid}/smaps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for block in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw.p .*\n(?:[A-Z].*\n)*?VmFlags:(.*)\n", maps.read(), re.MULTILINE):
                first, last = (int(address, 16) for address in block[:2])
                if "dd" not in block[2].split():
                    memory.seek(first)
                    found += memory.read(last - first)
        return found

    def test_output_that_nobody_reads_does_not_hold_up_signals(self):
        job, _ = multi_worker.Launcher.flood(self, *self.hosts, LOCKSTEP_RSH=str(self.shell))
        job.popen.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(15), 143, job.stderr())
        self.no_process_is_left()

    def test_signals_reach_the_workers_which_end_in_their_own_way(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(number):
                name = signal.Signals(number).name.removeprefix("SIG")
                job = self.launch(self.hosts, f"trap 'echo saved; exit {code}' {name}; echo ready; while :; do sleep 0.05; done")
                for rank in range(3):
                    self.await_text(job, f"[{rank}] ready")
                job.popen.send_signal(number)
                self.ends(job, code)
                self.assertEqual(job.stdout().count("saved"), 3)
                self.no_process_is_left()

    def test_workers_that_ignore_signals_are_killed(self):
        job = self.launch(["-H", "a.invalid"], "trap '' TERM; echo ready; while :; do sleep 0.05; done")
        self.await_text(job, "[0] ready")
        job.popen.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # pending signals of one number are one
        job.popen.send_signal(signal.SIGTERM)
        self.ends(job, 143)
        self.no_process_is_left()

    def test_no_worker_outlives_a_launcher_that_is_killed(self):
        job = self.launch(self.hosts, "trap 'echo ended >>$1; exit' TERM; echo ready; while :; do sleep 0.05; done", self.dir / "ends")
        for rank in range(3):
            self.await_text(job, f"[{rank}] ready")
        job.popen.kill()
        job.popen.wait(10)
        self.no_process_is_left(15)
        self.assertEqual((self.dir / "ends").read_text(), "ended\n" * 3)

    def test_no_worker_outlives_a_connection_that_dies_without_an_end(self):
        """Its input stays open. The agent waits for 20 seconds."""
        self.shell = self.script("dead-shell", DEAD_SHELL)
        job = self.launch(["-H", "a.invalid"], "trap 'echo ended >$1; exit' TERM; echo ready; while :; do sleep 0.05; done", self.dir / "end")
        self.await_text(job, "[0] ready")
        self.await_in(lambda: (self.dir / "input").read_text(), job, "\ngo\nalive\n")
        job.popen.kill()
        job.popen.wait(10)
        self.no_process_is_left(DEADLINE)
        self.assertEqual((self.dir / "end").read_text(), "ended\n")

    def test_an_ssh_with_options_gets_those_that_keep_it_from_asking_too(self):
        ssh = self.script("ssh", SSH)
        job = self.launch(["-H", "a.invalid"], "echo on $HOST", LOCKSTEP_RSH=f"{ssh} -p 2200 -o ConnectTimeout=90")
        self.ends(job, 0)
        self.assertEqual(job.stdout(), "[0] on a.invalid\n")
        self.assertRegex(self.calls()[0], r"^-p 2200 -o ConnectTimeout=90 -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 "
                                          r"-o ServerAliveCountMax=3 a\.invalid exec sh -c '.*' '/.*/lockstep-run'$")

    def test_checkpoints_on_another_host_are_not_looked_for(self):
        """A folder of that name on this machine means nothing, so only --max-restarts ends the job."""
        (self.dir / "run/step-5").mkdir(parents=True)
        job = self.launch(["-H", "a.invalid", "--max-restarts", 3, "--restart-delay", 0], "exit 1", "--checkpoint", self.dir / "run")
        self.ends(job, 1)
        self.assertEqual(job.stderr().count("in 0.0 s, from the newest checkpoint on a.invalid\n"), 3)
        self.assertTrue(job.last_line().endswith("no restart is left of --max-restarts 3"), job.last_line())

    def test_a_check_lets_all_workers_report(self):
        """The first failure is the remote shell's, at once; the chief reports at the end of its wait."""
        job = self.launch(["-H", "a.invalid,down.invalid", "--check"], "true", LOCKSTEP_RENDEZVOUS_TIMEOUT="4")
        self.ends(job, 1)
        self.assertIn("problem: rank 0", job.stderr())
        self.assertIn("verdict: ", job.stderr())
        self.assertIn("down.invalid is not reachable", job.last_line())
        self.no_process_is_left()

    def test_a_check_waits_longer_for_other_hosts(self):
        for options, given, expected in (([], [], "--wait 15"), ([], ["--wait", "4"], "--wait 4"), (["-x", "LOCKSTEP_RENDEZVOUS_TIMEOUT=4"], [], "")):
            with self.subTest(given):
                doctor = self.script("lockstep-doctor", '#!/bin/sh\necho "got $*"\n')
                job = self.start(BIN / "lockstep-run", "-H", "a.invalid", *options, "--check", doctor, *given, LOCKSTEP_RSH=str(self.shell))
                self.ends(job, 0)
                self.assertEqual(job.stdout(), f"got {expected}\n")

    def test_a_signal_ends_the_look_up_of_names(self):
        shim = self.library(NAMES)
        job = self.launch(self.hosts, "true", LD_PRELOAD=str(shim))
        self.await_line(job, "looking up a.invalid")
        job.popen.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(), -signal.SIGINT)
        self.no_process_is_left()

    def test_a_job_is_started_again_on_its_hosts(self):
        job = self.launch([*self.hosts, "--max-restarts", 1, "--restart-delay", 0],
                          'echo start $LOCKSTEP_RESTART; [ $LOCKSTEP_RESTART-$LOCKSTEP_RANK = 0-1 ] && exit 1; [ $LOCKSTEP_RESTART = 1 ] || sleep 100',
                          LOCKSTEP_RESTART="9")  # of a launcher of this one
        self.ends(job, 0)
        self.assertEqual(job.stdout().count("start 1"), 3)

    def test_logs_and_a_limit_on_the_workers(self):
        job = self.launch([*self.hosts, "-n", 2, "--log-dir", self.dir / "logs"], "echo on $HOST")
        self.ends(job, 0)
        self.assertEqual(sorted(p.name for p in (self.dir / "logs").iterdir()), ["rank-0.log", "rank-1.log"])
        self.assertEqual((self.dir / "logs/rank-1.log").read_text(), "on a.invalid\n")

    def test_programs_and_folders_that_a_host_lacks_are_named(self):
        job = self.start(BIN / "lockstep-run", "-H", "a.invalid", "no-such-program", LOCKSTEP_RSH=str(self.shell))
        self.ends(job, 2)
        self.assertIn("[0] lockstep-run: no-such-program: not found", job.stderr())

    def test_workers_on_this_machine_need_no_remote_shell(self):
        job = self.launch(["-H", "127.0.0.1:2"], "echo $LOCKSTEP_RANK; cat $LOCKSTEP_SECRET_FILE")
        self.ends(job, 0)
        self.assertEqual(len(job.stdout().splitlines()), 4)
        self.assertFalse((self.dir / "calls").exists())
        job = self.launch(["-H", "localhost,a.invalid"], "true")
        self.assertEqual(job.wait(), 2)
        self.assertIn("localhost is this machine for each host", job.last_line())


class Files(Case):
    def test_a_host_file(self):
        file = self.dir / "hosts"
        file.write_text("# the cluster\na.invalid slots=2 max_slots=4\n\nb.invalid:1   # another\nb.invalid\n")
        job = self.launch(["--hostfile", file], "echo $HOST")
        self.ends(job, 0)
        self.assertEqual(sorted(job.stdout().splitlines()), ["[0] a.invalid", "[1] a.invalid", "[2] b.invalid", "[3] b.invalid"])
        job = self.launch([], "echo $HOST", PBS_NODEFILE=str(file))
        self.ends(job, 0)
        self.assertEqual(len(job.stdout().splitlines()), 4)

    def test_an_allocation_of_slurm_uses_srun(self):
        self.script("srun", SRUN)
        variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2].invalid", "SLURM_TASKS_PER_NODE": "2,1",
                     "PATH": f"{self.dir}:{os.environ['PATH']}", "LOCKSTEP_RSH": ""}
        job = self.launch([], "echo $HOST $LOCKSTEP_LAUNCHER", **variables)
        self.ends(job, 0)
        self.assertEqual(sorted(job.stdout().splitlines()),
                         ["[0] n1.invalid tf_config", "[1] n1.invalid tf_config", "[2] n2.invalid tf_config"])
        for call in self.calls():
            self.assertRegex(call, r"^--nodes=1 --ntasks=1 --nodelist=n[12]\.invalid --overlap --quiet --cpu-bind=none sh -c ")
        job = self.launch(["-n", 1], "echo here $HOST", **variables)  # -n alone stays on this machine
        self.ends(job, 0)
        self.assertEqual(job.stdout(), "[0] here\n")

    def test_where_mpirun_or_srun_starts_the_workers_it_becomes_one_of_them(self):
        mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
        step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
        for variables in (mpi, step, {"PMI_RANK": "1", "PMI_SIZE": "2"}):
            with self.subTest(variables):
                job = self.launch(["-x", "A=b"], 'echo "$$ $A $1$LOCKSTEP_RANK"', "c", **variables)
                self.ends(job, 0)
                self.assertEqual(job.stdout(), f"{job.popen.pid} b c\n")
                job = self.launch(["--max-restarts", 1], "true", **variables)
                self.ends(job, 2)
                self.assertRegex(job.last_line(), "--max-restarts: (mpirun|srun) starts the workers here")
        doctor = self.script("lockstep-doctor", '#!/bin/sh\necho "got $*"\n')
        job = self.start(BIN / "lockstep-run", "--check", doctor, "--wait", 4, **mpi)
        self.ends(job, 0)
        self.assertEqual(job.stdout(), "got --wait 4\n")
        job = self.launch([], "true", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1")
        self.ends(job, 2)
        self.assertIn("-n: missing", job.stderr())

    def test_a_heterogeneous_allocation_is_refused_by_name(self):
        groups = {"SLURM_JOB_NODELIST_HET_GROUP_0": "a.invalid,b.invalid", "SLURM_JOB_NODELIST_HET_GROUP_1": "c.invalid"}
        # A batch script has the variables of the first component, too.
        for first in ({}, {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a.invalid,b.invalid", "SLURM_TASKS_PER_NODE": "1(x2)"}):
            with self.subTest(**first):
                job = self.launch([], "true", **groups, **first)
                self.ends(job, 2)
                self.assertIn("SLURM_JOB_NODELIST_HET_GROUP_0 is set", job.stderr())

    def test_exported_variables_on_this_machine(self):
        job = self.launch(["-n", 1, "-x", "A=a b", "-x", "B", "-x", "LOCKSTEP_RANK=5"], "echo $A-$B-$LOCKSTEP_RANK", B="b")
        self.ends(job, 0)
        self.assertEqual(job.stdout(), "[0] a b-b-0\n")

    def test_wrong_descriptions(self):
        bad = self.dir / "bad"
        bad.write_text("a.invalid\nb.invalid cores=2\n")
        empty = self.dir / "empty"
        empty.write_text("# nobody\n")
        many = self.dir / "many"
        many.write_text("a.invalid slots=1025\n")
        for options, words in ((["-H", "a:0"], 'a:0'), (["-H", "a:x"], "a:x"), (["-H", "a b"], "a b"), (["-H", ","], "-H"),
                               (["-H", "a:2", "-n", 3], "only 2 slots"), (["--hostfile", bad], "bad line 2:"),
                               (["--hostfile", many], 'many line 1: "slots=1025": "1025" is not a number'),
                               (["--hostfile", empty], "names no host"), (["--hostfile", self.dir], "is a folder"), (["--hostfile", self.dir / "none"], "No such file"),
                               (["-H", "a", "--hostfile", bad], "excludes"), (["-H", "a", "-x", "NOT_SET"], "-x NOT_SET"),
                               (["-n", 1, "-x", "NOT_SET"], "-x NOT_SET"), (["-n", 1, "-x", "=1"], "-x =1"),
                               (["-H", "a", "--port", 70000], "--port"), ([], "-n: missing")):
            with self.subTest(options):
                job = self.launch(options, "true")
                self.ends(job, 2)
                self.assertIn(words, job.stderr())


@network.needs_namespaces
class Namespaces(Case):
    def test_workers_on_two_hosts_train_one_model(self):
        hosts = network.Namespaces(2)
        self.addCleanup(hosts.remove)
        self.script("remote-shell", '#!/bin/sh\nhost=$1\nshift\nexec ip netns exec '
                                    f'{hosts.names[0].rsplit("-", 1)[0]}-$((${{host##*.}} - 1)) sh -c "$*"\n')
        options = ["--data", self.data(), "--epochs", 1, "--virtual-shards", 2, "--quiet", "--threads", 1]
        one, _ = self.report("mnist", *options)
        job = self.start(BIN / "lockstep-run", "-H", ",".join(hosts.addresses), "mnist_multi_worker", *options, "--report",
                         self.dir / "r.json", LOCKSTEP_RSH=str(self.shell))
        self.ends(job, 0)
        report = self.report_of("r.json")
        self.assertEqual((report["workers"], report["weights_sha256"]), (2, one["weights_sha256"]))


if __name__ == "__main__":
    unittest.main(verbosity=1)
