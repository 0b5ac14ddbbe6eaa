#!/usr/bin/env python3
"""Forecasts the steps of a job on more hosts than there are: their time, the share of communication, what a rank sends, and
its memory, for each update policy.

Reads the report of a run of one process (--report), and the link between two hosts, from the output of
`lockstep-run --check` or from options. docs/forecast.md has the model, its sources and its error. Exit code 1: error; 2: wrong
command line.
"""
import argparse
import json
import math
import pathlib
import re
import statistics
import sys
from dataclasses import dataclass, replace

# The values of collectives/algorithms/channel_group.hpp, topology.hpp and machine_group.ipp; a test compares them.
MOST_DIRECT = 16  # hosts that are connected each with each
SMALL, BOTH_ADD, SMALL_TREE = 64 << 10, 512 << 10, 4096  # bytes that make fewer rounds
CHUNK, LINK_CHUNK, SEGMENT = 4 << 20, 256 << 10, 16 << 20  # bytes that travel at a time
BUFFER = 2 << 20  # bytes that a connection accepts while the receiver is busy: half of tcp_wmem, which counts overheads
LINE, BLOCK = 64, 256  # bytes of a slot, and of 64 weights, which are not divided among owners
# The sums that travel in a step: loss, two for a metric, and learning rate of each replica; the requests of all.
SUMS_OF_REPLICA, SUMS_OF_ALL = 4 * 8, 9 * 8
# Fitted by benchmarks/forecast_error.py.
GOODPUT, TRIPS = 1.01, 0.44  # share of the measured bandwidth; round trips that a message takes
OVERHEAD = 0.05e-3  # seconds in which a process wakes, seals a message and opens one
SEALED, PLAIN = 1.0e9, 1.8e9  # bytes a second that one core sends and receives (docs/performance.md, "Over TCP")
MEMORY = 10e9  # bytes a second that an optimizer reads and writes
MOST_RANKS = 65_536  # a bound of this program: it counts the bytes of each rank
ROUNDS = ("local", "diloco")  # exchange after a number of local steps
UPDATES = ("replicated", "sharded", *ROUNDS)


class ForecastError(Exception):
    pass


@dataclass(frozen=True)
class Link:
    """The network of one host: seconds from one to another, bytes a second in each direction."""

    latency: float
    rate: float
    processor: float = SEALED

    @staticmethod
    def measured(round_trip, bandwidth, processor=SEALED, goodput=GOODPUT, trips=TRIPS):
        """`round_trip` in seconds and `bandwidth` in bits a second, as the doctor measures them."""
        return Link(trips * round_trip + OVERHEAD, goodput * bandwidth / 8, processor)

    @property
    def speed(self):
        """Bytes a second that a process sends while it receives as many: the slower of wire and processor decides."""
        return min(self.rate, self.processor)

    def message(self, size):
        return self.latency + size / self.speed

    def part(self, lanes):
        return replace(self, rate=self.rate / lanes)


@dataclass(frozen=True)
class Cost:
    seconds: float = 0.0
    sent: float = 0.0  # bytes of the rank that sends most

    def __add__(self, other):
        return Cost(self.seconds + other.seconds, self.sent + other.sent)

    def times(self, n):
        return Cost(self.seconds * n, self.sent * n)


def lines(size):
    return math.ceil(size / LINE) * LINE


def pieces(size, most):
    """`size` bytes as pieces of up to `most`: their number and size."""
    whole, rest = divmod(size, most)
    return [(whole, most)] * (whole > 0) + [(1, rest)] * (rest > 0)


def one_after_the_other(buckets, cost_of):
    """When the last exchange ends, of buckets (when it may begin, what it exchanges)."""
    end = Cost()
    for ready, what in buckets:
        cost = cost_of(what)
        end = Cost(max(end.seconds, ready) + cost.seconds, end.sent + cost.sent)
    return end


