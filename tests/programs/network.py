"""mnist_multi_worker on several hosts: each is a network namespace with a cable to one switch.

Where that needs rights that this user does not have, the hosts are addresses of the loopback, and what needs a cable to
pull is left out, with a log line. Everything runs in private namespaces, so the machine's network is not touched.
"""

import atexit
import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import contract
import multi_worker

BIN = contract.BIN
PORT = 2222
SECRET = "a secret of this test, and of no other"
SILENT = 3  # seconds, the promise for a host that falls silent; three times as much is asserted
RESET = 1  # the same, for a connection that is reset
CUT = 4  # the same, for a cut between two workers; twice as much is asserted
# Seconds for which a cable is cut, and those that this may take on a busy machine. TCP doubles its timeout before it sends
# again, so a host may stay silent for twice as long as the cut, plus a heartbeat of 0.25; after 2 it is lost. A cut for a
# second is survived only while no acknowledgement is late: the third retransmission comes 1.93 after the last heartbeat.
CUT_FOR = 0.6
REPAIRED = 0.85
PREFIX = "lockstep-net"


def ip(*arguments):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout


def remove_namespace(name):
    """With what still runs in it."""
    for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=20).stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=20)


def remove_namespaces_of_the_dead():
    """Those of tests that were killed before they could remove them."""
    for name in re.findall(rf"^{PREFIX}-\d+-\w+", ip("netns", "list"), re.MULTILINE):
        if not os.path.exists(f"/proc/{name.split('-')[2]}"):
            remove_namespace(name)


def in_namespace(namespace, make):
    """The result of `make` in a network namespace, which only a separate thread enters."""
    made = []

    def enter():
        library, new_network = ctypes.CDLL(None, use_errno=True), 0x40000000
        try:
            with open(f"/run/netns/{namespace}") as file:
                if library.setns(file.fileno(), new_network) != 0:
                    raise OSError(ctypes.get_errno(), f"setns to {namespace}")
            made.append(make())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


