"""Jobs on hosts that do not see each other as they are: with sidecars, with published ports, with names that DNS learns late
or that /etc/hosts maps to a loopback address, with frames that the network drops.

Each host is a network namespace, as in network.py. Skipped where this user cannot make any.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import unittest

import network
from network import BIN, SECRET, ip, needs_namespaces

JOB, DATA = 12345, "12346-12347"  # an elastic job needs two
ACCEPTS = """table ip nat {{
  chain before {{ type nat hook prerouting priority -100; tcp dport {{ {job}, {data} }} redirect to :15006
  }}
}}
"""
PUBLISHED = """table ip nat {{
  chain before {{ type nat hook prerouting priority -100; ip daddr {host} tcp dport {{ {job}, {data} }} dnat to 172.17.0.2
  }}
  chain after {{ type nat hook postrouting priority 100; ip saddr 172.17.0.0/24 ip daddr 10.77.0.0/24 masquerade
  }}
}}
"""
LARGE_FRAMES = """table bridge filter {
  chain across { type filter hook forward priority 0; meta length > 1500 drop
  }
}
"""


def proxy(source):
    """A sidecar: accepts what arrives for the job's ports, and passes it on from another address of this host."""
    def copy(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (a, b):
                end.close()

    with socket.create_server(("0.0.0.0", 15006), backlog=64) as server:
        print("ready", flush=True)
        while True:
            client, _ = server.accept()
            port, address = struct.unpack("!2xH4s8x", client.getsockopt(socket.SOL_IP, 80, 16))  # SO_ORIGINAL_DST
            target = "127.0.0.1" if source == "127.0.0.1" else socket.inet_ntoa(address)
            try:
                app = socket.create_connection((target, port), source_address=(source, 0))
            except OSError:
                client.close()
                continue
            for pair in ((client, app), (app, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()


def filter_packets(namespace, rules):
    subprocess.run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], input=rules, text=True, check=True, timeout=20)


class Sidecars(network.Namespaces):
    def __init__(self, count, source):
        self.proxies = []
        super().__init__(count)
        try:
            for name in self.names:
                filter_packets(name, ACCEPTS.format(job=JOB, data=DATA))
                self.proxies.append(subprocess.Popen(["ip", "netns", "exec", name, sys.executable, __file__, "--proxy", source],
                                                     stdout=subprocess.PIPE))
            for one in self.proxies:
                one.stdout.readline()
        except BaseException:
            self.remove()
            raise

    def remove(self):
        for one in self.proxies:
            one.kill()
            one.wait()
            one.stdout.close()
        self.proxies = []
        super().remove()


class Containers(network.Namespaces):
    """Each host runs a container, always 172.17.0.2, and publishes its two ports."""

    def __init__(self, count):
        super().__init__(count)
        try:
            hosts = list(self.names)
            for i, host in enumerate(hosts):
                inner = f"{network.PREFIX}-{os.getpid()}-container{i}"
                ip("netns", "add", inner)
                self.names.append(inner)
                ip("link", "add", "docker0", "netns", host, "type", "veth", "peer", "name", "eth0", "netns", inner)
                ip("-n", host, "address", "add", "172.17.0.1/24", "dev", "docker0")
                ip("-n", host, "link", "set", "docker0", "up")
                ip("-n", inner, "address", "add", "172.17.0.2/24", "dev", "eth0")
                for link in ("lo", "eth0"):
                    ip("-n", inner, "link", "set", link, "up")
                ip("-n", inner, "route", "add", "default", "via", "172.17.0.1")
                subprocess.run(["ip", "netns", "exec", host, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"], check=True,
                               timeout=20)
                filter_packets(host, PUBLISHED.format(host=self.addresses[i], job=JOB, data=DATA))
        except BaseException:
            self.remove()
            raise

    def command(self, host, *command):
        return ["ip", "netns", "exec", self.names[len(self.addresses) + host], *command]


@needs_namespaces
class Proxies(network.Case):
    def workers(self, hosts, *arguments, program="mnist_multi_worker", names=None, own=lambda i: {}, before=lambda i: [],
                **variables):
        addresses = [f"{name}:{JOB}" for name in names or hosts.addresses]
        if program == "mnist_multi_worker":
            arguments = ("--data", self.data_of_test, "--epochs", 1, "--quiet", "--threads", 1, *arguments)
        jobs = []
        for i in range(len(addresses)):
            votes = self.dir / f"votes{i}"
            votes.mkdir(mode=0o700, exist_ok=True)
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            jobs.append(self.start(*hosts.command(i, *before(i), BIN / program, *arguments), TF_CONFIG=json.dumps(config),
                                   LOCKSTEP_SECRET=SECRET, LOCKSTEP_ELASTIC_DIRECTORY=str(votes), **variables, **own(i)))
        return jobs

    def all_end(self, jobs, code):
        for job in jobs:
            self.ends(job, code)

    def test_a_job_trains_behind_sidecars(self):
        for source in ("127.0.0.6", "127.0.0.1"):
            for elastic in ({}, {"LOCKSTEP_MIN_WORKERS": "2"}):
                with self.subTest(source=source, **elastic):
                    hosts = Sidecars(3, source)
                    try:
                        self.all_end(self.workers(hosts, LOCKSTEP_BIND="0.0.0.0", LOCKSTEP_DATA_PORTS=DATA, **elastic), 0)
                    finally:
                        hosts.remove()

    def test_a_job_trains_in_containers_with_published_ports(self):
        hosts = Containers(3)
        self.addCleanup(hosts.remove)
        common = {"LOCKSTEP_BIND": "0.0.0.0", "LOCKSTEP_DATA_PORTS": DATA}
        for elastic in ({}, {"LOCKSTEP_MIN_WORKERS": "2"}):
            with self.subTest(**elastic):
                self.all_end(self.workers(hosts, own=lambda i: {"LOCKSTEP_DATA_ADDRESS": hosts.addresses[i]}, **common,
                                          **elastic), 0)
        jobs = self.workers(hosts, **common, LOCKSTEP_MESH_TIMEOUT="2")
        self.all_end(jobs, 3)
        self.assertIn("would both exchange data at 172.17.0.2", jobs[0].stderr())

    def names(self, hosts, text):
        """A command that gives host i a file of its own for /etc/hosts; and the files."""
        files = []
        for i in range(len(hosts.addresses)):
            files.append(self.dir / f"hosts{i}")
            files[i].write_text(text(i))
        return files, lambda i: ["unshare", "-m", "sh", "-c",
                                 f'mount --make-rprivate / && mount --bind {files[i]} /etc/hosts && exec "$@"', "sh"]

    def test_a_name_that_is_a_loopback_address_of_its_own_host(self):
        for elastic in ({}, {"LOCKSTEP_MIN_WORKERS": "2"}):
            with self.subTest(**elastic):
                hosts = network.Namespaces(3)
                try:
                    _, before = self.names(hosts, lambda own: "127.0.0.1 localhost\n" + "".join(
                        f"{'127.0.1.1' if i == own else address} n{i}\n" for i, address in enumerate(hosts.addresses)))
                    jobs = self.workers(hosts, names=["n0", "n1", "n2"], before=before, **elastic)
                    self.all_end(jobs, 0)
                    self.assertIn("n0 is a loopback address on this machine (127.0.1.1), so it listens at all addresses",
                                  jobs[0].stderr())
                finally:
                    hosts.remove()

    def test_names_that_dns_learns_late(self):
        hosts = network.Namespaces(3)
        self.addCleanup(hosts.remove)
        files, before = self.names(hosts, lambda own: "127.0.0.1 localhost\n")
        jobs = self.workers(hosts, names=["n0", "n1", "n2"], before=before, LOCKSTEP_MIN_WORKERS="2")
        self.await_line(jobs[0], "retrying until the join deadline")
        for file in files:
            with open(file, "a") as end:  # in place: the file is mounted
                end.write("".join(f"{address} n{i}\n" for i, address in enumerate(hosts.addresses)))
        self.all_end(jobs, 0)

    def test_the_doctor_names_frames_that_are_too_large(self):
        hosts = network.Namespaces(2)
        self.addCleanup(hosts.remove)
        for i, name in enumerate(hosts.names):
            ip("-n", name, "link", "set", "cable", "mtu", 9000)
            ip("-n", hosts.switch, "link", "set", f"port{i}", "mtu", 9000)
        filter_packets(hosts.switch, LARGE_FRAMES)
        jobs = self.workers(hosts, program="lockstep-doctor")
        self.all_end(jobs, 1)
        report = jobs[0].stdout() + jobs[0].stderr()
        self.assertIn("small messages pass between them, and large ones do not", report)
        self.assertIn("MTU", report)
        self.assertNotIn("allow TCP", report)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--proxy"]:
        proxy(sys.argv[2])
    unittest.main(verbosity=1)
