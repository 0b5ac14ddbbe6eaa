"""mnist_multi_worker and lockstep-run, with real processes on this machine.

Every wait has a deadline, ports are free ones, and what a test has started ends with it.
"""

import array
import fcntl
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
import time
import unittest
import uuid

import contract

BIN = contract.BIN
DEADLINE = 60  # of a run that ends on its own, on a busy machine
REPORTED = 3 * 3  # three times the promise for a silent worker
FOREIGN = re.compile(r"TF_CONFIG|LOCKSTEP_(?!BIN)|SLURM|OMPI|PMI|MASTER_|RANK$|WORLD_SIZE$|LOCAL_|TORCHELASTIC|PET_")


# Reports a signal to a process, or to its group, that waitpid has reaped.
REAPED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>
static pid_t reaped[64];
static unsigned count;
pid_t waitpid(pid_t process, int* status, int options) {
  pid_t found = ((pid_t (*)(pid_t, int*, int))dlsym(RTLD_NEXT, "waitpid"))(process, status, options);
  if (found > 0) reaped[count++ % 64] = found;
  return found;
}
int kill(pid_t process, int signal) {
  for (unsigned i = 0; i < count; ++i)
    if (process == reaped[i] || process == -reaped[i]) write(2, "reaped\\n", 7);
  return ((int (*)(pid_t, int))dlsym(RTLD_NEXT, "kill"))(process, signal);
}
"""


RESERVED = []  # until this process ends, no other one gets their ports by chance


def free_ports(count):
    """Free ports at which each program that asks for them may listen."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("", 0))
    RESERVED.extend(sockets)
    return [s.getsockname()[1] for s in sockets]


def cluster(ports):
    return {"worker": [f"127.0.0.1:{port}" for port in ports]}


def tf_config(ports, index):
    return json.dumps({"cluster": cluster(ports), "task": {"type": "worker", "index": index}})


class Process:
    """A program that writes to files, in a session of its own."""

    def __init__(self, folder, name, command, variables, inherited=()):
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        environment = {k: v for k, v in os.environ.items() if not FOREIGN.match(k)}
        # The address sanitizer refuses a preloaded library, which comes before its own.
        environment["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.popen = subprocess.Popen([str(a) for a in command], stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                          env={**environment, **variables}, start_new_session=True, pass_fds=inherited)

    def wait(self, timeout=DEADLINE):
        return self.popen.wait(timeout)

    def stdout(self):
        return self.out.read_text()

    def stderr(self):
        return self.err.read_text()

    def last_line(self):
        return self.stderr().strip().splitlines()[-1]

    def kill(self):
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                os.killpg(self.popen.pid, number)
            except ProcessLookupError:
                pass
        self.popen.wait(10)


class Case(contract.Case):
    program = "mnist_multi_worker"
    small = ["--batch", 64, "--threads", 1, "--learning-rate", 0.01]

    def setUp(self):
        super().setUp()
        self.count = 0
        self.marker = uuid.uuid4().hex  # in the environment of all that this test starts

    def start(self, *command, inherited=(), **variables):
        self.count += 1
        process = Process(self.dir, f"p{self.count}", command, {"TEST_MARKER": self.marker, **variables}, inherited)
        self.addCleanup(process.kill)
        return process

    def workers(self, count, *arguments, own=None, **variables):
        """`count` workers with TF_CONFIG, each with a report of its own; own(rank): further arguments."""
        ports = free_ports(count)
        return [self.start(BIN / self.program, "--report", self.dir / f"r{rank}.json", *arguments,
                           *(own(rank) if own else []), TF_CONFIG=tf_config(ports, rank), **variables)
                for rank in range(count)]

    def report_of(self, name):
        return json.loads((self.dir / name).read_text())

    def ends(self, process, code):
        self.assertEqual(process.wait(), code, process.stderr())

    def await_text(self, process, text):
        self.await_in(process.stdout, process, text)

    def await_line(self, process, text):
        """On stderr."""
        self.await_in(process.stderr, process, text)

    def await_in(self, output, process, text):
        deadline = time.monotonic() + DEADLINE
        while text not in output():
            self.assertIsNone(process.popen.poll(), process.stderr())
            self.assertLess(time.monotonic(), deadline, process.stderr())
            time.sleep(0.01)

    def library(self, source):
        """C code as a shared library, for LD_PRELOAD."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            self.skipTest("needs a C compiler")
        code, made = self.dir / "preloaded.c", self.dir / "preloaded.so"
        code.write_text(source)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", made, code], check=True, timeout=120)
        return made

    def left_over(self):
        """Processes of this test that still live."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self.marker.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def no_process_is_left(self, seconds=5):
        deadline = time.monotonic() + seconds
        while self.left_over() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.left_over(), [])


