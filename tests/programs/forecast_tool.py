"""tools/forecast.py: the cost of collectives against hand-computed values and a simulation of the messages, the forecast of a
program's report against formulas written here, and what is refused.
"""

import importlib.util
import json
import re
import subprocess
import sys
import unittest

import contract

ROOT = contract.ROOT
spec = importlib.util.spec_from_file_location("lockstep_forecast", ROOT / "tools/forecast.py")
tool = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

SLOW = tool.Link(1e-3, 1e6, 1e12)  # a millisecond, and a microsecond for each byte
CHECK = """lockstep-doctor: 3 workers, from TF_CONFIG, chief node1:23124

rank  host   address   lockstep  cores    features          memory    disk      files  clock       secret  GPUs  data
0     node1  10.0.0.1  0.1.0     16       avx2 fma avx512f  61.20 GB  812.4 GB  4096   chief       file    -     22b05e3108ca789b
1     node1  10.0.0.1  0.1.0     16       avx2 fma avx512f  61.20 GB  812.4 GB  4096   +0.000 s    file    -     22b05e3108ca789b
2     node3  10.0.0.3  0.1.0     4 of 16  avx2 fma avx512f  60.87 GB  640.0 GB  4096   +600.000 s  file    -     22b05e3108ca789b

ranks  round trip  forth         back
0 - 1  0.02 ms     31.4 Gbit/s   30.0 Gbit/s
0 - 2  0.50 ms     1.2 Gbit/s    938.8 Mbit/s
1 - 2  0.70 ms     941.2 Mbit/s  450.0 Mbit/s

verdict: ready to train
"""


def forecast(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-B", ROOT / "tools/forecast.py", *map(str, arguments)], capture_output=True, text=True,
                          cwd=cwd, timeout=60)


def simulated_chain(n, chunks, latency, rate):
    """The messages of ChannelGroup::reduce_chain: when the first member has the last result. A cable carries one message at a
    time in each direction."""
    free, ended, up, down = [0.0] * n, [0.0] * n, {}, {}  # free: of the cable by which a member sends
    last = 0.0
    for step in range(len(chunks) + 2 * (n - 1)):
        for rank in range(n):
            behind = 2 * (n - 1 - rank)
            goes_up, comes_back = step < len(chunks), 0 <= step - behind < len(chunks)
            if goes_up and rank > 0:
                ended[rank] = max(ended[rank], up[rank - 1, step])
            if comes_back and rank < n - 1:
                ended[rank] = max(ended[rank], down[rank + 1, step - behind])
                last = ended[rank] if rank == 0 else last

            def send(size, rank=rank):
                free[rank] = max(free[rank], ended[rank]) + size / rate
                return free[rank] + latency
            if goes_up and rank < n - 1:
                up[rank, step] = send(chunks[step])
            if comes_back and rank > 0:
                down[rank, step - behind] = send(chunks[step - behind])
    return last


