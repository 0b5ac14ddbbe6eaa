#!/usr/bin/env python3
"""How well lockstep-forecast predicts steps: trains with 2 to 8 processes over links of known round trip and bandwidth, fits the
constants of the link on some of the runs, and prints the error on the others.

Each process runs in a network namespace, whose only device ends in network/slow_switch.cpp. Needs root. The link is measured by
lockstep-doctor, as `lockstep-run --check` does, and the model comes from a run of one process.

    ./dev build && python3 benchmarks/forecast_error.py --keep build/forecast   # measures what the folder does not have, then fits
"""
import argparse
import fcntl
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/programs")]
import forecast  # noqa: E402

MTU = 9000
SECRET = "a secret of this benchmark"
#   program, update, hosts, workers of each, images of a rank, ms, Mbit/s
RUNS = [("mnist", "replicated", 2, 1, 16, 1, 200), ("mnist", "replicated", 4, 1, 16, 1, 100), ("mnist", "replicated", 8, 1, 16, 1, 50),
        ("mnist", "replicated", 2, 1, 16, 10, 100), ("mnist", "replicated", 4, 1, 16, 20, 50), ("mnist", "replicated", 8, 1, 16, 40, 25),
        ("mnist", "replicated", 3, 1, 16, 5, 25), ("mnist", "replicated", 4, 1, 16, 40, 200), ("mnist", "replicated", 6, 1, 16, 10, 10),
        ("mnist", "sharded", 2, 1, 16, 1, 200), ("mnist", "sharded", 4, 1, 16, 1, 100), ("mnist", "sharded", 8, 1, 16, 10, 50),
        ("mnist", "sharded", 4, 1, 16, 20, 50), ("mnist", "sharded", 6, 1, 16, 40, 25), ("mnist", "sharded", 3, 1, 16, 5, 10),
        ("cifar10", "replicated", 2, 1, 8, 1, 100), ("cifar10", "replicated", 2, 1, 16, 10, 200),
        ("cifar10", "replicated", 2, 1, 32, 5, 50), ("cifar10", "replicated", 4, 1, 4, 1, 100),
        ("cifar10", "replicated", 4, 1, 8, 20, 50), ("cifar10", "replicated", 8, 1, 2, 5, 25),
        ("cifar10", "sharded", 2, 1, 16, 1, 100), ("cifar10", "sharded", 2, 1, 8, 20, 50), ("cifar10", "sharded", 4, 1, 4, 5, 50),
        ("mnist", "replicated", 2, 2, 16, 1, 100), ("mnist", "replicated", 2, 4, 16, 20, 50), ("mnist", "replicated", 4, 2, 16, 5, 50),
        ("mnist", "sharded", 2, 2, 16, 5, 50), ("mnist", "replicated", 17, 1, 4, 1, 50), ("mnist", "replicated", 20, 1, 4, 10, 100),
        ("mnist", "sharded", 17, 1, 4, 1, 100), ("mnist", "virtual_shards", 32, 1, 4, 1, 100)]
# Chosen and made after the model and its constants were final.
LATER = [("mnist", "replicated", 5, 1, 16, 2, 40), ("mnist", "sharded", 7, 1, 16, 15, 30), ("cifar10", "replicated", 3, 1, 8, 10, 40),
         ("cifar10", "sharded", 3, 1, 8, 10, 80), ("cifar10", "replicated", 2, 2, 4, 5, 50), ("cifar10", "sharded", 2, 2, 4, 10, 100),
         ("mnist", "replicated", 24, 1, 4, 3, 100), ("mnist", "virtual_shards", 32, 1, 4, 10, 50)]
TRIPS, GOODPUTS = [0.20 + 0.02 * i for i in range(66)], [0.70 + 0.01 * i for i in range(51)]


def fitted(run):
    """Every other run; the rest is predicted."""
    return run in RUNS and RUNS.index(run) % 2 == 0