class Results(Case):
    def test_a_chief_with_a_name_is_on_the_machine_of_its_workers(self):
        address, data = f"localhost:{free_ports(1)[0]}", self.data()
        jobs = [self.start(BIN / "mnist_multi_worker", "--data", data, "--epochs", 1, "--steps-per-epoch", 2, "--quiet",
                           LOCKSTEP_WORLD_SIZE="2", LOCKSTEP_RANK=str(rank), LOCKSTEP_COORDINATOR=address,
                           LOCKSTEP_TRANSPORT="shared_memory") for rank in range(2)]
        for job in jobs:
            self.ends(job, 0)

    def test_workers_find_the_losses_of_one_process(self):
        options = ["--data", self.data(), "--epochs", 2, "--validate", "--quiet", *self.small]
        one, _ = self.report("mnist", *options)
        for count in (2, 3):  # the last batch has two examples
            with self.subTest(workers=count):
                path = self.dir / f"of{count}.json"
                job = self.start(BIN / "lockstep-run", "-n", count, "mnist_multi_worker", "--report", path, *options)
                self.ends(job, 0)
                self.assertEqual(job.stdout(), "")
                found = self.report_of(path.name)
                expected = {"program": "mnist_multi_worker", "strategy": "multi_worker_mirrored", "workers": count,
                            "rank": 0, "replicas": count, "steps": 6, "batch": 64}
                self.assertEqual({key: found[key] for key in expected}, expected)
                for a, b in zip(one["step_loss"], found["step_loss"], strict=True):
                    self.assertAlmostEqual(a, b, delta=1e-6 * max(1, abs(a)))
                self.assertEqual(one["step_accuracy"], found["step_accuracy"])
                self.assertAlmostEqual(one["epochs"][1]["val_loss"], found["epochs"][1]["val_loss"], delta=1e-5)

    def test_only_the_chief_reports_and_writes(self):
        a, b = self.workers(2, "--data", self.data(), "--epochs", 1, "--replicas", 2, *self.small, "--progress", "json",
                            own=lambda rank: ["--save", self.dir / f"w{rank}"])
        self.ends(a, 0)
        self.ends(b, 0)
        self.assertEqual(self.report_of("r0.json")["replicas"], 4)
        report = self.report_of("r0.json")
        self.assertEqual(report["replica_weights_sha256"], [report["weights_sha256"]] * 4)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir() if p.name[0] in "rw"),
                         ["r0.json", "w0", "w0.json"])
        first, second = ([json.loads(line) for line in p.stdout().splitlines()] for p in (a, b))
        self.assertEqual([e["event"] for e in first], ["train_begin", *["step"] * 3, "epoch_end", "train_end"])
        self.assertEqual([e["event"] for e in second], ["train_begin", "train_end"])
        self.assertEqual([(e[0]["rank"], e[0]["replicas"]) for e in (first, second)], [(0, 4), (1, 4)])
        self.assertIn("job of 2 workers, 4 replicas", a.stderr())
        self.assertNotIn("job of", b.stderr())

    def test_the_rendezvous_works_alone(self):
        job = self.start(BIN / "lockstep-run", "-n", 3, "rendezvous")
        self.ends(job, 0)
        found = re.search(r"processes: 3, pi is about (\d\.\d{4})\n", job.stdout())
        self.assertAlmostEqual(float(found[1]), math.pi, delta=0.005)  # five standard deviations

    def test_the_chief_shows_where_each_rank_spends_its_time(self):
        data = self.data()
        a, b = self.workers(2, "--data", data, "--epochs", 2, "--quiet", "--stragglers", *self.small)
        self.ends(a, 0)
        self.ends(b, 0)
        for epoch in (1, 2):
            table = a.stderr().split(f"epoch {epoch}, seconds per rank:\n")[1].splitlines()
            columns = table[0].split()
            for name in ("rank", "data", "forward", "backward", "reduce", "update"):
                self.assertIn(name, columns)
            self.assertEqual([line.split()[0] for line in table[1:3]], ["0", "1"])
            self.assertRegex(table[3], r"^  rank [01] works longest, \d+\.\d\d times as long as the other rank$")
        self.assertNotIn("seconds per rank", b.stderr())
        a, b = self.workers(2, "--data", data, "--epochs", 1, "--quiet", *self.small,
                            own=lambda rank: ["--stragglers"] * rank)
        for job in (a, b):
            self.ends(job, 2)
            self.assertIn("stragglers", job.last_line())

    def test_virtual_shards_give_the_same_bits(self):
        options = ["--data", self.data(), "--epochs", 1, "--virtual-shards", 4, "--quiet"]
        digests = {"1x4 mirrored": self.report("mnist_mirrored", "--replicas", 4, *options)[0]["weights_sha256"]}
        for workers, replicas in ((1, 1), (2, 1), (4, 1), (2, 2)):
            path = self.dir / f"{workers}x{replicas}.json"
            job = self.start(BIN / "lockstep-run", "-n", workers, "mnist_multi_worker", "--replicas", replicas,
                             "--report", path, *options)
            self.ends(job, 0)
            digests[path.stem] = self.report_of(path.name)["weights_sha256"]
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_the_cluster_comes_from_a_file(self):
        ports = free_ports(2)
        (self.dir / "hosts.json").write_text(json.dumps(cluster(ports)))
        options = ["--data", self.data(), "--epochs", 1, "--quiet", *self.small, "--cluster", self.dir / "hosts.json"]
        jobs = [self.start(BIN / "mnist_multi_worker", *options, "--task", f"worker:{i}",
                           "--report", self.dir / f"r{i}.json") for i in (1, 0)]
        for job in jobs:
            self.ends(job, 0)
        self.assertEqual(self.report_of("r0.json")["workers"], 2)


