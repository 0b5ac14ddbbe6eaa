#!/usr/bin/env python3
"""Tests the figures and conclusions of the benchmark scripts with hand-made input."""
import json
import math
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers"), str(BENCHMARKS.parent / "tools" / "gpu")]

import compare_builds  # noqa: E402
import compile_cost  # noqa: E402
import gpu  # noqa: E402
import gpu_record  # noqa: E402
import layers  # noqa: E402
import side_by_side  # noqa: E402
import tables  # noqa: E402
import unit_cost  # noqa: E402

failures = []


def check(what, holds):
    if not holds:
        failures.append(what)


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


# FLOPs of the seed step, counted manually: 64 * (4*194,688 + 6*346,112 + 6*640).
check("FLOPs of the seed step", tables.step_flops("cnn", "fit", 64) == 182_992_896)
check("FLOPs of a prediction", tables.step_flops("mlp", "predict", 1) == 2 * 668_672)

# Cliffs: 20 us per step plus 10 us per example has none; a bump at one size is one.
line = {size: 20 + 10 * size for size in (1, 8, 32, 61, 64, 256)}
expected = tables.expectations(line)
check("inside, a line is expected", all(near(expected[s], line[s]) for s in (8, 32, 61, 64)))
check("the largest is expected from the one below", near(expected[256], line[64] * 4))
check("the smallest is expected from the one above", near(expected[1], line[8]))
check("a line has no cliff", max(tables.cliffs(line).values()) < tables.CLIFF)
bumpy = {**line, 61: 1.4 * line[61]}
check("a bump is a cliff", tables.cliffs(bumpy)[61] > tables.CLIFF)
check("only the bump is one", [s for s, r in tables.cliffs(bumpy).items() if r > 1.3] == [61])
late = {**line, 256: 1.4 * 4 * line[64]}
check("a slow largest size is a cliff", tables.cliffs(late)[256] > tables.CLIFF)
check("one size has no expectation", tables.cliffs({64: 5.0}) == {})

# The table: medians of rounds, ratios in each round, share of the peak.
records = [{"program": name, "threads": 1, "batch": 64, "round": number,
            "step_ms": {"median": value, "min": value / 2}}
           for number in range(3) for name, value in (("ours", 1 + number), ("keras", 5 + 5 * number))]
records.append({"program": "peak", "threads": 1, "batch": 64, "round": 0, "gflops": 1000.0})
options = types.SimpleNamespace(threads=[1], batches=[64], only=["ours", "keras"], model="cnn",
                                work="fit", asked_batch=64)
rows, peaks = tables.table(options, records)
check("median of the rounds", rows[1]["median_ms"] == 10 and rows[1]["min_ms"] == 2.5)
check("ratios of the rounds", near(rows[1]["ratio"]["median"], 5) and
      rows[1]["ratio"]["min"] == 5 and near(rows[1]["ratio"]["max"], 5))
check("share of the peak", near(rows[0]["peak_share"], 182_992_896 / 0.5e6 / 1000))
check("a bound that is met", "5.00, at least 4: met." in tables.verdict_lines(options, rows)[0])
rows[1]["ratio"]["median"] = 3.9
check("a bound that is missed", "at least 4: MISSED." in tables.verdict_lines(options, rows)[0])


# A round counts if the machine peaks before and after it are close to the best one.
peaked = [{"program": "peak", "threads": 1, "batch": 8, "round": number, "gflops": gflops}
          for number, both in enumerate(((100, 95), (100, 80), (70, 99), (91, 92)))
          for gflops in both]
check("rounds of a whole machine", tables.counted(peaked, 1, 8) == {0, 3})
steps = [{"program": "ours", "threads": 1, "batch": 8, "round": number,
          "step_ms": {"median": 1.0 + number, "min": 0.5}} for number in range(4)]
check("only they have figures",
      tables.medians(peaked + steps, "ours", 1, 8) == {0: 1.0, 3: 4.0})
check("without a peak all rounds count", len(tables.medians(steps, "ours", 1, 8)) == 4)