class Switch:
    """Hosts 10.78.0.1, ..., each a network namespace with a tunnel device."""

    def __init__(self, program, count, workers, round_trip, rate, queue="fair"):
        import network  # makes namespaces when it is imported
        self.network, self.workers, self.delay, self.rate = network, workers, round_trip / 2, rate
        self.names = [f"{network.PREFIX}-{os.getpid()}-f{i}" for i in range(count)]
        self.devices, self.child = [], None
        try:
            for i, name in enumerate(self.names):
                network.ip("netns", "add", name)
                self.devices.append(network.in_namespace(name, self.open_device))
                for words in (("address", "add", f"10.78.0.{i + 1}/24", "dev", "cable"), ("link", "set", "lo", "up"),
                              ("link", "set", "cable", "mtu", MTU, "up", "txqueuelen", 10000)):
                    network.ip("-n", name, *words)
            self.child = subprocess.Popen([program, str(self.delay), str(self.rate), queue, *map(str, self.devices)], pass_fds=self.devices)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def open_device():
        device, tun_without_head, set_device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK), 0x1001, 0x400454CA
        fcntl.ioctl(device, set_device, struct.pack("16sH22x", b"cable", tun_without_head))
        return device

    def start(self, rank, ranks, command, **variables):
        host = rank // self.workers
        cluster = {"worker": [f"10.78.0.{r // self.workers + 1}:{2222 + r % self.workers}" for r in range(ranks)]}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[host], *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**environment, **variables, "LOCKSTEP_SECRET": SECRET,
                 "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})})

    def run(self, ranks, command, timeout=600, codes=(0,), **variables):
        """The output of rank 0 of a job; `command` gets the rank."""
        jobs = [self.start(i, ranks, command(i), **variables) for i in range(ranks)]
        try:
            output = [job.communicate(timeout=timeout) for job in jobs]
        finally:
            for job in jobs:
                job.kill()
        if any(job.returncode not in codes for job in jobs):
            sys.exit(f"{' '.join(map(str, command(0)))} failed: {output}")
        return output[0][0]

    def close(self):
        if self.child:
            self.child.kill()
            self.child.wait()
        for device in self.devices:
            os.close(device)
        for name in self.names:
            self.network.remove_namespace(name)


def update_options(update, ranks):
    """`virtual_shards` is ls::Replicated with sums along a tree."""
    return ["--virtual-shards", ranks] if update == "virtual_shards" else ["--update", update]


def options_of(program, batch, steps):
    common = ["--batch", batch, "--steps-per-epoch", steps, "--epochs", 1, "--threads", 1, "--quiet"]
    return common + (["--depth", 20] if program == "cifar10" else [])


def key_of(run):
    """A name for files, without the workers if there is one."""
    return "-".join(str(value) for i, value in enumerate(run) if i != 3 or value > 1)


def one_process(bins, keep, program, batch):
    """The model, from a run of one process."""
    path = keep / f"one-{program}-{batch}.json"
    if not path.exists():
        command = [bins / program, *options_of(program, batch, 60 if program == "mnist" else 24), "--report", path]
        subprocess.run(list(map(str, command)), check=True)
    return forecast.read_model(path)


