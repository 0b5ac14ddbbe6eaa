#!/usr/bin/env python3
"""Tests the scripts that check a GPU, with shell and Python stand-ins for the programs: hangs, crashes and skipped commands are
distinguished, the smoke cases can stop a phase, and the table matches the JSON. gpu_check_slow.py runs the real pack."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "gpu"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True

import gpu_record  # noqa: E402

failures = []
SMOKE = ("from the second epoch on each step of fit is one graph with the same results, bit by bit",
         "optimizers on the GPU agree with the reference",
         "convolutions of the models' kinds agree with the reference")
# A stand-in for a Catch2 program: lists its cases or runs one by name; a case is a line of Python. Slow cases are hidden.
PROGRAM = """#!{python}
import os, re, signal, subprocess, sys, time
cases = {cases!r}
def caught(what):
    print("t.cpp:1: FAILED:\\ndue to unexpected exception with message:\\n  " + what)
    sys.exit(42)
if "--list-tests" in sys.argv:
    print("\\n".join(name for name in cases if name.startswith("slow") == ("[.slow]" in sys.argv)))
else:
    name = re.sub(r"\\\\(.)", r"\\1", sys.argv[1])
    print("here is", name, os.environ.get("LOCKSTEP_CUDA_CHECK"), flush=True)
    exec(cases[name])
"""


def check(what, holds):
    if not holds:
        failures.append(what)


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return path


def program(path, cases):
    return script(path, PROGRAM.format(python=sys.executable, cases=cases))


def run(*command, **environment):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout


def entries(path):
    return json.loads(path.read_text("utf-8"))["entries"]


def run_cases(folder, *arguments, **environment):
    into = folder / "cases.json"
    gpu_record.begin(into, "a", "a command")
    code, reported = run(sys.executable, TOOLS / "gpu_cases.py", into, *arguments, **environment)
    return code, reported, {e["name"]: e for e in entries(into)}


def test_cases(folder):
    child = folder / "child"
    hangs = f"p = subprocess.Popen(['sleep', '600']); open({str(child)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    one = program(folder / "one", {
        "it is fine": "print('All tests passed')",
        'a [name], with "signs" * \\': "pass",
        "it fails": "caught('cuda: waiting for the GPU failed')",
        "it crashes": "os.kill(os.getpid(), signal.SIGSEGV)",
        "it hangs": hangs,
        "it is skipped": "print('SKIPPED:\\nexplicitly with message:\\n  no NCCL'); sys.exit(4)"})
    begun = time.monotonic()
    code, reported, found = run_cases(folder, "--seconds", "4", "--jobs", "2", one, folder / "nothing")
    check("a case that hangs ends", time.monotonic() - begun < 30)
    check("some fail: exit code 1", code == 1)
    check(f"how each case ended: {reported}", {name: e["how"] for name, e in found.items()} == {
        "it is fine": "ok", 'a [name], with "signs" * \\': "ok", "it fails": "failed", "it crashes": "crashed",
        "it hangs": "timeout", "it is skipped": "skipped", "the list of its cases": "not there"})
    check("why", [found[name]["reason"] for name in ("it fails", "it crashes", "it is skipped")] == [
        "cuda: waiting for the GPU failed", "SIGSEGV", "no NCCL"])
    check("the output of a failed case is kept", "here is it fails" in found["it fails"]["text"])
    check("the summary", "7 cases: 1 crashed, 1 failed, 1 not there, 2 ok, 1 skipped, 1 timeout" in reported)
    time.sleep(0.2)
    check("what a case started is killed with it",
          not pathlib.Path("/proc", child.read_text()).exists() or
          pathlib.Path("/proc", child.read_text(), "stat").read_text().split()[2] == "Z")

    code, _, found = run_cases(folder, one, LOCKSTEP_GPU_UNTIL=str(time.time() + 1))
    check("nothing begins without time", {e["how"] for e in found.values()} == {"no time"} and code != 0)
    slow = program(folder / "slow", {f"case {i}": "time.sleep(1.5)" for i in range(6)})
    _, _, found = run_cases(folder, slow, LOCKSTEP_GPU_UNTIL=str(time.time() + 6.5))
    hows = [e["how"] for e in found.values()]
    check(f"what is not reached is listed: {hows}", len(hows) == 6 and "ok" in hows and "no time" in hows)

    alike = program(folder / "alike", {f"case {i}": f"caught('error {i} at 0x{i}f0')" for i in range(3)})
    check("one reason for all: exit code 3", run_cases(folder, alike)[0] == 3)
    unlike = program(folder / "unlike", {name: f"caught('{name}')" for name in ("one", "two")})
    check("two reasons: exit code 1", run_cases(folder, unlike)[0] == 1)
    hidden = program(folder / "hidden", {"slow one": "pass", "quick one": "pass"})
    check("hidden cases are left out", set(run_cases(folder, hidden)[2]) == {"quick one"})
    check("and run after the others", list(run_cases(folder, "--slow", hidden)[2]) == ["quick one", "slow one"])
    compiles = program(folder / "compiles", {"a text": "print('sh: 1: g++: not found'); caught('it does not compile')"})
    tools = folder / "tools"
    tools.mkdir()
    (tools / "env").symlink_to(shutil.which("env"))
    check("a missing compiler of the host", run_cases(folder, compiles, PATH=str(tools))[2]["a text"]["how"] == "skipped")
    if shutil.which("g++"):
        check("where there is one, it is a failure", run_cases(folder, compiles)[2]["a text"]["how"] == "failed")
    code, _, found = run_cases(folder, "--only", "case 2", "--only", "no such", alike)
    check("cases by their names", {n: e["how"] for n, e in found.items()} == {"case 2": "failed", "no such": "not there"})


def test_catch2(folder):
    """Its list and its way to name a case are Catch2's."""
    real = BIN / "golden_schedules"
    if not real.exists():
        print("left out: golden_schedules was not built")
        return
    code, reported, found = run_cases(folder, "--slow", real)
    check(f"cases of Catch2: {reported}", code == 0 and len(found) > 0 and all(e["how"] == "ok" for e in found.values()))
    check("each ran alone", all(e["program"] == "golden_schedules" for e in found.values()))


