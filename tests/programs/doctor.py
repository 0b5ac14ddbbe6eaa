"""lockstep-doctor and lockstep-run --check, with real faults where this user can make them.

tests/tools/doctor_diagnose.cpp has a fault of each kind as facts.
"""

import json
import re
import shutil
import socket
import struct
import subprocess
import time
import unittest

import multi_worker
import network
from multi_worker import free_ports, tf_config

BIN = multi_worker.BIN
PATIENT = "40"  # seconds for a join that succeeds, on a busy machine
SHORT = "6"  # for one that fails, after the others have started
# The real-time clock ten minutes ahead, for the program that is started with it.
CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec* time) {
  const int result = (int)syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME && result == 0) time->tv_sec += 600;
  return result;
}
"""


# Like a firewall that drops the packets of an open connection: a measurement begins with a 'p'.
LOSS = """
#define _GNU_SOURCE
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t send(int to, const void* bytes, size_t count, int flags) {
  static int first = -1;
  const int is_ping = count == 1 && *(const char*)bytes == 'p' && (flags & MSG_DONTWAIT);
  if (is_ping && first == -1) first = to;
  if (is_ping && to == first) return 1;
  return syscall(SYS_sendto, to, bytes, count, flags, NULL, 0);
}
"""


class Case(multi_worker.Case):
    def secret(self, text="a secret of this test, and of no other"):
        path = self.dir / f"secret-{len(list(self.dir.iterdir()))}"
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def doctors(self, count, *options, wait=PATIENT, own=None, prefix=None, **variables):
        """A doctor for each rank; own(rank): options and variables of that rank; prefix(rank): a command before it."""
        ports = free_ports(count)
        jobs = []
        for rank in range(count):
            arguments, extra = own(rank) if own else ([], {})
            jobs.append(self.start(*(prefix(rank) if prefix else []), BIN / "lockstep-doctor", "--wait", wait, *options, *arguments,
                                   **{"TF_CONFIG": tf_config(ports, rank), **variables, **extra}))
        return jobs

    def finding(self, job, where, what, remedy, kind="problem", output=None):
        text = job.stdout() if output is None else output
        for found in re.findall(rf"^{kind}: (.*)\n  remedy: (.*)$", text, re.MULTILINE):
            if re.search(where, found[0]) and what in found[0] and remedy in found[1]:
                return
        self.fail(f"no {kind} on {where}: {what}; {remedy} in\n{text}\n{job.stderr()}")

    def all_end(self, jobs, code):
        for job in jobs:
            self.assertEqual(job.wait(120), code, job.stdout() + job.stderr())


class Verdicts(Case):
    def test_four_workers_are_ready_to_train(self):
        """--check finds what the program would use in its options."""
        options = ["--data", self.data(), "--checkpoint", self.dir / "run", "--no-such-option"]
        job = self.start(BIN / "lockstep-run", "-n", 4, "--check", BIN / "mnist_multi_worker", *options,
                         LOCKSTEP_RENDEZVOUS_TIMEOUT=PATIENT)
        self.ends(job, 0)
        lines = job.stdout().splitlines()
        self.assertRegex(lines[0], r"^lockstep-doctor: 4 workers, from TF_CONFIG, chief 127\.0\.0\.1:\d+$")
        head = lines.index(next(line for line in lines if line.startswith("rank  host")))
        data = {line.split()[-1] for line in lines[head + 1 : head + 5]}
        self.assertEqual([line.split()[0] for line in lines[head + 1 : head + 5]], ["0", "1", "2", "3"])
        self.assertRegex(data.pop(), r"^[0-9a-f]{16}$")
        self.assertEqual(data, set())
        for a in range(4):
            for b in range(a + 1, 4):
                self.assertRegex(job.stdout(), rf"(?m)^{a} - {b}  +\d+\.\d\d ms  +\d+\.\d [MG]bit/s  +\d+\.\d [MG]bit/s$")
        self.assertEqual(lines[-1], "verdict: ready to train")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir() if p.name[0] == "."), [])  # the probe is removed

    def test_one_worker_without_a_job(self):
        job = self.start(BIN / "lockstep-doctor", "--save", self.dir)
        self.ends(job, 0)
        self.assertEqual(job.stdout().splitlines()[-1], "verdict: ready to train")

    def test_all_workers_have_the_exit_code_of_the_chief(self):
        jobs = self.doctors(3, "--min-disk", 1 << 40)
        self.all_end(jobs, 1)
        self.finding(jobs[0], "^rank 0 ", "is full", "free space")
        self.assertEqual([job.stdout() for job in jobs[1:]], ["", ""])

    def test_wrong_options_and_descriptions(self):
        for options, variables, words in ((["--wait", "x"], {}, "--wait"), (["stray"], {}, "stray"),
                                          ([], {"TF_CONFIG": "{"}, "TF_CONFIG"),
                                          ([], {"LOCKSTEP_WORLD_SIZE": "2", "LOCKSTEP_RANK": "0",
                                                "LOCKSTEP_COORDINATOR": "10.1.2.3:1000"}, "LOCKSTEP_SECRET_FILE"),
                                          ([], {"LOCKSTEP_MIN_WORKERS": "x"}, "LOCKSTEP_MIN_WORKERS"),
                                          ([], {"TF_CONFIG": tf_config([1, 2], 0), "LOCKSTEP_MIN_WORKERS": "3"}, "the 2 workers")):
            with self.subTest(words):
                job = self.start(BIN / "lockstep-doctor", *options, **variables)
                self.ends(job, 2)
                self.assertIn(words, job.stderr())


class Pairs(Case):
    def test_a_connection_that_does_not_answer_costs_only_its_own_pair(self):
        """Rank 1 loses what it sends over its first connection; the others wait for the end of that."""
        shim = self.library(LOSS)
        jobs = self.doctors(4, own=lambda rank: ([], {"LD_PRELOAD": str(shim)} if rank == 1 else {}))
        self.all_end(jobs, 1)
        self.finding(jobs[0], "^rank 1 .* and rank 2 ", "it was made, but then: ", "LOCKSTEP_PORT_RANGE")  # either end gives up first
        self.assertEqual(re.findall(r"(?m)^(\d - \d)  none$", jobs[0].stdout()), ["1 - 2"])


class Hosts(Case):
    def test_another_data_set(self):
        one = self.data()
        other = self.dir / "other"
        shutil.copytree(one, other)
        labels = other / "train-labels-idx1-ubyte"
        labels.write_bytes(labels.read_bytes()[:-1] + b"\x05")
        jobs = self.doctors(3, own=lambda rank: (["--data", other if rank == 1 else one], {}))
        self.all_end(jobs, 1)
        self.finding(jobs[0], r"^rank 1 \(host ", "; train-labels-idx1-ubyte differs", "copy one data set")

    def test_another_program(self):
        jobs = self.doctors(2, own=lambda rank: (["--program", BIN / ("lockstep-run" if rank else "lockstep-doctor")], {}))
        self.all_end(jobs, 1)
        self.finding(jobs[0], "^rank 1 ", "its program (1 file, ", "same build")

    def test_a_data_set_that_a_host_lacks(self):
        jobs = self.doctors(2, own=lambda rank: (["--data", self.dir / "none" if rank == 1 else self.dir], {}))
        self.all_end(jobs, 1)
        self.finding(jobs[0], "^rank 1 ", "none does not exist", "copy one data set")

    def test_a_clock_ten_minutes_off(self):
        shim = self.library(CLOCK)
        # Two workers of one machine have one clock, so rank 1 has an address of its own.
        jobs = self.doctors(2, LOCKSTEP_SECRET_FILE=self.secret(),
                            own=lambda rank: ([], {"LD_PRELOAD": str(shim), "LOCKSTEP_DATA_ADDRESS": "127.0.0.2"} if rank == 1 else {}))
        self.all_end(jobs, 1)
        self.finding(jobs[0], "^rank 1 ", "its clock is 600.0 s later than that of the chief", "NTP")

    def test_a_full_disk(self):
        full = self.dir / "full"
        full.mkdir()
        mount = f'mount -t tmpfs -o size=1m tmpfs "{full}" && exec "$@"'
        if subprocess.run(["unshare", "-m", "sh", "-c", mount, "-", "true"], capture_output=True, timeout=20).returncode != 0:
            self.skipTest("needs mounts, which this user cannot make")
        jobs = self.doctors(2, prefix=lambda rank: ["unshare", "-m", "sh", "-c", mount, "-"] if rank == 1 else [],
                            own=lambda rank: (["--save", full] if rank == 1 else [], {}))
        self.all_end(jobs, 1)
        self.finding(jobs[0], "^rank 1 ", f"the disk of {full} is full: ", "free space")

    def test_a_folder_that_cannot_be_written(self):
        job = self.start(BIN / "lockstep-doctor", "--save", "/proc")
        self.ends(job, 1)
        self.finding(job, "^rank 0 ", "/proc cannot be written: ", "save elsewhere")
        for option, value in (("--checkpoint", "/proc/run"), ("--save", "/proc/weights"), ("--checkpoint=/proc/run", "-")):
            with self.subTest(option):  # of a program
                job = self.start(BIN / "lockstep-run", "-n", 1, "--check", "program", option, value)
                self.ends(job, 1)
                self.assertRegex(job.stdout(), r"problem: rank 0 .*/proc.* cannot be written: ")

    def test_a_folder_for_votes_that_cannot_be_used(self):
        job = self.start(BIN / "lockstep-run", "-n", 2, "--elastic", 1, "--check", "program", LOCKSTEP_ELASTIC_DIRECTORY="/proc",
                         LOCKSTEP_RENDEZVOUS_TIMEOUT=PATIENT)
        self.ends(job, 1)
        self.finding(job, "^rank 0 ", "elastic: /proc/lockstep-", "a file system with locks")


class Joins(Case):
    def test_a_wrong_secret_is_reported_at_both_ends(self):
        jobs = self.doctors(3, wait=SHORT, own=lambda rank: ([], {"LOCKSTEP_SECRET_FILE": self.secret(
            "another secret, of 32 random bytes" if rank == 2 else "a secret of this test, and of no other")}))
        self.all_end(jobs, 1)
        for rank, what in ((2, "do not have the same secret"), (0, "did not prove that it has the job's secret")):
            self.finding(jobs[rank], f"^rank {rank}: ", what, "copy one secret file to all hosts", output=jobs[rank].stderr())
        for rank in (0, 1):
            self.finding(jobs[rank], f"^rank {rank}: rank 2 ", "did not join within 6 s", "see what that rank reports",
                         output=jobs[rank].stderr())

    def test_another_version_is_reported(self):
        ports = free_ports(2)
        jobs = [self.start(BIN / "lockstep-doctor", "--wait", SHORT, TF_CONFIG=tf_config(ports, 0))]
        deadline = time.monotonic() + multi_worker.DEADLINE
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", ports[0]), timeout=10)
                break
            except ConnectionRefusedError:
                self.assertIsNone(jobs[0].popen.poll(), jobs[0].stderr())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)

        version = subprocess.run([BIN / "lockstep-doctor", "--version"], capture_output=True, text=True, check=True, timeout=20).stdout.split()[1]

        def text(value):
            return struct.pack("<I", len(value)) + value.encode()

        # A worker's first words, by include/lockstep/cluster/network/hello.hpp.
        protocol = re.search(r'protocol = "([^"]+)"|protocol\{"([^"]+)"\}', "\n".join(
            p.read_text() for p in sorted((multi_worker.contract.ROOT / "include/lockstep/cluster/rendezvous").glob("*pp"))))
        fields = [("protocol", protocol[1] or protocol[2]), ("lockstep's version", "0.0.9")]
        body = text("") + b"\x00" + struct.pack("<I", 1) + struct.pack("<I", len(fields))
        body += b"".join(text(name) + text(value) for name, value in fields)
        with connection:
            connection.sendall(b"LKS1" + struct.pack("<IH", 2 + len(body), 1) + body)
            answer = connection.recv(4096)
        self.assertIn(b"lockstep's version", answer)  # what the other version gets to show
        self.all_end(jobs, 1)
        self.finding(jobs[0], "^rank 0: rank 1 ", f'"{version}" and "0.0.9"', "install the same version", output=jobs[0].stderr())

    def test_a_chief_that_does_not_run(self):
        ports = free_ports(2)
        job = self.start(BIN / "lockstep-doctor", "--wait", 1, TF_CONFIG=tf_config(ports, 1))
        self.all_end([job], 1)
        self.finding(job, "^rank 1: ", "connection refused", "start rank 0", output=job.stderr())

    def test_a_port_in_use(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            job = self.start(BIN / "lockstep-doctor", "--wait", 1, TF_CONFIG=tf_config([port, *free_ports(1)], 0))
            self.all_end([job], 1)
            self.finding(job, "^rank 0: ", f"{port} is in use", "stop the other program", output=job.stderr())

    def test_a_problem_of_the_host_is_reported_even_if_nobody_joins(self):
        job = self.start(BIN / "lockstep-doctor", "--wait", 1, "--min-disk", 1 << 40, TF_CONFIG=tf_config(free_ports(2), 0))
        self.all_end([job], 1)
        self.finding(job, "^rank 0 ", "is full", "free space", output=job.stderr())

    def test_a_launcher_lets_all_workers_report(self):
        script = 'exec "$0" --wait 6 --save "$1"'
        job = self.start(BIN / "lockstep-run", "-n", 3, "sh", "-c",
                         '[ $LOCKSTEP_RANK = 1 ] && export LOCKSTEP_JOB_ID=another; ' + script, BIN / "lockstep-doctor", self.dir)
        self.all_end([job], 1)
        for rank in range(3):
            self.assertRegex(job.stderr(), rf"(?m)^\[{rank}\] problem: rank {rank}: ")
            self.assertRegex(job.stderr(), rf"(?m)^\[{rank}\] verdict: ")


@network.needs_namespaces
class Networks(Case):
    def setUp(self):
        super().setUp()
        self.hosts = network.Namespaces(3)
        self.addCleanup(self.hosts.remove)

    def start_all(self, wait, *options, **variables):
        addresses = [f"{address}:{network.PORT}" for address in self.hosts.addresses]
        return [self.start(*self.hosts.command(i, BIN / "lockstep-doctor", "--wait", wait, *options),
                           TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}),
                           LOCKSTEP_SECRET=network.SECRET, **variables)
                for i in range(3)]

    def drop(self, host, ports, to):
        """Drops packets that `host` sends from `ports` to another host."""
        network.ip("-n", self.hosts.names[host], "rule", "add", "pref", 10, "to", self.hosts.addresses[to], "ipproto", "tcp",
                   "sport", ports, "blackhole")

    def test_a_closed_port_of_the_chief(self):
        self.drop(0, network.PORT, 2)
        jobs = self.start_all(SHORT)
        self.all_end(jobs, 1)
        self.finding(jobs[2], "^rank 2: ", "10.77.0.1:2222) could not be joined within 6 s: no answer",
                     "open the chief's TCP port", output=jobs[2].stderr())
        for rank in (0, 1):
            self.finding(jobs[rank], rf"^rank {rank}: rank 2 \(.*10\.77\.0\.3:2222\) ", "did not join", "through a firewall",
                         output=jobs[rank].stderr())

    def test_a_closed_port_for_data(self):
        """Longer than the others wait for a worker that has joined."""
        self.drop(1, "30000-30010", 2)
        jobs = self.start_all(PATIENT, LOCKSTEP_PORT_RANGE="30000-30010")
        self.all_end(jobs, 1)
        self.finding(jobs[0], r"^rank 1 \(host .*\) and rank 2 ", "rank 2 could not connect to rank 1 at 10.77.0.2:30000 within",
                     "LOCKSTEP_PORT_RANGE")
        self.assertRegex(jobs[0].stdout(), r"(?m)^1 - 2  none$")
        self.assertRegex(jobs[0].stdout(), r"(?m)^0 - 2  +\d+\.\d\d ms ")

    def test_a_link_of_10_mbits(self):
        limit = ["qdisc", "add", "dev", "cable", "root", "tbf", "rate", "10mbit", "burst", "16kb", "latency", "300ms"]
        done = subprocess.run(["tc", "-n", self.hosts.names[2], *limit], capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            self.skipTest(f"tc cannot limit a link: {done.stderr.strip()}")
        jobs = self.start_all(PATIENT)
        self.all_end(jobs, 1)
        for other in (0, 1):
            self.finding(jobs[0], rf"^rank {other} \(host .*\) and rank 2 ", "Mbit/s, less than 100.0 Mbit/s", "ethtool")
            rate = re.search(rf"(?m)^{other} - 2  .* (\d+\.\d) Mbit/s$", jobs[0].stdout())
            self.assertTrue(rate, jobs[0].stdout())
            self.assertLess(float(rate[1]), 15)


if __name__ == "__main__":
    unittest.main(verbosity=1)