# ResNet: ratios of the same round, memory in total and without that of the import.
runs = [{"program": name, "threads": 1, "round": number,
         "step_ms": {"median": ms * (1 + number), "min": ms}, "resident_bytes": size, **more}
        for number in range(3) for name, ms, size, more in (
            ("ours", 100, 500e6, {}), ("pytorch", 140, 1000e6, {"imported_bytes": 400e6}))]
ours, theirs = side_by_side.table(types.SimpleNamespace(threads=[1], only=["ours", "pytorch"]), runs,
                                  {"ours": ["pytorch"]})
check("a step compared with PyTorch's", ours["median_ms"] == 200 and near(ours["speed"], 1.4))
check("memory compared with PyTorch's", near(ours["resident"], 0.5) and near(ours["added"], 500 / 600))
check("what PyTorch adds", near(theirs["added_mb"], 600) and "speed" not in theirs)
output = list(side_by_side.lines([ours, theirs], speed=1.5, resident=0.6, added=0.75))
check("verdicts on speed and memory",
      [line.split(": ", 1)[1] for line in output if line.startswith("ours")] == [
          "1.40, at least 1.5: MISSED.", "0.50, at most 0.6: met.", "0.83, at most 0.75: MISSED."])

# On a GPU: ratios of the same round, the most memory of all rounds, verdicts.
runs = [{"work": "resnet-bfloat16", "program": name, "round": number,
         "step_ms": {"median": ms * (1 + number), "min": ms}, "peak_bytes": sizes}
        for number in range(3) for name, ms, sizes in (
            ("ours", 0.5, {"gpu": (14 + number) * 1e6, "context": 4e6, "planned": 10e6}),
            ("pytorch-compile", 0.7, {"allocated": 30e6}))]
options = gpu.parse(["--work", "resnet-bfloat16", "--only", "ours,pytorch-compile"])
ours, theirs = gpu.table(options, runs)
check("a step on a GPU", ours["median_ms"] == 1 and ours["min_ms"] == 0.5)
check("memory on a GPU", ours["memory"] == {"gpu": 16e6, "context": 4e6, "planned": 10e6})
check("a step on a GPU compared with PyTorch's", near(theirs["ratio"]["median"], 1.4))
check("verdicts on a GPU", [line.split(": ", 1)[1] for line in gpu.verdicts([ours, theirs])] == [
    "1000.0 us, at most 1200: met.", "20%, at most 5%: MISSED.", "1.40, at least 1.5: MISSED."])