def test_sources():
    """The programs of the smoke phase have its cases: a program holds the cases of one folder."""
    unit = pathlib.Path(__file__).resolve().parents[1] / "unit/devices/cuda"
    texts = "".join(file.read_text("utf-8") for of in (unit, unit / "ops", unit / "ops/convolution") for file in of.glob("*.cpp"))
    texts = re.sub(r'"\s*"', "", texts)
    for name in SMOKE:
        check(f"no source has the smoke case '{name}'", f'TEST_CASE("{name}"' in re.sub(r"TEST_CASE\(\s+", "TEST_CASE(", texts))


def pack(folder, smoke, probe="echo '{\"gpu\": \"one\", \"figures\": []}' > \"$3\""):
    """One with programs that are not ours."""
    for name in ("gpu_check.sh", "gpu_record.py", "gpu_cases.py", "gpu_table.py"):
        script(folder / name, (TOOLS / name).read_text("utf-8"))
    of_ops = {name: body for name, body in smoke.items() if name != SMOKE[0]}
    program(folder / "bin/unit_devices_cuda", {name: body for name, body in smoke.items() if name not in of_ops} | {"one more": "pass"})
    program(folder / "bin/unit_devices_cuda_ops", {name: body for name, body in of_ops.items() if name != SMOKE[2]})
    program(folder / "bin/unit_devices_cuda_ops_convolution", {name: body for name, body in of_ops.items() if name == SMOKE[2]})
    program(folder / "bin/golden_cuda_none", {"of golden data": "assert os.environ['LOCKSTEP_GOLDEN_DIR'].endswith('golden')"})
    program(folder / "bin/distributed_cuda", {"of a job": "pass"})
    script(folder / "bin/gpu_probe", f"#!/bin/sh\n{probe}\n")
    return folder


def phase(folder, name, **environment):
    begun = time.monotonic()
    code, reported = run("bash", folder / "gpu_check.sh", name, folder / "out", PATH=f"{folder}/tools:{os.environ['PATH']}",
                     LOCKSTEP_GPU_CHECK="small", **environment)
    return code, reported, entries(folder / f"out/{name}.json"), time.monotonic() - begun


def hows(found, *kinds):
    return {e["name"]: e["how"] for e in found if e["kind"] in kinds}


