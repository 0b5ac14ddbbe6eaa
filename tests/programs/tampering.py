"""mnist_multi_worker on two hosts whose cable ends in a man in the middle, who counts the frames of the data connections
and changes, drops, repeats, delays or cuts one of them: no sum is ever wrong, and a job that cannot go on reports why, in one
sentence. He corrects the checksums and, after dropped or repeated bytes, the sequence numbers, so that the kernels notice nothing.
"""

import array
import json
import re
import select
import socket
import struct
import threading
import time
import unittest

import network

FRAMES = 200
OPTIONS = ["--epochs", 1, "--steps-per-epoch", 3, "--virtual-shards", 4, "--quiet"]
DELAY = 0.4  # seconds, which TCP and the job take for a slow network
ETHERNET, IPV4, TCP = 14, b"\x08\x00", 6
OUTGOING = 4  # PACKET_OUTGOING: frames that this end has sent


def checksum(data):
    total = sum(array.array("H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("=H", ~total & 0xFFFF)


class Segment:
    """A TCP segment in an Ethernet frame, which can be changed."""

    def __init__(self, frame):
        self.head = frame[:ETHERNET]
        length = struct.unpack_from("!H", frame, ETHERNET + 2)[0]
        packet = frame[ETHERNET:ETHERNET + length]  # without padding
        ip_bytes = packet[0] % 16 * 4
        self.ip, tcp = bytearray(packet[:ip_bytes]), packet[ip_bytes:]
        self.tcp, self.payload = bytearray(tcp[:tcp[12] // 16 * 4]), bytearray(tcp[tcp[12] // 16 * 4:])

    @staticmethod
    def is_one(frame):
        return frame[12:14] == IPV4 and frame[ETHERNET + 9] == TCP

    def ports(self):
        return struct.unpack_from("!HH", self.tcp)

    def direction(self):
        """Sender and receiver."""
        source, target = self.ports()
        return (bytes(self.ip[12:16]), source), (bytes(self.ip[16:20]), target)

    def numbers(self):
        return struct.unpack_from("!II", self.tcp, 4)

    def set_numbers(self, sequence, acknowledged):
        struct.pack_into("!II", self.tcp, 4, sequence % 2**32, acknowledged % 2**32)

    def frame(self):
        struct.pack_into("!H", self.ip, 2, len(self.ip) + len(self.tcp) + len(self.payload))
        self.ip[10:12] = b"\0\0"
        self.ip[10:12] = checksum(bytes(self.ip))
        self.tcp[16:18] = b"\0\0"
        data = bytes(self.tcp + self.payload)
        self.tcp[16:18] = checksum(bytes(self.ip[12:20]) + struct.pack("!HH", TCP, len(data)) + data)
        return bytes(self.head + self.ip + self.tcp + self.payload)


def after(a, b):
    """Whether sequence number a is b or a later one."""
    return (a - b) % 2**32 < 2**31


class ManInTheMiddle:
    """Passes frames between ports of the switch. `what` happens to frame `number` of those that carry data of the workers."""

    def __init__(self, hosts, what, number):
        self.what, self.number, self.seen, self.done = what, number, 0, None
        self.shifts = {}  # of a direction's bytes: (from which sequence number on, by how many bytes)
        self.cut, self.late = set(), []
        self.ends = [self.port(hosts, i) for i in range(2)]
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    @staticmethod
    def port(hosts, i):
        made = network.in_namespace(hosts.switch, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        made.bind((f"port{i}", 3))  # ETH_P_ALL
        return made

    def close(self):
        self.stop.set()
        self.thread.join()
        for end in self.ends:
            end.close()

    def run(self):
        while not self.stop.is_set():
            readable = select.select(self.ends, [], [], 0.01)[0]
            for end in readable:
                frame, address = end.recvfrom(1 << 17)
                if address[2] != OUTGOING:
                    self.forward(frame, self.ends[1 - self.ends.index(end)])
            while self.late and self.late[0][0] <= time.monotonic():
                self.send(*self.late.pop(0)[1:])

    @staticmethod
    def send(end, frame):
        try:
            end.send(frame)
        except OSError:  # the other host is no longer there
            pass

    def forward(self, frame, other):
        if Segment.is_one(frame):
            segment = Segment(frame)
            if network.PORT not in segment.ports():
                self.shift(segment)
                for changed in self.act(segment):
                    self.send(other, changed)
                return
            frame = segment.frame()  # whose checksum the kernel has left to hardware
        self.send(other, frame)

    def shift(self, segment):
        sequence, acknowledged = segment.numbers()
        begin, by = self.shifts.get(segment.direction(), (sequence + 1, 0))
        if after(sequence, begin):
            sequence += by
        begin, by = self.shifts.get(segment.direction()[::-1], (acknowledged + 1, 0))
        if after(acknowledged, begin + by):
            acknowledged -= by
        elif after(acknowledged, begin):  # in the middle of what was put in
            acknowledged = begin
        segment.set_numbers(sequence, acknowledged)

    def act(self, segment):
        """The frames that take the segment's place."""
        direction = segment.direction()
        if direction in self.cut or direction[::-1] in self.cut:
            return
        chosen = False
        if segment.payload and self.done is None:
            self.seen += 1
            chosen = self.seen == self.number
        if not chosen:
            yield segment.frame()
            return
        self.done = len(segment.payload)
        sequence, acknowledged = segment.numbers()
        end = (sequence + self.done) % 2**32
        if self.what == "flip":
            segment.payload[self.number * 7919 % self.done] ^= 1 << self.number % 8
            yield segment.frame()
        elif self.what == "drop":
            self.shifts[direction] = (end, -self.done)
        elif self.what == "repeat":
            self.shifts[direction] = (end, self.done)
            yield segment.frame()
            segment.set_numbers(end, acknowledged)
            yield segment.frame()
        elif self.what == "delay":
            self.late.append((time.monotonic() + DELAY, self.ends[0 if direction[0][0][-1] == 2 else 1], segment.frame()))
        else:
            self.cut.add(direction)


class Tampering(network.Case):
    @classmethod
    def setUpClass(cls):
        if network.WHY_NOT:
            raise unittest.SkipTest(f"needs network namespaces, which this user cannot make: {network.WHY_NOT}")

    def setUp(self):
        super().setUp()
        self.expected = self.digest_of_one(*[o for o in OPTIONS if o != "--quiet"])

    def tamper(self, what, number):
        """One job. Whether it ended well."""
        hosts = network.Namespaces(2, bridge=False)
        for i in range(2):
            hosts.expect_small_frames(i)
        man = ManInTheMiddle(hosts, what, number)
        try:
            jobs = self.job(hosts, *OPTIONS, LOCKSTEP_SECRET=network.SECRET)
            codes = [job.wait() for job in jobs]
            self.assertIsNotNone(man.done, f"there were only {man.seen} frames")
        finally:
            man.close()
            hosts.remove()
        output = f"{what} {number}: {codes}\n" + "\n".join(job.stderr() for job in jobs)
        self.assertTrue(set(codes) <= {0, 3}, output)
        if codes[0] == 0:
            report = self.report_of("r0.json")  # of the chief, with digests of both
            self.assertEqual((report["weights_sha256"], len(set(report["replica_weights_sha256"]))), (self.expected, 1), output)
        if codes != [0, 0]:
            # A worker that had all results before its peer found the fault ends with 0, and logs the cause.
            self.assertNotEqual(what, "delay", output)
            causes = [re.findall(r"^(?:mnist_multi_worker|lockstep: error): (rank \d \(.*?)(?:; the last step.*)?$", job.stderr(),
                                 re.MULTILINE) for job in jobs]
            self.assertTrue(all(causes), output)
            self.assertEqual(len(set(causes[0] + causes[1])), 1, output)
        self.last = jobs[0].last_line() if codes != [0, 0] else "ended well"
        return codes == [0, 0]

    def check_the_first_frames(self):
        """Each of the first frames is tampered with. Run by tampering_slow.py."""
        for number in range(1, FRAMES + 1):
            for what in ("flip", "drop", "repeat", "delay", "cut"):
                self.tamper(what, number)

    def test_bytes_of_gradients_that_were_changed_end_the_job_with_one_sentence(self):
        for what, number in (("flip", 60), ("drop", 75), ("repeat", 110)):
            self.assertFalse(self.tamper(what, number), what)
            print(f"{what} {number}: {self.last}", flush=True)

    def test_bytes_of_the_handshake_that_were_changed_cause_no_wrong_sum(self):
        self.tamper("flip", 2)

    def test_late_frames_change_nothing(self):
        self.assertTrue(self.tamper("delay", 90))


if __name__ == "__main__":
    unittest.main(verbosity=1)
