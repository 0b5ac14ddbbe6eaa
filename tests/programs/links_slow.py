"""mnist_multi_worker on hosts with poor links: frames are lost, late or few, packets are small or large, some hosts cannot
reach others. The training has the bits of one process, or the job ends for all in time.
"""

import heapq
import itertools
import random
import select
import subprocess
import time
import unittest

import network
import tampering

QUEUE = 256 << 10  # bytes that a slow link holds back before it drops frames
OPTIONS = ["--epochs", 1, "--virtual-shards", 4]


class PoorLink(tampering.ManInTheMiddle):
    """The cable between two hosts. `loss` is a share of the frames with TCP, `delay` and `jitter` are in seconds in each
    direction, `rate` is in bytes a second."""

    def __init__(self, hosts, loss=0.0, delay=0.0, jitter=0.0, rate=None):
        self.loss, self.delay, self.jitter, self.rate = loss, delay, jitter, rate
        self.random, self.numbers = random.Random(7), itertools.count()
        self.waiting, self.free = [], {}  # frames by time; when each direction is free again
        self.lost = self.passed = 0
        super().__init__(hosts, None, 0)

    def run(self):
        while not self.stop.is_set():
            left = self.waiting[0][0] - time.monotonic() if self.waiting else 0.01
            for end in select.select(self.ends, [], [], min(max(left, 0), 0.01))[0]:
                frame, address = end.recvfrom(1 << 17)
                if address[2] != tampering.OUTGOING:
                    self.forward(frame, self.ends[1 - self.ends.index(end)])
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                self.send(*heapq.heappop(self.waiting)[2:])

    def forward(self, frame, other):
        now = time.monotonic()
        if tampering.Segment.is_one(frame):
            frame = tampering.Segment(frame).frame()  # whose checksum the kernel has left to hardware
            if self.random.random() < self.loss:
                self.lost += 1
                return
        self.passed += 1
        arrives = now
        if self.rate:
            begins = max(now, self.free.get(other, now))
            if (begins - now) * self.rate > QUEUE:
                self.lost += 1
                return
            arrives = self.free[other] = begins + len(frame) / self.rate
        arrives += self.delay + self.random.uniform(-self.jitter, self.jitter)
        heapq.heappush(self.waiting, (arrives, next(self.numbers), other, frame))


class Case(network.Case):
    @classmethod
    def setUpClass(cls):
        if network.WHY_NOT:
            raise unittest.SkipTest(f"needs network namespaces, which this user cannot make: {network.WHY_NOT}")

    def trains_as_one(self, jobs, options=()):
        expected = self.digest_of_one(*OPTIONS, *options)
        for job in jobs:
            self.assertEqual(job.wait(240), 0, job.stderr())
        self.assertEqual(self.report_of("r0.json")["weights_sha256"], expected)


class Links(Case):
    def train(self, what, *options, limits=(), loses=False, **link):
        hosts = network.Namespaces(2, bridge=False)
        for i in range(2):
            hosts.expect_small_frames(i)
        between = PoorLink(hosts, **link)
        try:
            began = time.monotonic()
            jobs = self.job(hosts, *OPTIONS, "--quiet", *options, *limits, LOCKSTEP_SECRET=network.SECRET)
            self.trains_as_one(jobs, options)
        finally:
            between.close()
            hosts.remove()
        print(f"{what}: {time.monotonic() - began:.1f} s, {between.passed} frames passed, {between.lost} lost", flush=True)
        self.assertGreater(between.passed, 100)
        if loses:
            self.assertGreater(between.lost, 0)

    def test_lost_frames_change_nothing(self):
        for loss in (0.001, 0.01, 0.05):
            with self.subTest(loss=loss):
                self.train(f"{loss:.1%} of the frames lost", loses=loss > 0.005, loss=loss)

    def test_late_frames_change_nothing(self):
        for delay, jitter in ((0.001, 0.001), (0.05, 0.02), (0.5, 0.1)):
            with self.subTest(delay=delay):
                self.train(f"{1000 * delay:.0f} ms in each direction", delay=delay, jitter=jitter)

    def test_slow_links_change_nothing(self):
        for megabits in (10, 1):
            with self.subTest(megabits=megabits):
                # A step exchanges 1.4 MB in each direction, which takes longer than the limit.
                self.train(f"{megabits} Mbit/s", "--steps-per-epoch", 2, limits=("--stall-timeout", 1, "--idle-timeout", 1),
                           rate=megabits * 125_000)