def test_phase_a(folder):
    probe = """[ "$1" = --small ] && echo '{"gpu": "a GPU", "figures": [{"group": "launch", "name": "x", "unit": "us", "value": 2.5},
    {"group": "barrier", "name": "y", "unit": "us", "value": null, "reason": "no such call"}]}' > "$3\""""
    good = pack(folder / "good", dict.fromkeys(SMOKE, "pass"), probe)
    shutil.make_archive(str(good / "programs"), "xztar", good, "bin")
    shutil.rmtree(good / "bin")
    script(good / "tools/nvidia-smi", "#!/bin/sh\necho 'name, driver_version'; echo 'A GPU, 580.1'\n")
    code, reported, found, _ = phase(good, "a")
    check(f"phase a is well: {reported}", code == 0)
    check("three smoke cases", hows(found, "smoke") == dict.fromkeys(SMOKE, "ok"))
    check("all cases", hows(found, "case") == dict.fromkeys((*SMOKE, "one more", "of golden data", "of a job"), "ok"))
    check("the figures of the probe", [f for e in found if e["kind"] == "probe" for f in e["figures"]] == [
        {"name": "gpu", "value": "a GPU", "unit": ""}, {"group": "launch", "name": "launch: x", "unit": "us", "value": 2.5},
        {"group": "barrier", "name": "barrier: y", "unit": "us", "value": None, "reason": "no such call"}])
    text = (good / "out/a.md").read_text("utf-8")
    check(f"the phase's table: {text}", "A GPU, driver 580.1." in text and "`bin/gpu_probe --small --json probe.json`" in text
          and "launch: x | 2.5 | us |" in text and "- (no such call)" in text)
    check("the log", (good / "out/a.log").read_text("utf-8") == reported)

    bad = pack(folder / "bad", {name: f"caught('cuda: error {i}')" for i, name in enumerate(SMOKE)})
    code, reported, found, _ = phase(bad, "a")
    check("smoke cases that fail alike stop the phase",
          code == 3 and not hows(found, "probe", "case") and "all smoke cases failed for the same reason" in "".join(hows(found, "stop")))
    check("they ran again in the checked mode", [("1" in e["text"].splitlines()[0]) for e in found if e["kind"] == "smoke"] == [
        False] * 3 + [True] * 3)

    one = pack(folder / "one", {**dict.fromkeys(SMOKE, "pass"), SMOKE[0]: "caught('this one only')"})
    code, reported, found, _ = phase(one, "a")
    check("a GPU that only the probe names", "one, driver not known." in (one / "out/a.md").read_text("utf-8"))
    check("one smoke case that fails does not", code == 1 and hows(found, "case")["one more"] == "ok")

    late = pack(folder / "late", dict.fromkeys(SMOKE, "pass"), "sleep 600")
    code, reported, found, seconds = phase(late, "a", LOCKSTEP_GPU_SECONDS="12")
    check(f"a phase ends in its time: {seconds:.0f} s", code == 1 and seconds < 40)
    # On a busy machine the smoke cases may take all of the time.
    check("what was not reached is listed", hows(found, "probe") in ({"gpu_probe": "timeout"}, {"gpu_probe": "no time"})
          and set(hows(found, "case").values()) == {"no time"})


def test_phase_b(folder):
    report = {"steps": 8, "epochs": [{"seconds": 1}, {"seconds": 0.004}, {"seconds": 0.002}, {"seconds": 0.003}],
              "step_loss": [2, 1.5], "peak_bytes": {"planned": 5e6}}
    figures = {f["name"]: f["value"] for f in gpu_record.of_report(report)}
    check("figures of a report", figures == {"a step, median of the epochs from the second on": 1500, "loss of the last step": 1.5,
                                             "a step of the first epoch": 500_000, "planned memory": 5})
    here = pack(folder / "b", {})
    profile = {"step_microseconds": 40, "microseconds": 50, "event_microseconds": 2, "rows": [
        {"layer": "conv2d", "pass": "forward", "microseconds": 4, "bytes": 8000, "flops": 0}]}
    check("figures of a profile", [f["value"] for f in gpu_record.of_profile(profile)] == [40, 50, 2, 4, 2])
    write = ("while [ $# -gt 1 ]; do case $1 in "
             f"--report) echo '{json.dumps(report)}' > \"$2\";; --profile) echo '{json.dumps(profile)}' > \"$2\";; esac; shift; done")
    for name in ("mnist_cuda", "mnist_mirrored_cuda"):
        script(here / "bin" / name, f"#!/bin/sh\n{write}\n")
    script(here / "bin/cifar10_cuda", "#!/bin/sh\ncase \"$*\" in *mixed_float16*) echo no float16 >&2; exit 1;; esac\n" + write)
    kernel = '"0","1","p","h","{}","1","7","(1)","(1)","0","9.0","s","gpu__time_duration.sum","us","{}"'
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block","Grid","Device","CC","Section",' \
           '"Metric Name","Metric Unit","Metric Value"'
    script(here / "tools/ncu", "#!/bin/sh\ncat <<'T'\n==PROF== noise\n" + head + "\n" + kernel.format("a", "1,234.5") + "\n"
           + kernel.format("b", "2") + "\nT\n")
    code, reported, found, _ = phase(here, "b")
    steps = hows(found, "steps")
    check(f"phase b: {reported}", code == 1 and list(steps.values()).count("ok") == 7 and steps["ResNet, mixed_float16"] == "failed")
    check(f"kernels by ncu: {reported[-900:]}", [(f["name"], f["value"]) for e in found if "ncu" in e["name"] for f in e["figures"]] == [
        ("0: a: gpu__time_duration.sum", 1234.5), ("1: b: gpu__time_duration.sum", 2)])
    check("profiles", [f["name"] for e in found if e["kind"] == "profile" and "ncu" not in e["name"] for f in e.get("figures", [])] == [
        "a step without instrumentation", "the sum of its calls", "an event, part of each call", "0 conv2d, forward",
        "0 conv2d, forward"])
    script(here / "bin/mnist_cuda", "#!/bin/sh\n:\n")
    _, _, found, _ = phase(here, "b")
    check("a program without a report has failed", hows(found, "steps")["mnist_cuda, 1 steps per execution"] == "failed")


