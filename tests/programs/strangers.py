"""A job of mnist_multi_worker while strangers knock at its ports: they change nothing."""

import os
import pathlib
import random
import re
import signal
import socket
import threading
import time
import unittest

import contract
import multi_worker

BIN = contract.BIN
SECRET = "a secret of this test, and of no other"
LISTENS = "0A"  # in /proc/net/tcp
HTTP = b"GET / HTTP/1.1\r\nHost: chief\r\nUser-Agent: a stranger\r\nAccept: */*\r\n\r\n"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(194))
RANDOM = random.Random(7).randbytes(1 << 20)


def sockets_of(pid):
    """{(port, state)} of a process' sockets of TCP."""
    try:
        mine = {os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:  # it has ended
        return set()
    rows = [line.split() for line in lines]
    return {(int(row[1].split(":")[1], 16), row[3]) for row in rows if f"socket:[{row[9]}]" in mine}


def control_thread(pid, port):
    """The thread of a chief that waits for connections at `port`: the folder of /proc."""
    process = pathlib.Path(f"/proc/{pid}")
    inodes = {f"socket:[{row[9]}]" for row in (line.split() for line in (process / "net/tcp").read_text().splitlines()[1:])
              if row[3] == LISTENS and int(row[1].split(":")[1], 16) == port}
    listening = {entry.name for entry in (process / "fd").iterdir() if os.readlink(entry) in inodes}
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for thread in (process / "task").iterdir():
            try:
                call = (thread / "syscall").read_text().split()  # of epoll_wait, the first argument is its descriptor
            except ProcessLookupError:  # it has ended
                continue
            watched = process / "fdinfo" / str(int(call[1], 16)) if len(call) > 2 else None
            if watched and watched.exists() and listening & set(re.findall(r"tfd: +(\d+)", watched.read_text())):
                return thread
    raise AssertionError("no thread waits for connections")


def knock(port):
    return socket.create_connection(("127.0.0.1", port), timeout=1)


def send_to(port, words):
    with knock(port) as stranger:
        stranger.sendall(words)
        stranger.recv(1)


def hang(port):
    with knock(port) as stranger:
        stranger.settimeout(5)
        stranger.recv(1)


def drip(port):
    with knock(port) as stranger:
        for byte in b"LKS1" + bytes(46):
            stranger.sendall(bytes([byte]))
            time.sleep(0.1)


KINDS = {
    "scan": lambda port: knock(port).close(),
    "http": lambda port: send_to(port, HTTP),
    "tls": lambda port: send_to(port, TLS_HELLO),
    "random": lambda port: send_to(port, RANDOM),
    "lockstep, then random": lambda port: send_to(port, b"LKS1" + RANDOM[:2000]),
    "hang": hang,
    "drip": drip,
}


def came_to(port, kind):
    """Whether somebody was at home."""
    try:
        kind(port)
    except ConnectionRefusedError:
        return False
    except OSError:  # put out
        pass
    return True


class Strangers:
    """Visit all ports of `pids()`, open or not, until the end."""

    def __init__(self, pids):
        self.pids, self.over = pids, threading.Event()
        self.heard = dict.fromkeys(KINDS, 0)  # how often somebody was at home
        self.threads = [threading.Thread(target=self.visit, args=kind) for kind in KINDS.items()]
        for thread in self.threads:
            thread.start()

    def visit(self, name, kind):
        while not self.over.wait(0.02):
            for port in {port for pid in self.pids() for port, _ in sockets_of(pid)}:
                if came_to(port, kind):
                    self.heard[name] += 1

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(15)


class Visited(multi_worker.Case):
    def options(self, steps):
        return ["--data", self.data_of_test, "--epochs", 1, "--steps-per-epoch", steps, "--progress", "json", *self.small]

    def setUp(self):
        super().setUp()
        self.data_of_test = self.data()
        self.ports = multi_worker.free_ports(2)

    def worker(self, rank, steps, **variables):
        return self.start(BIN / "mnist_multi_worker", *self.options(steps), "--report", self.dir / f"r{rank}.json",
                          TF_CONFIG=multi_worker.tf_config(self.ports, rank), **variables)

    def digest(self, jobs, steps):
        for job in jobs:
            self.ends(job, 0)
        report = self.report_of("r0.json")
        self.assertEqual((report["workers"], report["steps"]), (2, steps))
        (self.dir / "r0.json").unlink()
        return report["weights_sha256"]

    def undisturbed(self, steps):
        return self.digest([self.worker(0, steps), self.worker(1, steps)], steps)

    def test_strangers_do_not_change_a_bit_of_a_job_that_starts_and_runs(self):
        steps = 400
        expected = self.undisturbed(steps)
        for variables in ({}, {"LOCKSTEP_SECRET": SECRET}):
            variables["LOCKSTEP_TRANSPORT"] = "tcp"  # over shared memory there are fewer ports
            with self.subTest(variables):
                jobs = [self.worker(0, steps, **variables)]
                strangers = Strangers(lambda: [job.popen.pid for job in jobs])
                try:
                    time.sleep(0.5)  # strangers are first
                    jobs.append(self.worker(1, steps, **variables))
                    self.assertEqual(self.digest(jobs, steps), expected)
                finally:
                    strangers.end()
                self.assertTrue(all(strangers.heard.values()), strangers.heard)

    def test_a_burst_of_strangers_takes_less_than_one_percent_of_a_core_from_the_job(self):
        steps = 100_000
        jobs = [self.worker(rank, steps) for rank in range(2)]
        self.await_text(jobs[0], '"step":2,')
        thread = control_thread(jobs[0].popen.pid, self.ports[0])

        def share(seconds):
            def used():
                return int((thread / "schedstat").read_text().split()[0]) / 1e9

            before, began = used(), time.monotonic()
            time.sleep(seconds)
            return (used() - before) / (time.monotonic() - began)

        window = 4
        alone = share(window)
        kinds = [*["hang"] * 200, *["scan"] * 100, "http", "tls", "random", "drip"]
        visits = [threading.Thread(target=came_to, args=(self.ports[0], KINDS[kind])) for kind in kinds]
        for visit in visits:
            visit.start()
        visited = share(window)
        for visit in visits:
            visit.join(15)
        print(f"control thread: {100 * alone:.2f} % of a core, {100 * visited:.2f} % with strangers", flush=True)
        self.assertLess(visited - alone, 0.01)
        self.assertEqual([job.popen.poll() for job in jobs], [None, None])

    def test_strangers_at_data_ports_while_the_workers_connect_do_not_change_a_bit(self):
        steps = 3
        expected = self.undisturbed(steps)
        for name in ("scan", "http", "tls", "random", "hang", "drip"):
            with self.subTest(name):
                came = []
                for _ in range(25):  # a loaded machine may miss the moment
                    chief, other = jobs = [self.worker(rank, steps, LOCKSTEP_TRANSPORT="tcp") for rank in range(2)]
                    # The chief now opens its port for data, and the other one cannot come there yet.
                    with chief.err.open("rb", buffering=0) as log:
                        while b"job of 2 workers" not in os.pread(log.fileno(), 4096, 0):
                            self.assertIsNone(chief.popen.poll(), chief.stderr())
                    other.popen.send_signal(signal.SIGSTOP)
                    stopped = time.monotonic()
                    visit = None
                    while visit is None and time.monotonic() < stopped + 0.2:
                        for port, state in sockets_of(chief.popen.pid) - {(self.ports[0], LISTENS)}:
                            if state == LISTENS:
                                visit = threading.Thread(target=lambda at: came.append(came_to(at, KINDS[name])), args=(port,))
                                visit.start()
                                break
                    time.sleep(0.5)
                    other.popen.send_signal(signal.SIGCONT)
                    self.assertEqual(self.digest(jobs, steps), expected)
                    if visit is not None:
                        visit.join(15)
                    if any(came):
                        break
                self.assertTrue(any(came))


if __name__ == "__main__":
    unittest.main(verbosity=1)