class Namespaces:
    """Hosts 10.77.0.1, 10.77.0.2, ... The cable of a host ends in its switch, which has no address; without a bridge, in
    a port that passes nothing on."""

    def __init__(self, count, bridge=True):
        self.addresses = [f"10.77.0.{i + 1}" for i in range(count)]
        self.switch = f"{PREFIX}-{os.getpid()}-switch"
        self.names = [f"{PREFIX}-{os.getpid()}-{i}" for i in range(count)]
        self.sockets = []
        atexit.register(self.remove)  # after Ctrl-C
        try:
            for name in (self.switch, *self.names):
                ip("netns", "add", name)
            if bridge:
                ip("-n", self.switch, "link", "add", "bridge", "up", "type", "bridge")
            for i, (name, address) in enumerate(zip(self.names, self.addresses)):
                ip("-n", self.switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "cable", "netns", name)
                ip("-n", self.switch, "link", "set", f"port{i}", "up", *(("master", "bridge") if bridge else ()))
                ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", "cable", "up")
                self.sockets.append(in_namespace(name, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        except BaseException:
            self.remove()
            raise

    def remove(self):
        for end in self.sockets:
            end.close()
        for name in (*self.names, self.switch):
            remove_namespace(name)
        atexit.unregister(self.remove)

    def command(self, host, *command):
        return ["ip", "netns", "exec", self.names[host], *command]

    def switch_cable(self, host, up):
        """Without a command, since these start late on a busy machine."""
        get, set_, form, is_up = 0x8913, 0x8914, "16sh14x", 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, struct ifreq, IFF_UP
        name, flags = struct.unpack(form, fcntl.ioctl(self.sockets[host], get, struct.pack(form, b"cable", 0)))
        fcntl.ioctl(self.sockets[host], set_, struct.pack(form, name, flags | is_up if up else flags & ~is_up))

    def cut(self, host):
        self.switch_cable(host, False)

    def repair(self, host):
        self.switch_cable(host, True)

    def expect_small_frames(self, host):
        """One segment a frame, and no selective acknowledgements: for who changes segments."""
        ip("-n", self.names[host], "link", "set", "cable", "gso_max_segs", 1)
        subprocess.run(self.command(host, "sh", "-c", "echo 0 >/proc/sys/net/ipv4/tcp_sack"), check=True, timeout=20)

    def cut_between(self, a, b):
        """Neither of the two receives what the other sends, which goes to no machine; all others hear both."""
        for host, other in ((a, b), (b, a)):
            ip("-n", self.names[host], "neighbour", "replace", self.addresses[other], "lladdr", "02:00:00:00:00:99",
               "dev", "cable", "nud", "permanent")

    def heal_between(self, a, b):
        for host, other in ((a, b), (b, a)):
            ip("-n", self.names[host], "neighbour", "delete", self.addresses[other], "dev", "cable")

    def drop_silently(self, host):
        """The cable stays up, but the switch takes nothing from it any more."""
        ip("-n", self.switch, "link", "set", f"port{host}", "nomaster")


class Loopback:
    """127.77.0.1, ...: all of 127.0.0.0/8 is this machine."""

    def __init__(self, count):
        self.addresses = [f"127.77.0.{i + 1}" for i in range(count)]

    def remove(self):
        pass

    def command(self, host, *command):
        return list(command)


def why_no_namespaces():
    try:
        remove_namespaces_of_the_dead()
        Namespaces(1).remove()
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


WHY_NOT = why_no_namespaces()
needs_namespaces = unittest.skipIf(WHY_NOT, f"needs network namespaces, which this user cannot make: {WHY_NOT}")


class Case(multi_worker.Case):
    def hosts(self, count):
        hosts = (Loopback if WHY_NOT else Namespaces)(count)
        self.addCleanup(hosts.remove)
        return hosts

    def job(self, hosts, *arguments, **variables):
        """A worker on each host."""
        addresses = [f"{address}:{PORT}" for address in hosts.addresses]
        return [self.start(*hosts.command(i, BIN / "mnist_multi_worker", "--data", self.data_of_test, "--report",
                                          self.dir / f"r{i}.json", "--threads", 1, *arguments),
                           TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}),
                           **variables)
                for i in range(len(addresses))]

    def setUp(self):
        super().setUp()
        self.data_of_test = self.data()

    def digest_of_one(self, *options):
        path = self.dir / "one.json"
        self.ends(self.start(BIN / "mnist", "--data", self.data_of_test, "--report", path, "--threads", 1, "--quiet", *options), 0)
        return self.report_of(path.name)["weights_sha256"]


class Hosts(Case):
    shards = ["--epochs", 2, "--virtual-shards", 4]

    def test_four_hosts_give_the_bits_of_one_process(self):
        options = [*self.shards, "--quiet"]
        expected = self.digest_of_one(*options)
        jobs = self.job(self.hosts(4), *options, LOCKSTEP_SECRET=SECRET)
        for job in jobs:
            self.ends(job, 0)
        report = self.report_of("r0.json")
        self.assertEqual((report["workers"], report["weights_sha256"]), (4, expected))

    def test_hosts_without_a_secret_are_refused(self):
        hosts = Loopback(2)
        hosts.addresses = ["10.77.0.1", "10.77.0.2"]  # not even looked for
        if not WHY_NOT:
            hosts = self.hosts(2)
        began = time.monotonic()
        for job in self.job(hosts, *self.shards, "--quiet"):
            self.ends(job, 2)
            for text in ("10.77.0.1:2222", "secret", "LOCKSTEP_SECRET_FILE", "LOCKSTEP_INSECURE"):
                self.assertIn(text, job.last_line())
        self.assertLess(time.monotonic() - began, 10)  # nobody has waited for the other

    def test_an_openssl_configuration_that_allows_no_cipher_of_128_bits_is_named(self):
        configuration = self.dir / "openssl.cnf"
        configuration.write_text("openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n[tls]\n"
                                 "CipherString = DEFAULT@SECLEVEL=4\n")
        for job in self.job(Loopback(2), *self.shards, "--quiet", LOCKSTEP_SECRET=SECRET, OPENSSL_CONF=str(configuration)):
            self.ends(job, 2)
            for text in ("SECLEVEL=4", "OPENSSL_CONF"):
                self.assertIn(text, job.last_line())

    @needs_namespaces
    def test_hosts_that_trust_their_network_need_no_secret(self):
        for job in self.job(self.hosts(2), *self.shards, "--quiet", LOCKSTEP_INSECURE="1"):
            self.ends(job, 0)