class Members:
    """`n` processes, each on a host of its own: ChannelGroup over TCP."""

    def __init__(self, n, link, in_tree=False):
        self.n, self.link, self.is_direct, self.in_tree = n, link, n <= MOST_DIRECT, in_tree
        self.depth = math.ceil(math.log2(n))  # of the tree
        self.name = "all to all" if self.is_direct else "tree" if in_tree else "chain"

    def exchange(self, size):
        """Each sends `size` bytes to each other one."""
        size *= self.n - 1
        return Cost(self.link.message(size), size)

    def barrier(self):
        return Cost() if self.is_direct else Cost(2 * self.depth * self.link.latency)

    def chain(self, size):
        """Sums go from the first member to the last and come back, chunk by chunk."""
        if size == 0:
            return Cost()
        both = 1 if self.n == 2 else 2  # a member within the chain sends in both directions
        whole, first = LINK_CHUNK / self.link.speed, min(size, LINK_CHUNK) / self.link.speed
        seconds = 2 * (self.n - 1) * (self.link.latency + first)
        more = math.ceil(size / LINK_CHUNK) - 1
        if more > 0:  # two at a time are in the chain: the third one waits until the first is back
            last = (size - more * LINK_CHUNK) / self.link.speed
            waits = max(both * whole, whole + 2 * self.link.latency)
            seconds += whole + more // 2 * waits + (more - 1) // 2 * both * whole - (whole - last) * (1 if more == 1 else both)
        return Cost(seconds, both * size)

    def gather_to_first(self, each):
        return Cost(self.depth * self.link.latency + (self.n - 1) * each / self.link.rate, each)

    def flood(self, size):
        """From one member along the tree, of which each has up to `depth` neighbors."""
        if size == 0:
            return Cost()
        first = self.depth * self.link.message((self.depth + 1) / 2 * min(size, LINK_CHUNK))
        rest = max(0, size - LINK_CHUNK) * self.depth / self.link.rate
        return Cost(first + rest, self.depth * size)

    def along_tree(self, size):
        """Sums go up to the first member, level by level, and the result comes down."""
        total = Cost()
        for count, piece in pieces(size, CHUNK):
            total += (Cost(self.depth * self.link.message(piece), piece) + self.flood(piece)).times(count)
        return total

    def sum_of(self, size):
        """An all-reduce of more than a few bytes."""
        if not self.is_direct:
            return self.along_tree(size) if self.in_tree else self.chain(size)
        if self.n == 2 and size <= BOTH_ADD:
            return self.exchange(size)
        total = Cost()
        for count, piece in pieces(size, CHUNK):
            total += self.exchange(piece / self.n).times(2 * count)  # reduce-scatter, all-gather
        return total

    def all_reduce(self, size, sums):
        each = size + sums
        if self.is_direct:
            if each <= SMALL and each * (self.n - 1) <= SMALL * (MOST_DIRECT - 1):
                return self.exchange(each)
        elif each <= SMALL_TREE:
            return self.gather_to_first(lines(each)) + self.flood(sums) + self.flood(size)
        return self.sum_of(size) + self.sum_of(sums)

    def scatter(self, buckets):
        """Reduce-scatters one after the other, each (when it may begin, bytes that each member gets): when the last one ends.

        A member leaves the operation when it has its part, the system has the rest of what it sends, and all have entered."""
        if not self.is_direct:
            return one_after_the_other(buckets, lambda parts: sum((self.sum_of(p) for p in parts), self.barrier()))
        done, leaves, comes, sent = ([0.0] * self.n for _ in range(4))  # leaves, comes: when a cable is free
        for ready, parts in buckets:
            start = [max(d, ready) for d in done]
            done = [max(start) + self.link.latency] * self.n
            messages = []
            for r in range(self.n):
                leaves[r] = max(leaves[r], start[r])
                for to in ((r + i) % self.n for i in range(1, self.n)):
                    leaves[r] += parts[to] / self.link.speed
                    messages.append((leaves[r] + self.link.latency, r, to))
                sent[r] += sum(parts) - parts[r]
            for arrives, r, to in sorted(m for m in messages if parts[m[2]] > 0):
                comes[to] = max(arrives, comes[to] + parts[to] / self.link.speed)
                done[to] = max(done[to], comes[to])
                done[r] = max(done[r], comes[to] - self.link.latency - BUFFER / self.link.speed)
        return Cost(max(done), max(sent))

    def gather(self, parts):
        """An all-gather: `parts` has the bytes that each member has."""
        if not self.is_direct:
            # One flood follows the other at once; the first member gets each range once and passes it on.
            more = (self.depth - 1) * (sum(parts) - max(parts))
            return self.barrier() + self.flood(max(parts)) + Cost(more / self.link.speed, more)
        received, sent = sum(parts) - min(parts), (self.n - 1) * max(parts)
        rounds = max(1, math.ceil(max(parts) / (CHUNK / self.n)))
        return Cost((rounds - 1) * self.link.latency + self.link.message(max(received, sent)), sent)

    def all_gather(self, each):
        """Each member gets `each` bytes of each."""
        return self.exchange(each) if self.is_direct else self.gather_to_first(each) + self.flood(self.n * each)