ours["memory"]["context"] = 5.6e6
check("memory within the plan on a GPU", "4%, at most 5%: met." in list(gpu.verdicts([ours, theirs]))[1])
del ours["memory"]["context"]
check("no verdict on memory without a context's", len(list(gpu.verdicts([ours, theirs]))) == 2)
output = iter([100, 600, 600, 700])
gpu.used_bytes = lambda: next(output)
opened = [sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()"]
check("what a context takes", gpu.context_bytes(opened) == 500)
check("a context that cannot be opened", gpu.context_bytes([sys.executable, "-c", "1"]) is None)

# The roofline: a million operations at 100 GFLOP/s take 10 us, 10^5 bytes at 20 GB/s take 5 us.
check("operations bound", near(layers.roofline(1e6, 1e5, 100, 20), 10))
check("bytes bound", near(layers.roofline(1e6, 1e6, 100, 20), 50))
entries = layers.read_layers(
    '{"benchmarks": [{"name": "a/forward/1/real_time", "real_time": 1},'
    '{"name": "a/forward/2/real_time", "real_time": 2}, {"name": "b/21/real_time"}]}', 1)
check("entries of one thread count", list(entries) == ["a/forward"])
found = {("peak", ""): [90.0, 100.0], ("ours", "a"): [40.0, 20.0, 30.0], ("onednn", "a"): [60.0],
         ("work", "a"): (1e6, 1e5), ("ours", "copy"): [50.0, 60.0], ("work", "copy"): (0, 1e6)}
check("a row of layers", "| a | 30.0 | 60.0 | - | 10.0 | 33% |" in list(layers.lines(found)))

# Compile cost: 3 s plus 0.01 s per layer; then four times as much per layer.
def growth(last):
    costs = {10: 3.1, 50: 3.5, 150: 3.5 + 100 * last}
    done = [{"program": f"{count} layers, different", "compiler": "g++", "user_seconds": seconds}
            for count, seconds in costs.items()]
    sizes = types.SimpleNamespace(layers=list(costs), compilers=["g++"])
    return list(compile_cost.growth_lines(sizes, done))


check("linear growth", growth(0.01) == [
    "g++, different: the largest takes 1.00 of the linear prediction; at most linear: met."])
check("more than linear growth", "takes 1.67 of" in growth(0.04)[0] and "MISSED" in growth(0.04)[0])
check("a faster size in between does not count", near(compile_cost.growth({1: 3, 2: 2, 3: 2.2}), 1.1))
check("two sizes give no result", compile_cost.growth({10: 3, 50: 4}) is None)

# The cost of a unit: the command, its object file and -O, and the verdict on the bounds.
entries = [{"directory": "/b", "command": f"c++ -DX='a b' -O1 -g1 -o x/{name}.o -c {name}.cpp"}
           for name in ("one", "two")]
name, words, directory = unit_cost.unit(entries, re.compile("two"))
check("the unit whose object matches", (name, directory) == ("x/two.o", "/b"))
check("its source is not an object file", unit_cost.unit(entries, re.compile("cpp$")) is None)
check("its command", unit_cost.changed(words, "-O2", "t.o") == [
    "c++", "-O2", "-DX=a b", "-g1", "-o", "t.o", "-c", "two.cpp"])
check("bounds of a unit", list(unit_cost.verdict_lines("-O2", 15.1, 700)) == [
    "user seconds: 15.1, at most 15: MISSED.", "peak MB: 700.0, at most 1200: met."])
check("no bounds at -O1", "met" not in "".join(unit_cost.verdict_lines("-O1", 1, 1)))

# Two builds: times with a noise of 5 %, the second build slower by a factor.
def noisy(factor, noise, rounds=25, seed=3):
    draw = random.Random(seed)
    return [[f * math.exp(draw.gauss(0, noise)) for _ in range(rounds)] for f in (7, 7 * factor, 7)]


def slower(factor, noise, **more):
    return compare_builds.is_slower(compare_builds.compare(*noisy(factor, noise, **more)), 1.03)


check("20 % are seen through 5 % of noise", slower(1.2, 0.05))
check("20 % are not claimed through 40 % of noise", not slower(1.2, 0.4))
check("2 % are below the threshold", not slower(1.02, 0.001))
check("a faster build is not slower", not slower(0.8, 0.05))
claims = sum(slower(1, 0.05, seed=seed) for seed in range(40))
check(f"equal builds are found slower {claims} times of 40", claims <= 2)
for median, interval, noise, wanted in (
    (1.2, (1.1, 1.3), (0.99, 1.01), True),
    (1.2, (0.9, 1.3), (0.99, 1.01), False),  # its interval holds 1
    (1.2, (1.1, 1.3), (0.99, 1.15), False),  # two runs of the same program differ as much,
    (1.2, (1.1, 1.3), (0.85, 1.01), False),  # in either direction
    (1.02, (1.01, 1.03), (0.99, 1.005), False),
):
    verdict = compare_builds.is_slower(
        {"median": median, "interval": interval, "noise": noise}, 1.03)
    check(f"{median}, {interval}, noise {noise}: slower is {wanted}", verdict == wanted)
result = compare_builds.compare(*noisy(1.5, 0.02))
check("the ratio is that of the builds", 1.47 < result["median"] < 1.53)
check("the interval holds it", result["interval"][0] < 1.5 < result["interval"][1])
check("the noise is about 1", result["noise"][0] < 1.02 and result["noise"][1] > 0.98)
# The confidence interval of a median covers it in about 95 of 100 cases.
covered = 0
for seed in range(100):
    low, high = compare_builds.interval(
        [math.log(x / 7) for x in noisy(1, 0.1, seed=seed)[0]])
    covered += low <= 1 <= high
check(f"the interval covers in {covered} of 100 cases", covered >= 88)

# Outputs.
check("Google's JSON", compare_builds.figures(
    '{"context": {}, "benchmarks": [{"name": "a", "real_time": 2.5}]}') == {"a": 2.5})
check("a line of the peers", compare_builds.figures(
    'output\n{"program": "x", "step_ms": {"median": 1.5, "min": 1}}\n') == {"step": 1.5})
check("lines of medians", compare_builds.figures(
    "Cpu, batch 1    median   4.67 us, min   4.54 us a step\n") == {"Cpu, batch 1": 4.67})
check("no figure", compare_builds.figures("nothing\n") == {})

# The whole script, with two programs that print given values.
with tempfile.TemporaryDirectory() as folder:
    for name, value in (("a", 1.0), ("b", 1.5), ("c", 1.0)):
        program = Path(folder) / name / "bin/fake"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'step median {value} us'\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def code(*arguments):
        done = subprocess.run(
            [sys.executable, "-B", str(BENCHMARKS / "compare_builds.py"), "--rounds", "3",
             *arguments], capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout + done.stderr

    a, b, c = (str(Path(folder) / name) for name in "abc")
    check("a slower build is exit code 1", code(a, b, "fake")[0] == 1)
    check("it is named", "SLOWER" in code(a, b, "fake")[1])
    check("an equal build is exit code 0", code(a, c, "fake")[0] == 0)
    check("a faster build is exit code 0", code(b, a, "fake")[0] == 0)
    status, text = code(a, b, "missing")
    check("a missing program is exit code 2", status == 2 and "build it first" in text)
    status, text = code(a, "no such revision", "fake")
    check("neither folder nor revision", status == 2 and "neither a folder nor" in text)

# gpu.py with a peer that works, one that fails to start, and a program of lockstep.
with tempfile.TemporaryDirectory() as folder:
    def script(name, *text):
        path = Path(folder) / name
        path.write_text("\n".join(text) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    epoch = '{"seconds": 0.002}'
    script("mnist", "#!/bin/sh", 'echo "$@" > "$0.arguments"', 'while [ "$1" != --report ]; do shift; done',
           "echo '{" + f'"epochs": [{epoch}, {epoch}, {epoch}, {epoch}], "version": "1", "step_loss": [2],'
           '"step_ms": {}, "peak_bytes": {"planned": 5}' + "}' > \"$2\"")
    python = script(
        "python", "#!/bin/sh", 'case "$2" in *gpu_jax.py) echo no jax >&2; exit 1;; esac',
        "echo noise", """echo '{"ready": true, "versions": {"x": "2"}}'""", "while read -r chunks; do",
        """echo '{"step_ms": {"median": 3, "min": 2}, "peak_bytes": {"reserved": '$chunks'}}'; done""")
    figures = Path(folder) / "figures.json"
    done = subprocess.run(
        [sys.executable, "-B", str(BENCHMARKS / "peers/gpu.py"), "--device", "cpu", "--dry-run",
         "--bin", folder, "--python", python, "--work", "cnn-float32", "--json", str(figures),
         "--only", "ours,pytorch-eager,jax-jit"],
        capture_output=True, text=True, check=False)
    check(f"gpu.py runs: {done.stderr}", done.returncode == 0)
    check("gpu.py counts steps of ours by epochs",
          "| cnn-float32 | ours | 1000.0 | 1000.0 | 1.00 (1.00..1.00) |" in done.stdout)
    check("gpu.py asks peers for chunks",
          "| cnn-float32 | pytorch-eager | 3000.0 | 2000.0 | 3.00 (3.00..3.00) |" in done.stdout and
          json.loads(figures.read_text())["records"][1]["peak_bytes"] == {"reserved": 2})
    check("gpu.py lists what is left out",
          "Left out: cnn-float32, jax-jit (exit code 1: no jax)." in done.stdout)
    script("python", "#!/bin/sh", "sleep 60 & wait")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-B", str(BENCHMARKS / "peers/gpu.py"), "--device", "cpu", "--dry-run",
         "--bin", folder, "--python", python, "--work", "cnn-float32", "--budget", "13", "--patience", "7",
         "--only", "ours,pytorch-eager,jax-jit,pytorch-compile"],
        capture_output=True, text=True, check=False)
    check(f"gpu.py ends within its budget: {done.stderr}", done.returncode == 0 and time.monotonic() - began < 20)
    check(f"gpu.py kills a peer that does not get ready: {done.stdout}",
          "Left out: cnn-float32, pytorch-eager (not ready within 6 s, half of what was left)." in done.stdout)
    check("gpu.py gives the next one half of the rest",
          "Left out: cnn-float32, jax-jit (not ready within 5 s, half of what was left)." in done.stdout)
    check("gpu.py starts none that has no time",
          "Left out: cnn-float32, pytorch-compile (no time left)." in done.stdout)
    check("gpu.py makes warm-up epochs", "--epochs 4 --steps-per-epoch 2" in
          (Path(folder) / "mnist.arguments").read_text())
    options = gpu.parse(["--budget", "200", "--patience", "60"])
    seconds, is_share = gpu.left_to_get_ready(options)
    check("patience ends before a share that is longer", seconds == 60 and not is_share)
    bare = "import sys; sys.modules['_ctypes'] = None; import gpu; gpu.end_with_parent(); print(gpu.PRCTL)"
    done = subprocess.run([sys.executable, "-B", "-c", bare], cwd=BENCHMARKS / "peers", capture_output=True, text=True)
    check(f"gpu.py needs no libffi: {done.stderr}", done.stdout == "None\n")
    check("without a budget there is no share", gpu.left_to_get_ready(gpu.parse([])) == (300, False))
    check("what compiles longest comes last", gpu.PROGRAMS.index("jax-jit") < gpu.PROGRAMS.index("pytorch-compile"))

    # Killed while one peer is starting (asleep, with a child process) and another is ready.
    script("python", "#!/bin/sh", 'case "$*" in *"--way graphs"*) sleep 60 & echo $$ $! > ' + f"{folder}/sleeping; wait;; esac",
           """echo '{"ready": true, "versions": {}}'""", f"echo $$ > {folder}/ready", "while read -r chunks; do",
           """echo '{"step_ms": {"median": 3, "min": 2}, "peak_bytes": {}}'; done; sleep 60""")

    def is_running(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def until(holds, seconds=20):
        end = time.monotonic() + seconds
        while not holds() and time.monotonic() < end:
            time.sleep(0.05)
        return holds()

    sleeping, ready = Path(folder, "sleeping"), Path(folder, "ready")
    command = [sys.executable, "-B", str(BENCHMARKS / "peers/gpu.py"), "--device", "cpu", "--dry-run", "--bin", folder,
               "--python", python, "--work", "cnn-float32", "--json", str(figures),
               "--only", "ours,pytorch-eager,pytorch-graphs"]
    for by in ("gpu_record.py", "SIGKILL"):
        for path in (sleeping, ready, figures):
            path.unlink(missing_ok=True)
        if by == "SIGKILL":
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until(lambda: sleeping.exists() and len(sleeping.read_text().split()) == 2)
            process.kill()
            process.wait(20)
        else:
            check("gpu_record.py ends gpu.py", gpu_record.run(command, 6)[0] == "timeout")
        pids = [int(pid) for path in (ready, sleeping) for pid in path.read_text().split()]
        if by == "SIGKILL":  # gpu.py cannot stop children of its peers
            os.kill(pids.pop(), signal.SIGKILL)
        check(f"gpu.py's peers end with it, by {by}", until(lambda: not any(map(is_running, pids)), 3))
        check("figures are written while a peer gets ready",
              [row["program"] for row in json.loads(figures.read_text())["rows"]] == ["ours", "pytorch-eager"])
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)

    # Several peers that ignore the request to stop.
    script("python", "#!/bin/sh", """echo '{"ready": true, "versions": {}}'""", "while read -r chunks; do",
           """echo '{"step_ms": {"median": 3, "min": 2}, "peak_bytes": {}}'; done; sleep 60""")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-B", str(BENCHMARKS / "peers/gpu.py"), "--device", "cpu", "--dry-run", "--bin", folder,
         "--python", python, "--work", "cnn-float32", "--only", "pytorch-eager,pytorch-graphs,jax-jit"],
        capture_output=True, text=True, check=False)
    check(f"gpu.py waits for its peers together: {time.monotonic() - began:.0f} s",
          done.returncode == 0 and 4 < time.monotonic() - began < 9)

sys.exit("\n".join(failures) or None)
