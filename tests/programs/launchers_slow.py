"""Jobs as Kubeflow and others describe them, by mnist_multi_worker on two hosts that are network namespaces. Needs root."""

import json
import os
import shutil
import sys
import time
import unittest

import multi_worker
import network

BIN = multi_worker.BIN


class Launchers(multi_worker.Case):
    def setUp(self):
        super().setUp()
        self.options = ["--data", self.data(), "--epochs", "1", "--threads", "1", "--quiet"]
        network.remove_namespaces_of_the_dead()
        self.hosts = network.Namespaces(2)
        self.addCleanup(self.hosts.remove)

    def worker(self, host, **variables):
        return self.start(*self.hosts.command(host, BIN / "mnist_multi_worker", *self.options), LOCKSTEP_SECRET=network.SECRET,
                          LOCKSTEP_RENDEZVOUS_TIMEOUT="30", **variables)

    def train(self, workers):
        for worker in workers:
            self.ends(worker, 0)

    def test_the_master_of_a_pytorchjob_has_localhost_or_no_address(self):
        job = {"WORLD_SIZE": "2", "MASTER_PORT": "23456"}
        for own in ({"MASTER_ADDR": "localhost"}, {}):
            with self.subTest(own):
                self.train([self.worker(0, RANK="0", **job, **own),
                            self.worker(1, RANK="1", **job, MASTER_ADDR=self.hosts.addresses[0])])

    def test_the_runtime_of_kubeflow_trainer(self):
        job = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto", "PET_MASTER_ADDR": self.hosts.addresses[0],
               "PET_MASTER_PORT": "29400"}
        self.train([self.worker(host, PET_NODE_RANK=str(host), **job) for host in range(2)])

    def test_link_local_addresses_with_other_names_of_the_interface(self):
        zones = ["cable", "enp1s0"]
        for change in (["down"], ["name", zones[1]]):
            network.ip("-n", self.hosts.names[1], "link", "set", "cable", *change)
        network.ip("-n", self.hosts.names[1], "link", "set", zones[1], "up")
        addresses = [self.link_local(host, zone) for host, zone in enumerate(zones)]

        def description(host):
            workers = [f"[{address}%{zones[host]}]:12345" for address in addresses]
            return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": host}})

        self.train([self.worker(host, TF_CONFIG=description(host)) for host in range(2)])

    def link_local(self, host, zone):
        """The address, once the kernel has found that no other host has it."""
        end = time.monotonic() + multi_worker.DEADLINE
        while time.monotonic() < end:
            for line in network.ip("-n", self.hosts.names[host], "-6", "address", "show", "dev", zone).splitlines():
                words = line.split()
                if words[:1] == ["inet6"] and words[1].startswith("fe80") and "tentative" not in words:
                    return words[1].split("/")[0]
            time.sleep(0.05)
        raise AssertionError(f"{zone} has no link-local address")

    def test_services_of_kubernetes(self):
        services = {"LOCKSTEP_PORT": "tcp://10.96.0.7:12345", "LOCKSTEP_SERVICE_HOST": "10.96.0.7",
                    "MASTER_PORT": "tcp://10.96.0.8:80"}
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": self.hosts.addresses[0], **services}
        self.train([self.worker(host, RANK=str(host), **job) for host in range(2)])
        self.train([self.start(BIN / "lockstep-run", "-n", 2, BIN / "mnist_multi_worker", *self.options, **services)])


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("ip"):
        print("left out: needs root and ip (apt install iproute2), for network namespaces")
        sys.exit(4)
    unittest.main(verbosity=1)