class Machines:
    """`workers` processes on each of `hosts`: MachineGroup, without the time in shared memory."""

    def __init__(self, hosts, workers, link, in_tree=False):
        self.hosts, self.workers, self.in_tree = hosts, workers, in_tree
        self.lane, self.first = Members(hosts, link.part(workers), in_tree), Members(hosts, link, in_tree)
        self.few = max(LINE, (SMALL if hosts <= MOST_DIRECT else SMALL_TREE) // workers // LINE * LINE)
        self.name = f"{workers} lanes, {self.lane.name if in_tree else 'chain'}"

    def all_reduce(self, size, sums):
        of_sums = lines(sums)
        has_sums = 0 < of_sums <= self.few
        at = of_sums if has_sums else 0
        if of_sums <= self.few and at + size <= self.few:
            return self.first.all_gather(self.workers * lines(at + size))
        total = self.first.all_gather(self.workers * at) if has_sums else Cost()
        for count, piece in pieces(size, SEGMENT):
            part = math.ceil(piece / self.workers)
            total += (self.lane.sum_of(part) if self.in_tree else self.lane.chain(part)).times(count)
        return total if of_sums <= self.few else total + self.all_reduce(sums, 0)

    def scatter(self, buckets):
        return one_after_the_other(buckets,
                                   lambda parts: sum((self.all_reduce(p, 0) for p in parts if p > 0), self.first.barrier()))

    def gather(self, parts):
        total = self.first.barrier()
        for part in filter(None, parts):
            of_lane, members = (part, self.first) if part <= self.few else (part / self.workers, self.lane)
            total += members.exchange(of_lane) if members.is_direct else members.barrier() + members.flood(of_lane)
        return total


def group_of(hosts, workers, link, in_tree=False):
    """`in_tree`: sums are added in the order of a binary tree (SumOrder::tree), not in that of the ranks."""
    return Members(hosts, link, in_tree) if workers == 1 else Machines(hosts, workers, link, in_tree)


@dataclass(frozen=True)
class Model:
    """One replica, as a run of one process has measured it: seconds and bytes."""

    step: float
    update: float  # seconds of it in the optimizer
    buckets: tuple  # (share of forward and backward after which the gradients may leave, their bytes)
    weights: int
    state: int  # averaged over the replicas, in doubles
    slots: int
    memory: int

    @property
    def computing(self):
        return self.step - self.update


def shares(size, n):
    """`size` bytes in n ranges of whole blocks, as ls::Sharded divides them: (begin, end)."""
    blocks = math.ceil(size / BLOCK)
    ends = [min(size, (blocks * (r + 1) // n) * BLOCK) for r in range(n)]
    return list(zip([0, *ends], ends))


@dataclass(frozen=True)
class Forecast:
    hosts: int
    ranks: int
    update: str
    algorithm: str
    step: float
    communication: float  # share of the step
    efficiency: float  # examples a second, over those of as many single processes
    memory: int
    sent: float


def forecast(model, hosts, workers, link, update="replicated", every=500, wire=4, in_tree=False):
    """A step of hosts * workers ranks, of which each has the batch of the model. `wire`: bytes of a value that travels."""
    ranks, group = hosts * workers, group_of(hosts, workers, link, in_tree)
    sums = SUMS_OF_REPLICA * ranks + SUMS_OF_ALL + model.state
    memory = model.memory
    if update in ROUNDS:
        total = group.all_reduce(model.weights * wire // 4, sums)
        buffers = 2 if update == "diloco" else 1  # the weights of the last round; the outer momentum
        memory += buffers * model.weights
        outer = (4 + 2 * buffers) * model.weights / MEMORY  # the change, and the new weights
        step = model.step + (total.seconds + outer) / every
        total = total.times(1 / every)
    else:
        ready, sizes = [r * model.computing for r, _ in model.buckets], [size for _, size in model.buckets]
        if update == "sharded":
            ends = [model.weights - sum(sizes[:i]) for i in range(len(sizes) + 1)]  # the first bucket is at the end
            ranges = shares(model.weights, ranks)
            parts = [[max(0, min(e, ends[i]) - max(b, ends[i + 1])) * wire // 4 for b, e in ranges] for i in range(len(sizes))]
            total = group.scatter(list(zip(ready, parts))) + group.all_reduce(0, sums)
            step = max(total.seconds, model.computing) + model.update / ranks
            memory -= int(model.slots * model.weights * (1 - 1 / ranks))
            pull = group.gather([(e - b) * wire // 4 for b, e in ranges])
            step, total = step + pull.seconds, total + pull
        else:
            last = len(sizes) - 1
            total = one_after_the_other(list(zip(ready, enumerate(sizes))),
                                        lambda b: group.all_reduce(b[1] * wire // 4, sums if b[0] == last else 0))
            step = max(total.seconds, model.computing) + model.update
    own = model.step if update != "sharded" else model.computing + model.update / ranks
    return Forecast(hosts, ranks, update, group.name, step, max(0.0, 1 - own / step), model.step / step, memory, total.sent)


def read_json(path, what):
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ForecastError(f"{path}: {error.strerror.lower()}; name a file that was written with --report") from None
    except ValueError as error:
        raise ForecastError(f"{path}: is not JSON ({error}); name {what}") from None
    if not isinstance(value, dict):
        raise ForecastError(f"{path}: is not a JSON object; name {what}")
    return value


def is_number(value, least=0):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= least


def read_model(path, step_ms=None, slots=None):
    """The model of a report, or of a file that has only a plan (to_json of ls::memory_plan)."""
    report = read_json(path, "a report of one process")
    if "error" in report:
        raise ForecastError(f"{path}: it ends with the error '{report['error']}'; name the report of a complete run")
    if report.get("replicas", 1) != 1:
        raise ForecastError(f"{path}: the run has {report['replicas']} replicas; name the report of a run with one, with the "
                            "batch of one replica")
    if report.get("device", "cpu") not in ("cpu", "reference"):
        raise ForecastError(f"{path}: the device is {report['device']}; the model knows lockstep's own exchange between CPUs, "
                            "but not NCCL")
    plan = report.get("memory_plan", report)
    try:
        buckets, flops, times, weights = plan["buckets"], plan["flops"], plan["times"], plan["weight_bytes"]
        state, loss = plan["averaged_state_bytes"], times.index("loss")
        measured_slots = round(report.get("optimizer_bytes", 0) / weights) if weights else 0
        slots = measured_slots if slots is None else slots
        resident = [plan[k] for k in ("arena_bytes", "weight_bytes", "gradient_bytes", "state_bytes")]
        good = (len(flops) == len(times) and all(map(is_number, [*flops, state, *resident])) and sum(flops) > 0 and buckets
                and sum(b["bytes"] for b in buckets) == weights
                and all(is_number(b["bytes"]) and loss < b["time"] < len(times) for b in buckets))
    except (KeyError, TypeError, ValueError, AttributeError):
        good = False
    if not good:
        raise ForecastError(f"{path}: has no plan with gradients; name a file that was written with --report by this version, "
                            "or to_json of ls::memory_plan")
    if step_ms is None:
        step_ms = report.get("step_ms", {}).get("median") if isinstance(report.get("step_ms"), dict) else None
        if not is_number(step_ms):
            raise ForecastError(f"{path}: has no 'step_ms'; train a few steps, or give --step-ms")
        if step_ms == 0:
            raise ForecastError(f"{path}: the median of 'step_ms' is 0; train a few steps, or give --step-ms")
    step = step_ms / 1000
    update = min((3 + 2 * slots) * weights / MEMORY, step / 2)
    before = [sum(flops[:b["time"] + 1]) / sum(flops) for b in buckets]
    memory = sum(resident) + slots * weights
    if "peak_bytes" in report:
        planned = report["peak_bytes"].get("planned") if isinstance(report["peak_bytes"], dict) else None
        if not is_number(planned):
            raise ForecastError(f"{path}: has no 'planned' in 'peak_bytes'; name a file that was written with --report by this version")
        memory = planned + (slots - measured_slots) * weights
    return Model(step, update, tuple(zip(before, (b["bytes"] for b in buckets))), weights, state, slots, memory)


BITS = {"Gbit/s": 1e9, "Mbit/s": 1e6}


def read_check(path):
    """(round trip in seconds, bandwidth in bits a second) between hosts, from the output of `lockstep-run --check`: the
    median of the round trips, and the best connection of the slowest host, since the workers of a host share its link."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ForecastError(f"{path}: {error.strerror.lower()}; name a file with the output of lockstep-run --check") from None
    if re.search(r"^the \d+ slowest of \d+ connections$", text, re.MULTILINE):
        raise ForecastError(f"{path}: has only the slowest connections; run lockstep-run --check with at most eight workers")
    found = re.findall(r"^(\d+) - (\d+) +([\d.]+) ms +([\d.]+) ([GM]bit/s) +([\d.]+) ([GM]bit/s)$", text, re.MULTILINE)
    addresses = dict(re.findall(r"^(\d+) +\S+ +([^\s-]\S*) +\d+\.\d+\.\d+", text, re.MULTILINE))
    best, trips = {}, []
    for a, b, ms, forth, unit, back, unit2 in found:
        if a in addresses and addresses[a] == addresses.get(b):
            continue
        trips.append(float(ms) / 1000)
        for host in (addresses.get(a, a), addresses.get(b, b)):
            best[host] = max(best.get(host, 0), min(float(forth) * BITS[unit], float(back) * BITS[unit2]))
    if not trips:
        raise ForecastError(f"{path}: has no connection between two hosts; name a file with the output of lockstep-run --check "
                            "on at least two, or give --round-trip and --bandwidth")
    return statistics.median(trips), min(best.values())


def size_text(size):
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def step_text(seconds):
    ms = 1000 * seconds
    return f"{ms:,.0f}" if ms >= 1000 else f"{ms:.2f}"


def table(results):
    head = ("hosts", "ranks", "update", "algorithm", "step, ms", "communication", "efficiency", "sent a step", "memory a rank")
    rows = [head] + [(str(f.hosts), str(f.ranks), f.update, f.algorithm, step_text(f.step), f"{f.communication:.1%}",
                      f"{f.efficiency:.1%}", size_text(f.sent), size_text(f.memory)) for f in results]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def names(choices):
    def parse(text):
        chosen = text.split(",")
        if not set(chosen) <= set(choices):
            raise argparse.ArgumentTypeError(f"{text}: choose from {','.join(choices)}")
        return chosen
    return parse


def counts(least):
    def parse(text):
        if not re.fullmatch(r"\d+(,\d+)*", text) or min(map(int, text.split(","))) < least:
            raise argparse.ArgumentTypeError(f"{text}: must be whole numbers of at least {least}, separated by commas")
        return list(map(int, text.split(",")))
    return parse


def count(text):
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number of at least 0")
    return int(text)


def positive(kind):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not (value > 0 and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"{text}: must be a {'whole ' if kind is int else ''}number above 0")
        return value
    return parse


class Version(argparse.Action):
    """--version prints that of the headers, whose folder is next to that of this file, installed and in the sources."""

    def __call__(self, parser, *_):
        header = pathlib.Path(__file__).resolve().parents[1] / "include/lockstep/core/version.hpp"
        try:
            found = ".".join(re.findall(r"define LOCKSTEP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header.read_text("utf-8")))
        except OSError as error:
            parser.exit(1, f"lockstep-forecast: {header}: {error.strerror.lower()}; the version is that of the headers\n")
        print("lockstep", found)
        parser.exit()


def main():
    parser = argparse.ArgumentParser(
        prog="lockstep-forecast", allow_abbrev=False,
        description="Forecasts the time of a step, the share of communication and the memory of a rank on more hosts than "
                    "there are, from the report of a run of one process and a measured link.")
    parser.add_argument("report", type=pathlib.Path, metavar="REPORT.json",
                        help="the report (--report) of a run of one process with the batch of one rank")
    link = parser.add_argument_group("the link between two hosts: --check, or both of the others")
    link.add_argument("--check", type=pathlib.Path, metavar="FILE", help="the output of lockstep-run --check on at least two hosts")
    link.add_argument("--round-trip", type=positive(float), metavar="MS", help="milliseconds")
    link.add_argument("--bandwidth", type=positive(float), metavar="MBIT", help="Mbit/s in each direction")
    parser.add_argument("--hosts", type=counts(2), default=[2, 8, 64, 512], metavar="N,N,...", help="default: 2,8,64,512")
    parser.add_argument("--workers", type=positive(int), default=1, metavar="N", help="workers of each host; default: 1")
    parser.add_argument("--update", type=names(UPDATES), metavar="NAME,...",
                        help="update policies, of replicated, sharded, local and diloco; default: all that the other options allow")
    parser.add_argument("--sync-every", type=positive(int), default=500, metavar="H",
                        help="steps between two exchanges of local and diloco; default: 500")
    parser.add_argument("--wire", choices=("float32", "bfloat16"), default="float32", help="what travels; default: float32")
    parser.add_argument("--virtual-shards", action="store_true",
                        help="the strategy has .virtual_shards, so that sums are added along a tree")
    parser.add_argument("--plain", action="store_true", help="data are not sealed (LOCKSTEP_WIRE=plain_on_trusted_network)")
    parser.add_argument("--slots", type=count, metavar="N",
                        help="the optimizer's buffers for each weight (momentum: 1, Adam: 2), instead of the report's")
    parser.add_argument("--step-ms", type=positive(float), metavar="MS", help="a step of one process, instead of the report's")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--version", action=Version, nargs=0, help="print the version, and exit")
    options = parser.parse_args()
    has_both = options.round_trip is not None and options.bandwidth is not None
    if (options.check is not None) == has_both or (options.check and (options.round_trip or options.bandwidth)):
        parser.error("the link is missing or given twice; give either --check, or --round-trip and --bandwidth")
    if max(options.hosts) * options.workers > MOST_RANKS:
        parser.error(f"--hosts {max(options.hosts)} with {options.workers} workers each: at most {MOST_RANKS:,} ranks")
    # As the programs do.
    possible = [u for u in UPDATES if not (options.virtual_shards and u in ROUNDS) and (options.wire == "float32" or u == "replicated")]
    if options.wire != "float32" and options.virtual_shards:
        parser.error(f"--wire {options.wire}: compressed gradients depend on the number of replicas; leave out --virtual-shards")
    for update in options.update or possible:
        if update not in possible and options.virtual_shards:
            parser.error(f"--update {update}: the weights of local steps depend on the number of replicas; leave out --virtual-shards")
        if update not in possible:
            parser.error(f"--wire {options.wire}: only replicas with the whole update compress gradients; leave out --update {update}")
    try:
        model = read_model(options.report, options.step_ms, options.slots)
        round_trip, bandwidth = read_check(options.check) if options.check else (options.round_trip / 1e3, options.bandwidth * 1e6)
        link = Link.measured(round_trip, bandwidth, PLAIN if options.plain else SEALED)
        wire = 2 if options.wire == "bfloat16" else 4
        results = [forecast(model, hosts, options.workers, link, update, options.sync_every, wire, options.virtual_shards)
                   for hosts in options.hosts for update in options.update or possible]
    except ForecastError as error:
        sys.exit(f"lockstep-forecast: {error}")
    if options.json:
        print(json.dumps({"round_trip_ms": 1000 * round_trip, "bandwidth_mbit": bandwidth / 1e6, "wire": options.wire,
                          "sync_every": options.sync_every, "one_process_step_ms": 1000 * model.step,
                          "forecasts": [{"hosts": f.hosts, "ranks": f.ranks, "update": f.update, "algorithm": f.algorithm,
                                         "step_ms": 1000 * f.step, "communication": f.communication, "efficiency": f.efficiency,
                                         "sent_bytes": round(f.sent), "memory_bytes": f.memory} for f in results]}, indent=2))
        return
    print(f"one process: {1000 * model.step:.2f} ms a step; link: {1000 * round_trip:.2f} ms a round trip, "
          f"{bandwidth / 1e6:.1f} Mbit/s\n\n{table(results)}")


if __name__ == "__main__":
    main()