def measure(bins, keep, run, repeat):
    """Steps of a run in milliseconds (the least of the repetitions), and the doctor's round trip and bandwidth."""
    program, update, hosts, workers, batch, trip, rate = run
    path = keep / f"{key_of(run)}.json"
    found = json.loads(path.read_text()) if path.exists() else {"steps": []}
    ranks = hosts * workers
    while len(found["steps"]) < repeat or "check" not in found:
        switch = Switch(keep / "slow_switch", hosts, workers, trip / 1000, rate * 125_000)
        try:
            if "check" not in found:
                # The doctor shows all connections of up to eight workers.
                found["check"] = switch.run(min(8, ranks), lambda _: [bins / "lockstep-doctor", "--wait", 60], codes=(0, 1))
                path.write_text(json.dumps(found))
                continue
            report = keep / "report.json"
            seconds = 2 * 1.4e6 * 8 / (rate * 1e6) + 4 * trip / 1000  # of a step, about
            steps = max(12, min(40, int(10 / seconds)))
            switch.run(ranks, lambda rank: [bins / f"{program}_multi_worker", *options_of(program, batch * ranks, steps),
                                            *update_options(update, ranks), *(["--report", report] if rank == 0 else [])])
            found["steps"].append(json.loads(report.read_text())["step_ms"]["median"])
            report.unlink()
        finally:
            switch.close()
        path.write_text(json.dumps(found))
        print(f"{key_of(run)}: {found['steps']}", file=sys.stderr, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--keep", type=pathlib.Path, required=True, help="folder of the measurements; what it has is not repeated")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    os.environ["LOCKSTEP_BIN"] = str(options.bin)
    options.keep.mkdir(parents=True, exist_ok=True)
    source = ROOT / "benchmarks/network/slow_switch.cpp"
    subprocess.run(["g++", "-std=c++20", "-O2", source, "-o", options.keep / "slow_switch"], check=True)
    rows = []
    for run in [*RUNS, *LATER]:
        program, update, hosts, workers, batch, trip, rate = run
        model = one_process(options.bin, options.keep, program, batch)
        found = measure(options.bin, options.keep, run, options.repeat)
        check = options.keep / "check.txt"
        check.write_text(found["check"])
        # The processes of the job share the cores of this machine.
        busy = max(1, hosts * workers / os.cpu_count())
        model = forecast.replace(model, step=model.step * busy, update=model.update * busy)
        rows.append((run, model, forecast.read_check(check), statistics.median(found["steps"]) / 1000))

    def error(row, trips, goodput):
        run, model, (round_trip, bandwidth), seconds = row
        link = forecast.Link.measured(round_trip, bandwidth, goodput=goodput, trips=trips)
        in_tree = run[1] == "virtual_shards"
        found = forecast.forecast(model, run[2], run[3], link, "replicated" if in_tree else run[1], in_tree=in_tree)
        return found.step / seconds - 1

    training = [row for row in rows if fitted(row[0])]
    trips, goodput = min(((t, g) for t in TRIPS for g in GOODPUTS),
                         key=lambda c: sum(error(row, *c) ** 2 for row in training))
    print(f"fitted: TRIPS {trips:.2f}, GOODPUT {goodput:.2f} (in tools/forecast.py: {forecast.TRIPS}, {forecast.GOODPUT})\n")
    print("| program | update | hosts | workers | images a rank | link | doctor | one process, ms | step, ms | forecast, ms | error |")
    print("|---|---|--:|--:|--:|---|---|--:|--:|--:|--:|")
    errors = {False: [], True: []}  # by whether the run is a later one
    for row in sorted(rows, key=lambda r: (r[0] not in LATER, fitted(r[0]))):
        run, model, (round_trip, bandwidth), seconds = row
        wrong = error(row, forecast.TRIPS, forecast.GOODPUT)
        if not fitted(run):
            errors[run in LATER].append(abs(wrong))
        print(f"| {run[0]} | {run[1]} | {run[2]} | {run[3]} | {run[4]} | {run[5]} ms, {run[6]} Mbit/s | {1000 * round_trip:.2f} ms, "
              f"{bandwidth / 1e6:.1f} Mbit/s | {1000 * model.step:.1f} | {1000 * seconds:.1f} | {1000 * seconds * (1 + wrong):.1f} | "
              f"{100 * wrong:+.1f} %{' (fitted)' if fitted(run) else ' (later)' if run in LATER else ''} |")
    for is_later, found in errors.items():
        print(f"\n{len(found)} {'later' if is_later else 'predicted'} runs: error at most {100 * max(found):.1f} %, "
              f"{100 * statistics.mean(found):.1f} % in the mean")
    sys.exit(max(sum(errors.values(), [])) > 0.15)


if __name__ == "__main__":
    main()