class Hosts(Case):
    def test_packets_of_any_size_give_the_same_bits(self):
        hosts = self.hosts(4)
        for i, mtu in enumerate((576, 1300, 1500, 9000)):
            network.ip("-n", hosts.switch, "link", "set", f"port{i}", "mtu", mtu)
            network.ip("-n", hosts.names[i], "link", "set", "cable", "mtu", mtu)
        self.trains_as_one(self.job(hosts, *OPTIONS, "--quiet", LOCKSTEP_SECRET=network.SECRET))

    def set(self, hosts, name, value):
        """A setting of the kernel for TCP, on all hosts."""
        for i in range(len(hosts.addresses)):
            done = subprocess.run(hosts.command(i, "sh", "-c", f"echo {value} >/proc/sys/net/ipv4/{name}"), capture_output=True,
                                  text=True, timeout=20)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_small_buffers_give_the_same_bits(self):
        hosts = self.hosts(4)
        for name in ("tcp_wmem", "tcp_rmem"):
            self.set(hosts, name, "4096 8192 16384")
        self.trains_as_one(self.job(hosts, *OPTIONS, "--quiet", LOCKSTEP_SECRET=network.SECRET))

    def test_hosts_with_few_ephemeral_ports_train_or_name_the_cause(self):
        """A host needs one for its data port, and one for each connection to the same peer."""
        for ports in (40, 4, 1):
            with self.subTest(ports=ports):
                hosts = network.Namespaces(4)
                try:
                    self.set(hosts, "ip_local_port_range", f"40001 {40000 + ports}")
                    jobs = self.job(hosts, *OPTIONS, "--quiet", LOCKSTEP_SECRET=network.SECRET, LOCKSTEP_RENDEZVOUS_TIMEOUT="5")
                    codes = [job.wait(60) for job in jobs]
                finally:
                    hosts.remove()
                if ports == 40:
                    self.assertEqual(codes, [0] * 4, [job.stderr() for job in jobs])
                elif codes != [0] * 4:
                    for job in jobs:
                        self.assertRegex(job.last_line(), r"data connections: (replica \d .* within \d+ ms|cannot listen)")

    def ends_for_all(self, what, cut, named):
        """All workers end with 3 within the promise for a cut, after `cut(hosts)`; `named` is a pattern of their reports."""
        hosts = self.hosts(4)
        jobs = self.job(hosts, "--progress", "json", "--epochs", 1_000_000, "--save", self.dir / "weights",
                        LOCKSTEP_SECRET=network.SECRET)
        self.await_text(jobs[0], '"step":2,')
        cut(hosts)
        began = time.monotonic()
        for job in jobs:
            self.assertEqual(job.wait(30), 3, job.stderr())
            self.assertRegex(job.last_line(), named)
        took = time.monotonic() - began
        self.assertLess(took, 2 * network.CUT)
        print(f"{what}: all ended after {took:.2f} s: {jobs[0].last_line()}", flush=True)
        hosts.remove()

    def test_a_cut_in_one_direction_ends_the_job_for_all(self):
        for a, b in ((1, 2), (2, 1), (0, 3), (3, 0)):
            with self.subTest(a=a, b=b):
                # Packets from a to b go to no machine; those from b to a arrive.
                self.ends_for_all(f"no packets from {a} to {b}", lambda hosts: network.ip(
                    "-n", hosts.names[a], "neighbour", "replace", hosts.addresses[b], "lladdr", "02:00:00:00:00:99",
                    "dev", "cable", "nud", "permanent"), rf"rank ({a}|{b}) \(")

    def test_a_partition_ends_the_job_for_all(self):
        for groups in (((0, 1), (2, 3)), ((0, 2, 3), (1,)), ((0,), (1, 2, 3))):
            with self.subTest(groups=groups):
                def cut(hosts):
                    for a, b in itertools.product(*groups):
                        hosts.cut_between(a, b)
                self.ends_for_all(f"{groups[0]} and {groups[1]} cut", cut, r"rank \d \(")
                self.assertFalse((self.dir / "weights").exists())


if __name__ == "__main__":
    unittest.main(verbosity=1)