class Failures(Case):
    def train(self, count, *arguments, **variables):
        """Workers that train until something happens."""
        jobs = self.workers(count, "--data", self.data(), "--epochs", 1_000_000, "--progress", "json", *self.small, *arguments,
                            **variables)
        self.await_text(jobs[0], '"step":2,')
        return jobs

    def all_name(self, rank, survivors, began):
        for job in survivors:
            self.assertEqual(job.wait(REPORTED + 5), 3, job.stderr())
        self.assertLess(time.monotonic() - began, REPORTED)
        # How the chief's connection ends is for each worker to see: by a reset, or in order.
        words = [job.last_line().replace(" (reset)", "") for job in survivors]
        if rank == 0:
            # The last step is not agreed on: each rank knows the last one that the chief sent it.
            steps = [int(re.search(r" is (\d+)$", line)[1]) for line in words]
            self.assertLessEqual(max(steps) - min(steps), 1, words)
            words = [re.sub(r" is \d+$", "", line) for line in words]
        self.assertEqual(len(set(words)), 1, words)
        self.assertRegex(words[0], rf"^mnist_multi_worker: rank {rank} \(127\.0\.0\.1:\d+\) ")

    def test_a_killed_worker_is_named_by_all_others(self):
        for rank in (1, 0):
            with self.subTest(rank=rank):
                self.setUp()
                jobs = self.train(3)
                began = time.monotonic()
                jobs[rank].popen.send_signal(signal.SIGKILL)
                others = [i for i in range(3) if i != rank]
                self.all_name(rank, [jobs[i] for i in others], began)
                for i in others:
                    report = self.report_of(f"r{i}.json")
                    self.assertEqual((report["rank"], report["workers"]), (i, 3))
                    self.assertIn(report["error"], jobs[i].last_line())
                    self.assertGreaterEqual(report["steps"], 2)

    def test_a_frozen_worker_is_named_and_ends_when_it_wakes(self):
        jobs = self.train(3)
        began = time.monotonic()
        jobs[2].popen.send_signal(signal.SIGSTOP)
        self.all_name(2, jobs[:2], began)
        jobs[2].popen.send_signal(signal.SIGCONT)
        self.assertEqual(jobs[2].wait(10), 3, jobs[2].stderr())

    def test_a_signal_to_one_worker_ends_all_after_the_same_step_with_its_exit_code(self):
        for rank, number, code in ((1, signal.SIGTERM, 143), (0, signal.SIGTERM, 143), (1, signal.SIGINT, 130),
                                   (1, signal.SIGHUP, 129), (0, signal.SIGUSR1, 138)):
            with self.subTest(rank=rank, number=number):
                self.setUp()
                weights = self.dir / f"w{rank}-{code}"
                jobs = self.train(2, "--save", weights, LOCKSTEP_STOP_SIGNALS="USR1")
                jobs[rank].popen.send_signal(number)
                codes = [job.wait(20) for job in jobs]
                self.assertEqual(codes, [code, code], jobs[0].stderr() + jobs[1].stderr())
                self.assertEqual(len(contract.safetensors(weights)), 6)  # and the weights are saved

    def test_a_worker_that_never_comes_is_named_at_the_deadline(self):
        ports = free_ports(3)
        jobs = [self.start(BIN / "mnist_multi_worker", "--quiet", "--report", self.dir / f"r{i}.json",
                           TF_CONFIG=tf_config(ports, i), LOCKSTEP_RENDEZVOUS_TIMEOUT="2") for i in (0, 2)]
        for job in jobs:
            self.ends(job, 3)
            self.assertIn("rank 1", job.last_line())
            self.assertIn(str(ports[1]), job.last_line())
        self.assertIn("rank 1", self.report_of("r0.json")["error"])
        self.assertIn("rank 1", self.report_of("r2.json")["error"])

    def test_a_chief_that_is_killed_while_the_job_forms_is_named_at_once(self):
        ports = free_ports(4)
        jobs = [self.start(BIN / "mnist_multi_worker", "--quiet", TF_CONFIG=tf_config(ports, i)) for i in (0, 1, 2)]
        for job in jobs[1:]:
            self.await_line(job, "the cluster comes from TF_CONFIG")
        time.sleep(0.7)  # until both have joined
        jobs[0].kill()
        began = time.monotonic()
        for job in jobs[1:]:
            self.ends(job, 3)
            self.assertIn(f"rank 0 (127.0.0.1:{ports[0]}) closed its connection before the job started, and nothing listens "
                          "at its address any more", job.last_line())
        self.assertLess(time.monotonic() - began, REPORTED)

    def test_a_process_of_another_job_size_ends_itself(self):
        ports = free_ports(3)
        environment = {"LOCKSTEP_JOB_ID": "a-job", "LOCKSTEP_RENDEZVOUS_TIMEOUT": "20"}
        options = ["--data", self.data(), "--epochs", 1, "--quiet", *self.small]
        chief = self.start(BIN / "mnist_multi_worker", *options, TF_CONFIG=tf_config(ports[:2], 0), **environment)
        self.await_line(chief, "the cluster comes from TF_CONFIG")
        stray = self.start(BIN / "mnist_multi_worker", *options, TF_CONFIG=tf_config(ports, 1), **environment)
        self.ends(stray, 2)
        self.assertIn('differ in "world size": "2" and "3"', stray.last_line())
        self.await_line(chief, 'was refused: join: ')
        worker = self.start(BIN / "mnist_multi_worker", *options, TF_CONFIG=tf_config(ports[:2], 1), **environment)
        for job in (chief, worker):
            self.ends(job, 0)

    def test_a_signal_ends_a_worker_that_waits_for_others(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for ranks in ([0], [1], [0, 1]):  # of three: one without its chief too
                with self.subTest(number=number, ranks=ranks):
                    ports = free_ports(3)
                    jobs = [self.start(BIN / "mnist_multi_worker", "--quiet", TF_CONFIG=tf_config(ports, rank)) for rank in ranks]
                    for job in jobs:
                        self.await_line(job, "the cluster comes from TF_CONFIG")
                    time.sleep(0.2)
                    for job in reversed(jobs):  # the chief still waits when the other one has gone
                        self.assertIsNone(job.popen.poll(), job.stderr())
                        job.popen.send_signal(number)
                        self.assertEqual(job.wait(10), code, job.stderr())
                    self.no_process_is_left(0)

    def test_a_chief_whose_output_nobody_reads_is_named_by_the_others(self):
        options = ["--data", self.data(), "--epochs", 1_000_000, *self.small, "--idle-timeout", 5]
        ports = free_ports(2)
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        chief = self.start("bash", "-c", f'exec "$@" >&{writer}', "-", BIN / "mnist_multi_worker", "--progress", "json", *options,
                           inherited=[writer], TF_CONFIG=tf_config(ports, 0))
        os.close(writer)
        worker = self.start(BIN / "mnist_multi_worker", "--quiet", *options, TF_CONFIG=tf_config(ports, 1))
        self.ends(worker, 3)
        self.assertRegex(worker.last_line(), rf"rank 0 \(127\.0\.0\.1:{ports[0]}\) is alive, but made no progress in a callback "
                                              r"of step \d+ for 5(\.\d)? s; .*; the last step that all ranks finished is \d+")
        self.assertIsNone(chief.popen.poll())  # it stands in a write

    def test_the_report_of_a_worker_without_a_number_has_the_one_it_got(self):
        ports = free_ports(2)
        cluster = [tf_config(ports, 0), tf_config(ports, 1).replace('"index": 1', '"index": "auto"')]
        self.assertIn("auto", cluster[1])
        jobs = [self.start(BIN / "mnist_multi_worker", "--progress", "json", "--threads", 1, "--epochs", 100_000,
                           "--take", 640, "--report", self.dir / f"r{i}.json", TF_CONFIG=cluster[i]) for i in range(2)]
        self.await_text(jobs[0], '"step":2,')
        jobs[0].popen.send_signal(signal.SIGKILL)
        self.assertEqual(jobs[1].wait(20), 3, jobs[1].stderr())
        report = self.report_of("r1.json")
        self.assertEqual((report["rank"], report["workers"]), (1, 2))

    def test_an_error_of_one_worker_ends_all(self):
        broken = self.dir / "broken"
        broken.mkdir()
        data = self.data()
        for name in contract.NAMES[:2]:
            (broken / name).write_bytes((data / name).read_bytes()[:-1])
        a, b = self.workers(2, "--epochs", 1, "--quiet", *self.small, own=lambda rank: ["--data", [data, broken][rank]])
        self.ends(b, 1)
        self.assertIn("rank 1", b.last_line())
        self.assertIn("broken", b.last_line())
        self.ends(a, 3)
        self.assertIn("rank 1", a.last_line())


class Refusals(Case):
    def refused(self, expected_text, *arguments, **variables):
        job = self.start(BIN / "mnist_multi_worker", "--report", self.dir / "no.json", *arguments, **variables)
        self.ends(job, 2)
        self.assertEqual(job.stdout(), "")
        for text in expected_text:
            self.assertIn(text, job.last_line())
        self.assertFalse((self.dir / "no.json").exists())

    def test_no_cluster(self):
        self.refused(["TF_CONFIG"])
        self.refused(["TF_CONFIG"], TF_CONFIG="")

    def test_wrong_descriptions(self):
        good = tf_config([12345, 12346], 0)
        for name, value, expected_text in (
            ("python", good.replace('"', "'"), "TF_CONFIG"),
            ("no port", good.replace(":12346", ""), "worker[1]"),
            ("index", good.replace('"index": 0', '"index": 2'), "task.index"),
            ("ps", good.replace('"worker": [', '"ps": ["127.0.0.1:1"], "worker": [').replace('"type": "worker"', '"type": "ps"'), "ps"),
            ("evaluator", good.replace('"type": "worker"', '"type": "evaluator"'), "evaluator"),
        ):
            with self.subTest(name):
                self.refused([expected_text], TF_CONFIG=value)
        hosts = self.dir / "hosts.json"
        hosts.write_text('{"worker": ["127.0.0.1:12345"]}')
        self.refused(["--task"], "--cluster", hosts)
        self.refused(["--task", "out of range"], "--cluster", hosts, "--task", "worker:1")
        self.refused(["--task"], "--cluster", hosts, "--task", "waiter:0")
        self.refused(["--task"], "--task", "worker:0")
        self.refused(["10.0.0.1:12345", "LOCKSTEP_SECRET_FILE"], TF_CONFIG=good.replace("127.0.0.1", "10.0.0.1"))

    def test_wrong_times(self):
        for option in ("--stall-timeout", "--idle-timeout"):
            for value in ("0", "nan", "x", "86401", ""):
                with self.subTest(option=option, value=value):
                    self.refused([option], option, value, TF_CONFIG=tf_config([12345, 12346], 0))

    def test_workers_that_differ_all_end_with_the_same_sentence(self):
        data = self.data()
        for name, own, expected_text in (("seed", lambda rank: ["--seed", 1 + rank], "seed"),
                                ("validation", lambda rank: ["--validate"] * rank, "validation"),
                                ("batch", lambda rank: ["--batch", 64 - rank], "batch"),
                                ("data", lambda rank: ["--steps-per-epoch", 1, "--take", 64 * (1 + rank)],
                                 '"training examples": "64, repeated" and "128, repeated"')):
            with self.subTest(name):
                jobs = self.workers(2, "--data", data, "--epochs", 1, "--quiet", "--threads", 1, own=own)
                for job in jobs:
                    self.ends(job, 2)
                self.assertEqual(len({job.last_line() for job in jobs}), 1, [j.last_line() for j in jobs])
                for text in (expected_text, "rank 0", "rank 1"):
                    self.assertIn(text, jobs[0].last_line())
                self.assertFalse((self.dir / "r0.json").exists())

    def test_a_wrong_secret_ends_only_the_newcomer(self):
        for name in ("right", "wrong"):
            (self.dir / name).write_text(f"the {name} secret of this test\n")
            (self.dir / name).chmod(0o600)
        ports = free_ports(2)
        options = ["--data", self.data(), "--epochs", 1, "--quiet", *self.small]

        def worker(rank, **variables):
            return self.start(BIN / "mnist_multi_worker", *options, TF_CONFIG=tf_config(ports, rank), **variables)

        chief = worker(0, LOCKSTEP_SECRET_FILE=str(self.dir / "right"))
        for variables in ({"LOCKSTEP_SECRET_FILE": str(self.dir / "wrong")}, {}):
            with self.subTest(variables=variables):
                stranger = worker(1, LOCKSTEP_RENDEZVOUS_TIMEOUT="3", **variables)
                self.ends(stranger, 2)
                self.assertIn("secret", stranger.last_line())
        self.assertIsNone(chief.popen.poll())
        friend = worker(1, LOCKSTEP_SECRET_FILE=str(self.dir / "right"))
        self.ends(friend, 0)
        self.ends(chief, 0)


class Launcher(Case):
    def launch(self, count, *command, **variables):
        return self.start(BIN / "lockstep-run", "-n", count, *command, **variables)

    def test_a_second_ctrl_c_ends_also_those_who_do_not_listen(self):
        job = self.launch(2, "sh", "-c", "trap '' INT; echo ready; while :; do sleep 0.1; done")
        self.await_text(job, "ready")
        job.popen.send_signal(signal.SIGINT)
        with self.assertRaises(subprocess.TimeoutExpired):
            job.popen.wait(0.5)
        job.popen.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(10), 130)

    def test_ignored_signals_stay_ignored(self):
        """As under nohup, and where a shell starts a job with `&`. Ignored ends of children keep no exit codes."""
        job = self.start("sh", "-c", 'trap "" HUP INT CHLD; exec "$@"', "-", BIN / "lockstep-run", "-n", 2,
                         "sh", "-c", "echo ready; sleep 1; exit $LOCKSTEP_RANK")
        self.await_text(job, "[0] ready")
        self.await_text(job, "[1] ready")
        job.popen.send_signal(signal.SIGHUP)
        job.popen.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(10), 1, job.stderr())
        self.assertIn("rank 1 failed first, with exit code 1", job.last_line())

    def test_user_signals_reach_the_workers_and_end_nothing(self):
        job = self.launch(2, "sh", "-c", "trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 0.1; done")
        self.await_text(job, "[0] ready")
        self.await_text(job, "[1] ready")
        job.popen.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(10), 0)
        self.assertEqual(sorted(job.stdout().split()), ["[0]", "[0]", "[1]", "[1]", "heard", "heard", "ready", "ready"])

    def test_a_user_signal_ends_the_job_if_the_workers_stop_on_it(self):
        job = self.launch(2, "--max-restarts", 1, "sh", "-c", "trap 'exit 138' USR1; echo ready; while :; do sleep 0.1; done",
                          LOCKSTEP_STOP_SIGNALS="USR1")
        self.await_text(job, "[0] ready")
        self.await_text(job, "[1] ready")
        job.popen.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(10), 138)
        self.assertNotIn("lockstep-run:", job.stderr())
        job = self.launch(1, "true", LOCKSTEP_STOP_SIGNALS="ALRM")
        self.ends(job, 2)
        self.assertIn('LOCKSTEP_STOP_SIGNALS: "ALRM" is not USR1 or USR2', job.last_line())

    def flood(self, *options, script="while :; do echo 0123456789; done", **variables):
        """A job whose output nobody reads, when its pipe is full, and the reading end."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        job = self.start("bash", "-c", f'exec "$@" >&{writer}', "-", BIN / "lockstep-run", *options, "sh", "-c", script,
                         inherited=[writer], **variables)
        os.close(writer)
        unread, before = array.array("i", [0]), -1
        deadline = time.monotonic() + DEADLINE
        while unread[0] == 0 or unread[0] != before:
            self.assertLess(time.monotonic(), deadline)
            before = unread[0]
            time.sleep(0.2)
            fcntl.ioctl(reader, termios.FIONREAD, unread)
        return job, reader

    def test_output_that_nobody_reads_does_not_hold_up_signals(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            with self.subTest(number):
                job, _ = self.flood("-n", 2)
                job.popen.send_signal(number)
                self.assertEqual(job.wait(10), code, job.stderr())
                self.no_process_is_left()

    def test_output_that_nobody_reads_does_not_hold_up_the_end_of_workers(self):
        script = 'if [ $LOCKSTEP_RANK = 1 ]; then while [ ! -e "$0" ]; do sleep 0.02; done; exit 7; fi; while :; do echo 0123456789; done'
        job, reader = self.flood("-n", 2, script=script.replace("$0", str(self.dir / "end")))
        (self.dir / "end").touch()
        self.await_line(job, "lockstep-run: rank 1 failed first, with exit code 7\n")
        while len(self.left_over()) > 1:
            time.sleep(0.02)
        self.assertIsNone(job.popen.poll())  # its reader may come back
        text = b""
        while part := os.read(reader, 65536):
            text += part
        self.ends(job, 7)
        self.assertEqual(set(text.splitlines()[:-1]), {b"[0] 0123456789"})

    def test_all_output_arrives_in_order(self):
        job = self.launch(2, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done")
        self.ends(job, 0)
        for rank in (0, 1):
            lines = [line[4:] for line in job.stdout().splitlines() if line.startswith(f"[{rank}]")]
            self.assertEqual(lines, [str(i) for i in range(1, 20001)])

    def test_no_signal_goes_to_a_process_that_is_reaped(self):
        """Another process may have its number then."""
        job = self.launch(2, "sh", "-c", "sleep 0.1 & exit 0", LD_PRELOAD=str(self.library(REAPED)))
        self.ends(job, 0)
        self.assertEqual(job.stderr(), "")

    def test_as_process_1_it_reaps_orphans(self):
        alone = ["unshare", *(() if os.geteuid() == 0 else ("-Ur",)), "-pf", "--mount-proc"]
        if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
            self.skipTest("this user cannot make a PID namespace")
        script = ('for i in 1 2 3 4 5; do (setsid sh -c \'echo >>"$0"\' "$0" &); done; '
                  'for i in $(seq 500); do left=$(cat /proc/[0-9]*/status 2>/dev/null | grep -c "^State:.Z"); '
                  '[ $left = 0 ] && [ "$(wc -l <"$0")" = 5 ] && break; sleep 0.01; done; echo $left left')
        job = self.start(*alone, BIN / "lockstep-run", "-n", 1, "sh", "-c", script, self.dir / "ends")
        self.ends(job, 0)
        self.assertEqual(job.stdout(), "[0] 0 left\n")

    def test_output_has_the_rank_and_children_have_the_job(self):
        script = 'echo $LOCKSTEP_RANK $LOCKSTEP_JOB_ID $LOCKSTEP_LAUNCHER; stat -Lc %a $LOCKSTEP_SECRET_FILE >&2; ' \
                 'echo "$TF_CONFIG"; echo "$LOCKSTEP_SECRET_FILE"; printf unfinished'
        job = self.launch(3, "sh", "-c", script, LOCKSTEP_SECRET="of another job", TMPDIR=str(self.dir))
        self.ends(job, 0)
        lines = job.stdout().splitlines()
        self.assertEqual(sorted({line[:4] for line in lines}), ["[0] ", "[1] ", "[2] "])
        own = [[line[4:] for line in lines if line.startswith(f"[{rank}]")] for rank in range(3)]
        self.assertEqual([o[0].split()[0] for o in own], ["0", "1", "2"])
        self.assertEqual(len({o[0].split()[1] for o in own}), 1)
        configs = [json.loads(o[1]) for o in own]
        self.assertEqual(len(set(configs[0]["cluster"]["worker"])), 3)
        self.assertTrue(all(c["cluster"] == configs[0]["cluster"] for c in configs))
        self.assertEqual([c["task"] for c in configs], [{"type": "worker", "index": i} for i in range(3)])
        self.assertEqual([o[3] for o in own], ["unfinished"] * 3)
        self.assertEqual(sorted(job.stderr().splitlines()), [f"[{rank}] 600" for rank in range(3)])
        self.assertFalse(pathlib.Path(own[0][2]).exists())

    def test_a_log_for_each_rank(self):
        job = self.launch(2, "--log-dir", self.dir / "logs" / "a", "sh", "-c", "echo out $LOCKSTEP_RANK; echo err >&2")
        self.ends(job, 0)
        self.assertEqual((job.stdout(), job.stderr()), ("", ""))
        for rank in range(2):
            self.assertEqual((self.dir / "logs" / "a" / f"rank-{rank}.log").read_text(), f"out {rank}\nerr\n")

    def test_a_log_is_not_written_through_a_link(self):
        precious = self.dir / "precious"
        precious.write_text("precious line 1\n")
        (self.dir / "logs").mkdir()
        (self.dir / "logs" / "rank-1.log").symlink_to("../precious")
        job = self.launch(2, "--log-dir", self.dir / "logs", "echo")
        self.ends(job, 1)
        self.assertIn("rank-1.log", job.stderr())
        self.assertEqual(precious.read_text(), "precious line 1\n")

    def test_a_fifo_instead_of_a_log_does_not_hold_up_the_job(self):
        (self.dir / "logs").mkdir()
        os.mkfifo(self.dir / "logs" / "rank-1.log")
        job = self.launch(2, "--log-dir", self.dir / "logs", "echo")
        self.ends(job, 1)
        self.assertIn("rank-1.log: No such device or address", job.stderr())

    def test_the_first_failure_gives_the_code_and_ends_all(self):
        for script, code, expected_text in (("exit 7", 7, "rank 1 failed first, with exit code 7"),
                                   ("kill -9 $$", 137, "rank 1 was killed by signal 9"),
                                   ("kill -SEGV $$", 139, "rank 1 was killed by signal 11")):
            with self.subTest(script):
                job = self.launch(3, "sh", "-c", f"[ $LOCKSTEP_RANK = 1 ] && {script}; sleep 100")
                self.assertEqual(job.wait(15), code, job.stderr())
                self.assertIn(expected_text, job.stderr())
                self.no_process_is_left()

    def test_one_that_takes_no_notice_of_sigterm_is_killed(self):
        job = self.launch(2, "sh", "-c", "trap '' TERM; [ $LOCKSTEP_RANK = 1 ] && exit 5; while :; do sleep 1; done")
        self.assertEqual(job.wait(20), 5, job.stderr())
        self.no_process_is_left()

    def test_a_killed_worker_gives_its_code_not_that_of_those_who_report_it(self):
        job = self.launch(3, "mnist_multi_worker", "--data", self.data(), "--epochs", 1_000_000, "--progress", "json", *self.small)
        self.await_text(job, '"step":2,')
        victim = next(pid for pid in self.left_over()
                      if b"LOCKSTEP_RANK=2\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(job.wait(20), 137, job.stderr())
        self.assertIn("rank 2 was killed by signal 9", job.last_line())
        for rank in (0, 1):
            self.assertRegex(job.stderr(), rf"\[{rank}\] mnist_multi_worker: rank 2 \(127")
        self.no_process_is_left()

    def test_ctrl_c_and_sigterm_end_all_cleanly(self):
        data = self.data()
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number):
                job = self.launch(2, "mnist_multi_worker", "--data", data, "--epochs", 1_000_000, "--progress", "json",
                                  *self.small, "--save", self.dir / f"w{code}")
                self.await_text(job, '"step":2,')
                job.popen.send_signal(number)
                self.assertEqual(job.wait(20), code, job.stderr())
                self.assertEqual(len(contract.safetensors(self.dir / f"w{code}")), 6)
                self.no_process_is_left()

    def test_ctrl_c_ends_a_job_whose_workers_still_join(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number):
                job = self.launch(3, "sh", "-c", '[ $LOCKSTEP_RANK = 2 ] && exec sleep 100; exec "$@"', "-",
                                  BIN / "mnist_multi_worker", "--quiet")
                for rank in range(2):
                    self.await_line(job, f"this process is rank {rank} of 3")
                job.popen.send_signal(number)
                self.assertEqual(job.wait(10), code, job.stderr())
                self.no_process_is_left(0)

    def test_workers_die_with_a_killed_launcher(self):
        job = self.launch(2, "sleep", 100)
        while len(self.left_over()) < 3:
            time.sleep(0.02)
        time.sleep(0.2)
        job.popen.send_signal(signal.SIGKILL)
        job.wait(5)
        self.no_process_is_left()

    def secrets_of(self, *command):
        """The lines that a worker prints, and what lies in TMPDIR while it runs and after a SIGKILL of the launcher."""
        folder = self.dir / "tmp"
        folder.mkdir(exist_ok=True)
        job = self.launch(1, *command, TMPDIR=str(folder))
        self.await_text(job, "ready")
        during = list(folder.iterdir())
        job.popen.send_signal(signal.SIGKILL)
        job.wait(5)
        return job.stdout().splitlines(), during, list(folder.iterdir())

    def test_no_file_holds_the_secret_even_if_the_launcher_is_killed(self):
        lines, during, after = self.secrets_of("sh", "-c", "cat $LOCKSTEP_SECRET_FILE; echo ready; sleep 100")
        self.assertRegex(lines[0], r"^\[0\] [0-9a-f]{64}$")
        self.assertEqual((during, after), ([], []))

    def test_a_child_of_a_child_reads_the_secret(self):
        read = 'cat "$LOCKSTEP_SECRET_FILE"'
        # Python closes what it does not know, and bash leaves it open.
        python = f"import subprocess; subprocess.run(['bash', '-c', '{read}'])"
        script = f"""bash -c '{read}; true'; bash -c "bash -c '{read}; true'; true"; python3 -c "$0"; echo ready; sleep 100"""
        lines, _, _ = self.secrets_of("bash", "-c", script, python)
        self.assertEqual(len(lines), 4)
        self.assertEqual(len(set(lines[:3])), 1)
        self.assertRegex(lines[0], r"^\[0\] [0-9a-f]{64}$")

    def test_nobody_else_reads_the_secret_and_nobody_writes_it(self):
        script = 'cat "$LOCKSTEP_SECRET_FILE"; echo mine > "$LOCKSTEP_SECRET_FILE" || echo refused; ' \
                 'cat "$LOCKSTEP_SECRET_FILE"; '
        if os.geteuid() == 0:
            script += 'setpriv --reuid=64123 --clear-groups cat "$LOCKSTEP_SECRET_FILE" || echo denied; '
        lines, _, _ = self.secrets_of("sh", "-c", script + "echo ready; sleep 100")
        self.assertEqual(lines[1:3], ["[0] refused", lines[0]])
        if os.geteuid() == 0:
            self.assertEqual(lines[3], "[0] denied")

    def test_without_proc_the_secret_is_a_file_that_the_launcher_removes(self):
        alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
        if subprocess.run([*alone, "mount", "-t", "tmpfs", "none", "/proc"], capture_output=True).returncode != 0:
            self.skipTest("this user cannot hide /proc")
        if b"__asan_init" in (BIN / "lockstep-run").read_bytes():
            self.skipTest("the address sanitizer reads its options, and more, from /proc")
        folder = self.dir / "tmp"
        folder.mkdir()
        hidden = 'mount -t tmpfs none /proc && exec "$0" "$@"'
        script = 'f=$LOCKSTEP_SECRET_FILE; echo $f; stat -Lc %a $f; cat $f'
        job = self.start(*alone, "sh", "-c", hidden, BIN / "lockstep-run", "-n", 1, "sh", "-c", script, TMPDIR=str(folder))
        self.ends(job, 0)
        path, mode, secret = (line[4:] for line in job.stdout().splitlines())
        self.assertEqual(pathlib.Path(path).parent, folder)
        self.assertEqual(mode, "600")
        self.assertRegex(secret, "^[0-9a-f]{64}$")
        self.assertEqual(list(folder.iterdir()), [])

    def test_a_folder_of_path_that_is_closed_to_the_user_is_passed_over(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            folder.chmod(0o755)
            program = shutil.copy(BIN / "lockstep-run", folder)
            (folder / "closed").mkdir(mode=0)
            other = ["setpriv", "--reuid=64123", "--clear-groups"] if os.geteuid() == 0 else []
            job = self.start(*other, program, "-n", 1, "true", PATH=f"{folder}/closed/bin:/usr/bin:/bin",
                             ASAN_OPTIONS="detect_leaks=0")
            self.ends(job, 0)

    def ended_while_it_stood_still(self, codes, *order):
        """The launcher's exit code and last line after the ranks ended in this order, all between two of its polls."""
        go = self.dir / "go"
        go.mkdir(exist_ok=True)
        script = (f"echo ready; while [ ! -e {go}/$LOCKSTEP_RANK ]; do sleep 0.02; done; "
                  f"set -- {' '.join(map(str, codes))}; shift $LOCKSTEP_RANK; exit $1")
        job = self.launch(len(codes), "sh", "-c", script)
        for rank in range(len(codes)):
            self.await_text(job, f"[{rank}] ready")
        # Not the sleeps that the shells start.
        workers = {rank: next(pid for pid in self.left_over() if self.is_worker(pid, rank)) for rank in order}
        job.popen.send_signal(signal.SIGSTOP)
        for rank in order:
            (go / str(rank)).touch()
            deadline = time.monotonic() + DEADLINE
            while not self.is_dead(workers[rank]):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
        job.popen.send_signal(signal.SIGCONT)
        for rank in range(len(codes)):
            (go / str(rank)).touch()
        code = job.wait(20)
        for file in go.iterdir():
            file.unlink()
        return code, job.last_line()

    @staticmethod
    def is_worker(pid, rank):
        folder = pathlib.Path(f"/proc/{pid}")
        try:
            return (f"LOCKSTEP_RANK={rank}\0".encode() in (folder / "environ").read_bytes()
                    and (folder / "cmdline").read_bytes().startswith(b"sh\0"))
        except OSError:
            return False

    @staticmethod
    def is_dead(pid):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def test_the_one_that_ended_first_is_named_also_if_several_did_between_two_looks(self):
        for order, code in (((2, 0, 1), 12), ((1, 2, 0), 11), ((0, 1, 2), 10)):
            with self.subTest(order):
                found, expected_text = self.ended_while_it_stood_still((10, 11, 12), *order)
                self.assertEqual(found, code)
                self.assertEqual(expected_text, f"lockstep-run: rank {order[0]} failed first, with exit code {code}")

    def test_one_that_lost_a_peer_is_not_named_for_the_one_that_was_lost(self):
        found, expected_text = self.ended_while_it_stood_still((3, 7, 3), 2, 1, 0)
        self.assertEqual(found, 7)
        self.assertEqual(expected_text, "lockstep-run: rank 1 failed, with exit code 7; before it rank 2 exited with code 3, "
                               "which means that it lost another worker")
        found, expected_text = self.ended_while_it_stood_still((3, 7, 3), 1, 2, 0)
        self.assertEqual((found, expected_text), (7, "lockstep-run: rank 1 failed first, with exit code 7"))
        found, expected_text = self.ended_while_it_stood_still((3, 3, 3), 1, 2, 0)
        self.assertEqual((found, expected_text), (3, "lockstep-run: rank 1 failed first, with exit code 3"))

    def test_too_many_processes_or_files_are_one_sentence_that_says_what_to_do(self):
        limits = {"--nofile=24": "ulimit -n", "--nproc=1": "ulimit -u"}
        for limit, expected_text in limits.items():
            with self.subTest(limit), tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                folder.chmod(0o755)  # root has no limit of processes, so another user runs it
                other = ["setpriv", "--reuid=64123", "--clear-groups"] if os.geteuid() == 0 else []
                program = shutil.copy(BIN / "lockstep-run", folder)
                job = self.start("prlimit", limit, *other, program, "-n", 20, "/bin/true", ASAN_OPTIONS="detect_leaks=0")
                self.ends(job, 1)
                self.assertIn(expected_text, job.stderr())
                self.assertEqual(len(job.stderr().splitlines()), 1, job.stderr())

    def test_wrong_command_lines(self):
        for arguments, expected_text in ((["-n", "0", "true"], "--workers"), (["-n", "x", "true"], "--workers"), (["true"], "-n: missing"),
                                (["-n", "2"], "PROGRAM"), (["-n", "2", "no-such-program"], "no-such-program"),
                                (["-n", "2", "--what", "true"], "--what")):
            with self.subTest(arguments):
                job = self.start(BIN / "lockstep-run", *arguments)
                self.ends(job, 2)
                self.assertIn(expected_text, job.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=1)
