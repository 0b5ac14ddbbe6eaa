"""mnist_multi_worker on hosts with several network interfaces, and on hosts that have only IPv6 addresses.

Each host is a network namespace, as in network.py. Skipped where this user cannot make any.
"""

import subprocess
import unittest

import network
from network import BIN, PORT, SECRET, ip, needs_namespaces


class TwoInterfaces(network.Namespaces):
    """Host i also has a cable named `fast`, with the address 10.78.0.(i + 1), to a switch of its own."""

    def __init__(self, count):
        super().__init__(count)
        try:
            ip("-n", self.switch, "link", "add", "fastbridge", "up", "type", "bridge")
            for i, name in enumerate(self.names):
                ip("-n", self.switch, "link", "add", f"fast{i}", "type", "veth", "peer", "name", "fast", "netns", name)
                ip("-n", self.switch, "link", "set", f"fast{i}", "up", "master", "fastbridge")
                ip("-n", name, "address", "add", f"10.78.0.{i + 1}/24", "dev", "fast")
                ip("-n", name, "link", "set", "fast", "up")
        except BaseException:
            self.remove()
            raise


class Ipv6Only(network.Namespaces):
    """fd77::1, fd77::2, ..."""

    def __init__(self, count):
        super().__init__(count)
        try:
            for i, name in enumerate(self.names):
                ip("-n", name, "-4", "address", "flush", "dev", "cable")
                ip("-n", name, "-4", "address", "flush", "dev", "lo")
                ip("-n", name, "address", "add", f"fd77::{i + 1}/64", "dev", "cable", "nodad")
        except BaseException:
            self.remove()
            raise
        self.addresses = [f"[fd77::{i + 1}]" for i in range(count)]


@needs_namespaces
class Interfaces(network.Case):
    def hosts_of(self, kind, count):
        hosts = kind(count)
        self.addCleanup(hosts.remove)
        return hosts

    def connections(self, hosts, host):
        """The established connections of a host, as pairs (own address, peer's address) without ports, and whether one of
        the two is the chief's port."""
        done = subprocess.run(hosts.command(host, "ss", "-H", "-t", "-n", "state", "established"), capture_output=True,
                              text=True, timeout=20)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = []
        for line in done.stdout.splitlines():
            here, there = (end.rpartition(":") for end in line.split()[2:4])
            found.append((here[0].strip("[]"), there[0].strip("[]"), str(PORT) in (here[2], there[2])))
        return found

    def test_data_uses_the_interface_of_that_name_or_network(self):
        for selector in ("fast", "10.78.0.0/16"):
            with self.subTest(selector):
                hosts = self.hosts_of(TwoInterfaces, 3)
                jobs = self.job(hosts, "--epochs", 1_000_000, "--progress", "json", LOCKSTEP_SECRET=SECRET,
                                LOCKSTEP_INTERFACE=selector)
                self.await_text(jobs[0], '"step":2,')
                for host in range(3):
                    found = self.connections(hosts, host)
                    self.assertTrue([c for c in found if c[2]], found)  # the rendezvous
                    data = [c for c in found if not c[2]]
                    self.assertTrue(data)
                    for here, there, _ in data:
                        self.assertTrue(here.startswith("10.78.0.") and there.startswith("10.78.0."), data)
                for job in jobs:
                    job.kill()
                hosts.remove()

    def test_the_data_of_a_list_use_all_its_interfaces(self):
        hosts = self.hosts_of(TwoInterfaces, 2)
        jobs = self.job(hosts, "--epochs", 1_000_000, "--progress", "json", LOCKSTEP_SECRET=SECRET, LOCKSTEP_INTERFACE="cable,fast")
        self.await_text(jobs[0], '"step":2,')
        for host in range(2):
            data = sorted(c[:2] for c in self.connections(hosts, host) if not c[2])
            ends = (host + 1, 2 - host)
            pairs = [tuple(f"10.{net}.0.{end}" for end in ends) for net in (77, 78)]
            self.assertEqual(data, [pairs[0]] * 2 + [pairs[1]] * 2)  # one over each, for two groups
        for job in jobs:
            job.kill()

    def test_an_interface_that_does_not_exist_is_refused_with_those_that_do(self):
        hosts = self.hosts_of(TwoInterfaces, 1)
        job = self.start(*hosts.command(0, BIN / "mnist_multi_worker", "--data", self.data_of_test), LOCKSTEP_WORLD_SIZE="2",
                         LOCKSTEP_RANK="0", LOCKSTEP_COORDINATOR=f"10.77.0.1:{PORT}", LOCKSTEP_SECRET=SECRET,
                         LOCKSTEP_INTERFACE="eth9")
        self.ends(job, 2)
        self.assertEqual(job.last_line(), "mnist_multi_worker: LOCKSTEP_INTERFACE=eth9 matches no address of this machine; it has "
                                          "lo (127.0.0.1, ::1), cable (10.77.0.1), fast (10.78.0.1)")

    def test_hosts_that_have_only_ipv6_give_the_bits_of_one_process(self):
        options = ["--epochs", 2, "--virtual-shards", 4, "--quiet"]
        expected = self.digest_of_one(*options)
        for variables in ({}, {"LOCKSTEP_INTERFACE": "fd77::/16"}):
            with self.subTest(variables):
                hosts = self.hosts_of(Ipv6Only, 4)
                for job in self.job(hosts, *options, LOCKSTEP_SECRET=SECRET, **variables):
                    self.ends(job, 0)
                report = self.report_of("r0.json")
                self.assertEqual((report["workers"], report["weights_sha256"]), (4, expected))
                hosts.remove()


if __name__ == "__main__":
    unittest.main(verbosity=1)