def test_table(folder):
    made = {"phase": "a", "command": "tools/gpu/gpu_check.sh a", "begun": "2026-11-23T07:00:00Z", "small": False, "entries": [
        {"kind": "version", "name": "nvidia-smi", "how": "ok", "seconds": 0.1, "reason": "", "text": "one\ntwo\n",
         "figures": gpu_record.of_smi("name, driver_version\nNVIDIA H200, 580.1\n")},
        {"kind": "case", "program": "p", "name": "a | b", "how": "crashed", "seconds": 2.5, "reason": "SIGSEGV", "text": "x"},
        {"kind": "case", "program": "p", "name": "c", "how": "ok", "seconds": 1, "reason": "", "text": ""},
        {"kind": "case", "program": "q", "name": "d", "how": "no time", "seconds": 0, "reason": "", "text": ""},
        {"kind": "peers", "name": "CNN", "how": "ok", "seconds": 9, "reason": "", "command": "gpu.py",
         "figures": gpu_record.of_peers({"rows": [{"work": "w", "program": "ours", "median_ms": 0.02, "memory": {"gpu": 3e6}}],
                                         "failures": [{"work": "w", "program": "jax-jit", "reason": "no jax"}]})}]}
    file, page = folder / "a.json", folder / "page.md"
    file.write_text(json.dumps(made), "utf-8")
    page.write_text("before\n<!-- gpu_check -->\nold\n<!-- /gpu_check -->\nafter\n", "utf-8")
    code, reported = run(sys.executable, TOOLS / "gpu_table.py", file, "--into", page)
    text = page.read_text("utf-8")
    check(f"the table goes into the page: {reported}", code == 0 and text.startswith("before\n<!-- gpu_check -->\n\nNVIDIA H200, driver 580.1.")
          and text.endswith("<!-- /gpu_check -->\nafter\n") and "old" not in text)
    for line in ("| nvidia-smi | one; two |", "| a | 2026-11-23T07:00:00Z | `tools/gpu/gpu_check.sh a` |", "| program | ok | crashed | no time |", "| p | 1 | 1 | 0 |",
                 "| all | 1 | 1 | 1 |", "| p: a \\| b | crashed | 2.5 | SIGSEGV |", "|   | w, ours: a step | 20 | us |",
                 "|   | w, ours: memory, gpu | 3 | MB |", "|   | w, jax-jit: a step | - (no jax) | us |"):
        check(f"a line of the table: {line}", line in text.splitlines())
    file.write_text(json.dumps({**made, "small": True}), "utf-8")
    code, reported = run(sys.executable, TOOLS / "gpu_table.py", file, "--into", page)
    check("figures of the host go into no page", code == 1 and page.read_text("utf-8") == text)
    check("they are marked", "the figures are meaningless" in reported)


test_sources()
with tempfile.TemporaryDirectory() as temporary:
    for test in (test_cases, test_catch2, test_phase_a, test_phase_b, test_table):
        place = pathlib.Path(temporary, test.__name__)
        place.mkdir()
        test(place)
sys.exit("\n".join(failures) or None)