class Collectives(unittest.TestCase):
    def check(self, cost, seconds, sent):
        self.assertAlmostEqual(cost.seconds, seconds, delta=1e-9 + 1e-9 * seconds)
        self.assertAlmostEqual(cost.sent, sent, delta=1e-6)

    def test_the_constants_are_those_of_the_headers(self):
        algorithms = ROOT / "include/lockstep/collectives/algorithms"
        channel, topology = ((algorithms / name).read_text() for name in ("channel_group.hpp", "topology.hpp"))
        machines = (ROOT / "include/lockstep/collectives/machine_group.ipp").read_text()

        def constant(text, name):
            found = re.search(rf"\b{name} = (?:std::size_t\{{(\d+)\}} << (\d+)|(\d+))", text)
            return int(found[1]) << int(found[2]) if found[1] else int(found[3])

        self.assertEqual(constant(topology, "most_direct"), tool.MOST_DIRECT)
        for name in ("small", "both_add", "small_tree", "chunk", "link_chunk"):
            self.assertEqual(constant(channel, name), getattr(tool, name.upper()), name)
        for name in ("segment", "line"):
            self.assertEqual(constant(machines, name), getattr(tool, name.upper()), name)

    def test_a_message_takes_the_latency_and_the_slower_of_wire_and_processor(self):
        self.assertAlmostEqual(tool.Link(1e-3, 1e6, 1e9).message(500), 0.0015)
        self.assertAlmostEqual(tool.Link(1e-3, 1e9, 1e6).message(500), 0.0015)
        link = tool.Link.measured(0.002, 8e6, trips=0.5, goodput=0.9)
        self.assertAlmostEqual(link.latency, 0.001 + tool.OVERHEAD)
        self.assertAlmostEqual(link.rate, 0.9e6)

    def test_hosts_that_are_connected_each_with_each(self):
        self.check(tool.Members(4, SLOW).all_reduce(1000, 24), 0.001 + 0.003072, 3072)  # one round
        # Two add alike: one round for the values and one for the sums.
        self.check(tool.Members(2, SLOW).all_reduce(400_000, 24), 2 * 0.001 + 0.400024, 400_024)
        # Reduce-scatter and all-gather of each 4 MiB, of which three quarters leave.
        self.check(tool.Members(4, SLOW).all_reduce(8 << 20, 0), 4 * (0.001 + 3 * 2**20 / 1e6), 4 * 3 * 2**20)
        # An owner receives its part from three others; a member that owns nothing of the bucket sends all of it.
        self.check(tool.Members(4, SLOW).scatter([(0.5, [0, 0, 0, 300])]), 0.5 + 0.001 + 0.0009, 300)
        self.check(tool.Members(4, SLOW).scatter([(0, [100, 100, 100, 100])]), 0.001 + 0.0003, 300)
        self.check(tool.Members(4, SLOW).gather([100, 100, 100, 60]), 0.001 + 0.0003, 300)
        # Along a tree of 32: a barrier; the first range, as in the test of virtual shards; 31 others to four of five neighbors.
        self.check(tool.Members(32, SLOW).gather([1000] * 32), 0.010 + 0.005 + 0.015 + 31 * 0.004, 5 * 1000 + 31 * 4000)

    def test_reduce_scatters_overlap_as_far_as_all_have_entered(self):
        # Member 1 has its part at 0.031 and enters the second one then, while the others have sent it theirs of 0.02. The last
        # 10 KB for member 0 leave at 0.031.
        found = tool.Members(4, SLOW).scatter([(0, [0, 10_000, 0, 0]), (0, [10_000, 0, 0, 0])])
        self.check(found, 0.031 + 0.010 + 0.001, 20_000)
        # A connection accepts 2 MiB of 3, and its sender waits for the rest.
        size = 3 << 20
        found = tool.Members(2, SLOW).scatter([(0, [0, size]), (0, [1000, 0])])
        self.check(found, 0.002 + (size + 1000) / 1e6, size)

    def test_a_chain_takes_as_long_as_its_messages(self):
        chunk = tool.LINK_CHUNK
        for n, size in ((2, 3 * chunk), (3, 1.6 * chunk), (4, 2.7 * chunk), (17, 5000), (17, chunk), (20, 4 * chunk), (40, 16.5 * chunk),
                        (64, 64 * chunk)):
            for latency in (0, 0.001, 0.2, 1):
                with self.subTest(n=n, size=size, latency=latency):
                    chunks = [chunk] * int(size // chunk) + [size % chunk] * (size % chunk > 0)
                    expected = simulated_chain(n, chunks, latency, SLOW.rate)
                    self.assertAlmostEqual(tool.Members(n, tool.Link(latency, SLOW.rate, 1e12)).chain(size).seconds / expected, 1, delta=0.05)
        self.check(tool.Members(32, SLOW).chain(1000), 62 * 0.002, 2000)

    def test_a_few_bytes_go_along_a_tree(self):
        # Gathered by rank 0, which gets 31 slots of 64 bytes, and sent on by it to five others.
        cost = tool.Members(32, SLOW).all_reduce(0, 40)
        self.assertAlmostEqual(cost.seconds, 5 * 0.001 + 31 * 64e-6 + 5 * (0.001 + 3 * 40e-6))

    def test_virtual_shards_are_added_along_a_tree(self):
        # Five levels up; then down, where a member sends to one to five others, the farthest last.
        self.check(tool.Members(32, SLOW, in_tree=True).all_reduce(100_000, 0), 5 * 0.101 + 5 * 0.001 + 15 * 0.1, 600_000)
        self.assertEqual(tool.group_of(32, 1, SLOW, True).name, "tree")
        lane = tool.Members(2, SLOW.part(4), in_tree=True).all_reduce(25_000, 0)
        self.check(tool.Machines(2, 4, SLOW, True).all_reduce(100_000, 0), lane.seconds, 25_000)

    def test_workers_of_a_host_share_its_cable(self):
        # Four lanes with a quarter of the bandwidth and a quarter of the bytes each, between two hosts.
        lane = 0.001 + 250_000 / 4 / (1e6 / 4)
        self.check(tool.Machines(2, 4, SLOW).all_reduce(250_000, 0), 2 * lane, 250_000 / 4)
        self.check(tool.Machines(2, 4, SLOW).all_reduce(100, 24), 0.001 + 4 * 192e-6, 4 * 192)


class Steps(unittest.TestCase):
    def model(self, **changes):
        values = dict(step=0.1, update=0.02, buckets=((0.5, 40_000), (1.0, 24_000)), weights=64_000, state=0, slots=2, memory=10**6)
        return tool.Model(**{**values, **changes})

    def test_buckets_leave_while_backward_goes_on(self):
        # Computing takes 0.08: the first bucket leaves at 0.04 and needs less than 0.04, the last one at 0.08.
        fast = tool.Link(1e-3, 4e6, 1e12)
        found = tool.forecast(self.model(), 2, 1, fast)
        sums = 2 * tool.SUMS_OF_REPLICA + tool.SUMS_OF_ALL
        self.assertAlmostEqual(found.step, 0.08 + 0.001 + (24_000 + sums) / 4e6 + 0.02)
        self.assertAlmostEqual(found.communication, 1 - 0.1 / found.step)
        self.assertEqual((found.memory, found.sent), (10**6, 64_000 + sums))
        # Over a slow link the last one waits for the first.
        found = tool.forecast(self.model(), 2, 1, SLOW)
        self.assertAlmostEqual(found.step, 0.04 + 0.001 + 0.04 + 0.001 + (24_000 + sums) / 1e6 + 0.02)

    def test_owners_make_their_share_of_the_update(self):
        found = tool.forecast(self.model(), 4, 1, SLOW, "sharded")
        # 250 blocks of 64 weights: the owners have 62, 63, 62 and 63; the first bucket is that of the weights from 24,000 on.
        ends = [0, 62 * 256, 125 * 256, 187 * 256, 64_000]
        first = [max(0, e - max(b, 24_000)) for b, e in zip(ends, ends[1:])]
        last = [max(0, min(e, 24_000) - b) for b, e in zip(ends, ends[1:])]
        sums = 4 * tool.SUMS_OF_REPLICA + tool.SUMS_OF_ALL
        scattered = tool.Members(4, SLOW).scatter([(0.04, first), (0.08, last)]).seconds
        self.assertGreater(scattered, 0.04 + 3 * 63 * 256 / 1e6)  # what an owner receives
        self.assertAlmostEqual(found.step, scattered + 0.001 + 3 * sums / 1e6 + 0.02 / 4 + 0.001 + 3 * 63 * 256 / 1e6)
        self.assertEqual(found.memory, 10**6 - 2 * 64_000 * 3 // 4)

    def test_local_steps_exchange_once_in_h(self):
        model, sums = self.model(), 4 * tool.SUMS_OF_REPLICA + tool.SUMS_OF_ALL
        round_of = 0.001 + 3 * (64_000 + sums) / 1e6
        found = tool.forecast(model, 4, 1, SLOW, "local", every=10)
        self.assertLess(64_000 + sums, tool.SMALL)
        self.assertAlmostEqual(found.step, 0.1 + (round_of + 6 * 64_000 / tool.MEMORY) / 10)
        self.assertAlmostEqual(found.sent, 3 * (64_000 + sums) / 10)
        self.assertEqual(found.memory, 10**6 + 64_000)
        self.assertEqual(tool.forecast(model, 4, 1, SLOW, "diloco", every=10).memory, 10**6 + 2 * 64_000)
        half = tool.forecast(model, 4, 1, SLOW, "local", every=10, wire=2)
        self.assertAlmostEqual(half.step, 0.1 + (0.001 + 3 * (32_000 + sums) / 1e6 + 6 * 64_000 / tool.MEMORY) / 10)

    def test_averaged_state_travels_with_the_sums(self):
        more = tool.forecast(self.model(state=8000), 2, 1, SLOW).sent - tool.forecast(self.model(), 2, 1, SLOW).sent
        self.assertEqual(more, 8000)


class Programs(contract.Case):
    link = ["--round-trip", 10, "--bandwidth", 80]

    def make(self):
        self.report("mnist", "--data", self.data(), "--epochs", 3, "--batch", 32, "--optimizer", "adam", "--threads", 1, "--quiet")
        return self.dir / "report.json"

    def test_the_forecast_of_a_report(self):
        path = self.make()
        done = forecast(path, *self.link, "--hosts", "4,8", "--step-ms", 5, "--sync-every", 100, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = json.loads(done.stdout)
        steps = {(f["hosts"], f["update"]): f for f in found["forecasts"]}
        self.assertEqual(list(steps), [(n, u) for n in (4, 8) for u in tool.UPDATES])
        # The tutorials' CNN, by hand: 320 gradients of Conv2D come last, 346,826 of both Dense as soon as the first of them is done.
        conv, dense = 4 * 320, 4 * (5408 * 64 + 64 + 64 * 10 + 10)
        flops_conv, flops_dense = 2 * 26 * 26 * 9 * 32, 2 * (5408 * 64 + 64 * 10)
        # Backward of Conv2D computes no gradient of the images; biases and activations aside.
        before = 1 - flops_conv / (2 * flops_conv + 3 * flops_dense)
        update = (3 + 2 * 2) * (conv + dense) / tool.MEMORY
        latency, rate = tool.TRIPS * 0.010 + tool.OVERHEAD, tool.GOODPUT * 10e6
        for n in (4, 8):
            exchange = 2 * (latency + (n - 1) / n * dense / rate)
            last = latency + (n - 1) * (conv + n * tool.SUMS_OF_REPLICA + tool.SUMS_OF_ALL) / rate
            expected = before * (0.005 - update) + exchange + last + update
            self.assertAlmostEqual(steps[n, "replicated"]["step_ms"] / (1000 * expected), 1, delta=0.002)
            self.assertAlmostEqual(steps[n, "replicated"]["communication"], 1 - 0.005 / expected, delta=0.002)
        report = json.loads(path.read_text())
        memory = report["peak_bytes"]["planned"]
        self.assertEqual(steps[4, "replicated"]["memory_bytes"], memory)
        self.assertAlmostEqual(steps[4, "sharded"]["memory_bytes"], memory - 2 * (conv + dense) * 3 / 4, delta=1)
        self.assertEqual(steps[4, "diloco"]["memory_bytes"], memory + 2 * (conv + dense))
        # Buffers that this run did not have, or has too many of.
        for slots in (0, 3):
            done = forecast(path, *self.link, "--hosts", 4, "--update", "replicated,sharded", "--slots", slots, "--json")
            found = [f["memory_bytes"] for f in json.loads(done.stdout)["forecasts"]]
            whole = memory + (slots - 2) * (conv + dense)
            self.assertEqual(found[0], whole)
            self.assertAlmostEqual(found[1], whole - slots * (conv + dense) * 3 / 4, delta=1)
        done = forecast(path, *self.link, "--hosts", 64, "--wire", "bfloat16", "--json")
        self.assertEqual([f["update"] for f in json.loads(done.stdout)["forecasts"]], ["replicated"])
        done = forecast(path, *self.link, "--hosts", 64, "--virtual-shards", "--json")
        self.assertEqual([(f["update"], f["algorithm"]) for f in json.loads(done.stdout)["forecasts"]],
                         [("replicated", "tree"), ("sharded", "tree")])
        # The table has the same figures; without --step-ms the step is that of the report.
        lines = forecast(path, *self.link, "--hosts", 8, "--update", "replicated").stdout.splitlines()
        self.assertTrue(lines[0].startswith(f"one process: {report['step_ms']['median']:.2f} ms a step; link: 10.00 ms"), lines[0])
        self.assertRegex(lines[-1], r"^8 +8 +replicated +all to all +\d+\.\d\d +\d+\.\d% +\d+\.\d% +2\.3 MB +\d+\.\d MB$")

    def test_the_link_of_a_check(self):
        check = self.dir / "check.txt"
        check.write_text(CHECK)
        plan = {"arena_bytes": 1, "weight_bytes": 8, "gradient_bytes": 8, "state_bytes": 0, "averaged_state_bytes": 0,
                "times": ["a forward", "loss", "a backward"], "flops": [1, 0, 1], "buckets": [{"bytes": 8, "time": 2}]}
        path = self.dir / "plan.json"
        path.write_text(json.dumps(plan))  # a plan alone
        done = forecast(path, "--step-ms", 1, "--slots", 2, "--check", check, "--hosts", 2, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = json.loads(done.stdout)
        self.assertEqual(found["forecasts"][0]["memory_bytes"], 1 + 8 + 8 + 2 * 8)
        self.assertAlmostEqual(found["round_trip_ms"], 0.6)  # the median between hosts
        self.assertAlmostEqual(found["bandwidth_mbit"], 938.8)  # rank 1 has shared the link
        check.write_text("\n".join(line for line in CHECK.splitlines() if not re.match(r"\d - 2", line)))
        done = forecast(path, "--step-ms", 1, "--check", check)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("check.txt: has no connection between two hosts", done.stderr)
        check.write_text(CHECK.replace("\n\nverdict", "\nthe 28 slowest of 36 connections\n\nverdict"))
        self.assertIn("run lockstep-run --check with at most eight workers", forecast(path, "--step-ms", 1, "--check", check).stderr)

    def test_what_is_refused(self):
        path = self.make()
        report = json.loads(path.read_text())
        plan = report["memory_plan"]
        for name, content, expected in (
            ("absent", None, "no such file"), ("list", [1], "is not a JSON object"), ("text", "x", "is not JSON"),
            ("replicas", {**report, "replicas": 2}, "has 2 replicas"), ("error", {"error": "no data"}, "the error 'no data'"),
            ("GPU", {**report, "device": "cuda"}, "but not NCCL"), ("no plan", {"replicas": 1}, "has no plan with gradients"),
            ("no times", {k: v for k, v in report.items() if k != "step_ms"}, "has no 'step_ms'"),
            ("no median", {**report, "step_ms": {"median": 0}}, "the median of 'step_ms' is 0; train a few steps, or give --step-ms"),
            ("no memory", {**report, "peak_bytes": {}}, "has no 'planned' in 'peak_bytes'"),
            ("buckets", {**report, "memory_plan": {**plan, "buckets": plan["buckets"][:1]}}, "has no plan with gradients"),
        ):
            with self.subTest(name):
                wrong = self.dir / "nowhere.json" if content is None else self.dir / "w.json"
                if content is not None:
                    wrong.write_text(content if isinstance(content, str) else json.dumps(content))
                done = forecast(wrong, *self.link)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertTrue(done.stderr.startswith(f"lockstep-forecast: {wrong}: "), done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
        for arguments in ([], ["--round-trip", 1], [*self.link, "--check", path], [*self.link, "--hosts", 1], [*self.link, "--hosts", "x"],
                          [*self.link, "--update", "none"], [*self.link, "--workers", 0], ["--round-trip", "nan", "--bandwidth", 1],
                          [*self.link, "--wire", "int8"], [*self.link, "--sync-every", 0], [*self.link, "--slots", -1], [*self.link, "--slots", "1,2"], [*self.link, "--hosts", 65_537], [*self.link, "--host", 2]):
            done = forecast(path, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        for arguments, expected in (
            (["--virtual-shards", "--update", "local,diloco"], "--update local: the weights of local steps"),
            (["--virtual-shards", "--update", "replicated,diloco"], "--update diloco: the weights of local steps"),
            (["--wire", "bfloat16", "--update", "sharded"], "leave out --update sharded"),
            (["--wire", "bfloat16", "--update", "replicated,local"], "leave out --update local"),
            (["--wire", "bfloat16", "--update", "diloco"], "leave out --update diloco"),
            (["--wire", "bfloat16", "--virtual-shards"], "leave out --virtual-shards"),
        ):
            done = forecast(path, *self.link, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(expected, done.stderr)
        self.assertEqual(forecast().returncode, 2)

    def test_the_version_is_that_of_the_programs(self):
        self.assertEqual(forecast("--version").stdout, contract.run("mnist", "--version").stdout.splitlines()[0] + "\n")


if __name__ == "__main__":
    unittest.main(verbosity=1)