@needs_namespaces
class Cables(Case):
    def train(self, hosts, *arguments, **variables):
        jobs = self.job(hosts, "--progress", "json", *arguments, LOCKSTEP_SECRET=SECRET, **variables)
        self.await_text(jobs[0], '"step":2,')
        return jobs

    def times_to_report(self, jobs, rank):
        """Seconds until each of `jobs` has named `rank`; all end then, with 3."""
        began, times = time.monotonic(), {}
        reported = re.compile(rf"^mnist_multi_worker: rank {rank} \(10\.77\.0\.{rank + 1}:{PORT}\) ", re.MULTILINE)
        while len(times) < len(jobs):
            now = time.monotonic() - began
            self.assertLess(now, 3 * SILENT, [job.stderr() for job in jobs])
            times.update({i: now for i, job in enumerate(jobs) if i not in times and reported.search(job.stderr())})
            time.sleep(0.005)
        for job in jobs:
            self.assertEqual(job.wait(10), 3, job.stderr())
        return sorted(times.values())

    def host_falls_silent(self, what, lost, act):
        hosts = self.hosts(4)
        jobs = self.train(hosts, "--epochs", 1_000_000)
        act(hosts)
        times = self.times_to_report([job for i, job in enumerate(jobs) if i != lost], lost)
        print(f"{what}: named by the three others after {', '.join(f'{t:.2f}' for t in times)} s", flush=True)
        # The isolated worker ends too, and reports its isolation.
        self.assertEqual(jobs[lost].wait(10), 3, jobs[lost].stderr())
        self.assertRegex(jobs[lost].last_line(), rf"^mnist_multi_worker: rank (?!{lost} )\d \(")

    def test_a_host_whose_cable_is_cut_is_named_by_all_others(self):
        self.host_falls_silent("rank 2, cut off", 2, lambda hosts: hosts.cut(2))

    def test_a_host_whose_packets_are_lost_is_named_by_all_others(self):
        self.host_falls_silent("rank 0, packets lost", 0, lambda hosts: hosts.drop_silently(0))

    def cut_between(self, a, b, *options, **variables):
        """A cut between two workers of three: all name the pair; how long that took."""
        hosts = self.hosts(3)
        jobs = self.job(hosts, "--progress", "json", *options, LOCKSTEP_SECRET=SECRET, **variables)
        self.await_text(jobs[0], '"step":2,')
        hosts.cut_between(a, b)
        began = time.monotonic()
        for job in jobs:
            self.assertEqual(job.wait(30), 3, job.stderr())
        took = time.monotonic() - began
        for job in jobs:
            words = job.last_line()
            for rank in (a, b):
                self.assertRegex(words, rf"rank {rank} \((worker:{rank}, )?10\.77\.0\.{rank + 1}:{PORT}\)")
            self.assertIn("which is alive too, failed: no data sent over it was acknowledged for", words)
        self.assertEqual(len({re.sub(r"; the last step.*", "", job.last_line()) for job in jobs}), 1)  # one cause
        print(f"a cut between ranks {a} and {b}: all ended after {took:.2f} s: {jobs[0].last_line()}", flush=True)
        return took

    def test_a_cut_between_two_workers_is_named_as_the_pair(self):
        self.assertLess(self.cut_between(1, 2, "--epochs", 1_000_000), 2 * CUT)

    def check_silence_that_was_set(self):
        """A cut is noticed after LOCKSTEP_SILENCE_TIMEOUT. Run by network_slow.py."""
        took = self.cut_between(1, 2, "--epochs", 1_000_000, LOCKSTEP_SILENCE_TIMEOUT="4")
        self.assertGreater(took, 4)
        self.assertLess(took, 2 * (CUT + 2))

    def reset(self, host, connections):
        """Whom the ranks name when `connections` of a host are reset under them."""
        hosts = self.hosts(4)
        jobs = self.train(hosts, "--epochs", 1_000_000)
        done = subprocess.run(hosts.command(host, "ss", "-K", "-H", "-t", "state", "established", connections),
                              capture_output=True, text=True, timeout=20)
        if "10.77" not in done.stdout:
            self.skipTest(f"the system resets no connection for ss -K: {done.stderr.strip()}")
        began = time.monotonic()
        named = []
        for job in jobs:
            code = job.wait(5)
            self.assertEqual(code, 3, job.stderr())
            named.append(re.match(r"mnist_multi_worker: (rank \d)", job.last_line()).group(1))
        took = time.monotonic() - began
        self.assertLess(took, 3 * RESET)
        print(f"{connections} reset on rank {host}: all ended after {took:.2f} s and named {', '.join(named)}", flush=True)
        return named

    def test_a_data_connection_that_is_reset_has_one_cause_for_all(self):
        named = set(self.reset(0, f"dst 10.77.0.3 and not sport = {PORT}"))
        self.assertIn(named, [{"rank 0"}, {"rank 2"}])

    def test_a_worker_whose_connection_to_the_chief_is_reset_names_the_chief(self):
        self.assertEqual(self.reset(1, f"dport = {PORT}"), ["rank 1", "rank 0", "rank 1", "rank 1"])  # not those of data

    def cut_and_repaired(self, options):
        """For how many seconds the cable was cut. All workers must end well, unless that was too long."""
        hosts = self.hosts(4)
        jobs = self.train(hosts, *options)
        began = time.monotonic()
        hosts.cut(2)
        time.sleep(CUT_FOR)
        still_run = [job.popen.poll() for job in jobs] == [None] * 4
        hosts.repair(2)
        lasted = time.monotonic() - began
        if lasted <= REPAIRED:
            self.assertTrue(still_run, [job.stderr() for job in jobs])
            for job in jobs:
                self.ends(job, 0)
        for job in jobs:
            job.kill()
        hosts.remove()
        return lasted

    def test_a_cable_that_is_repaired_before_a_host_is_lost_changes_nothing(self):
        options = ["--epochs", 30, "--virtual-shards", 4]
        expected = self.digest_of_one(*options)
        cuts = []
        while not cuts or cuts[-1] > REPAIRED:
            if len(cuts) == 5:
                self.skipTest(f"the machine is too busy to repair a cable within {REPAIRED} s; it took {cuts} s")
            cuts.append(self.cut_and_repaired(options))
        self.assertEqual(self.report_of("r0.json")["weights_sha256"], expected)

    def check_a_cut_of_half_a_minute_between_synchronisations(self):
        """Rounds of local steps are the same, if LOCKSTEP_SILENCE_TIMEOUT is longer. Run by network_slow.py."""
        options = ["--optimizer", "adam", "--epochs", 400, "--update", "diloco", "--sync-every", 2]
        reports = []
        for cut in (0, 30):
            hosts = self.hosts(2)
            jobs = self.train(hosts, *options, "--stall-timeout", 240, LOCKSTEP_SILENCE_TIMEOUT="120")
            if cut > 0:
                hosts.cut(1)
                time.sleep(cut)
                self.assertEqual([job.popen.poll() for job in jobs], [None] * 2, [job.stderr() for job in jobs])
                hosts.repair(1)
            for job in jobs:
                self.assertEqual(job.wait(180), 0, job.stderr())
            hosts.remove()
            reports.append(self.report_of("r0.json"))
        self.assertEqual(reports[0]["weights_sha256"], reports[1]["weights_sha256"])
        self.assertEqual(reports[0]["step_loss"], reports[1]["step_loss"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
