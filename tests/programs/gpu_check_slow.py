#!/usr/bin/env python3
"""`./dev gpu-pack` and the phases of gpu_check.sh from end to end, with the emulation of a GPU on the host: the pack alone, in an empty
root with a shell, Python and the C library, without a compiler and without a network. Kernels are compiled by a run outside
before, whose compilers' results lie in the pack; with LOCKSTEP_GPU_CHECK_WARM=1 those of an earlier run are used. Each phase
must end within ten minutes. LOCKSTEP_GPU_CHECK_OUT names a folder that gets the results."""
import collections
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["LOCKSTEP_BIN"]).parent
PHASES = "abcd"
TOOLS = """awk basename bash cat chmod cp date dirname env grep gzip head ldd ln ls mkdir mktemp mv nproc rm sed sh sort stat tail tar
tee timeout touch tr true uname uniq wc""".split()
LOADER = re.compile(r"(?:=> )?(/\S+) \(0x")


def leave_out(why):
    print(f"left out: {why}")
    sys.exit(4)


def run(*command, seconds=None, log=None, **environment):
    begun = time.monotonic()
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=seconds, env={**os.environ, **environment})
    return done.returncode, done.stdout, time.monotonic() - begun


def copy(file, root):
    """A program with its libraries, at the same places; links are followed."""
    todo = [pathlib.Path(file)]
    loaded = subprocess.run(["ldd", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    todo += [pathlib.Path(path) for path in LOADER.findall(loaded)]
    for path in todo:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(path, target)


def make_root(root):
    """The least that a machine has: no libstdc++, no compiler, no libraries of NVIDIA's."""
    for name in ("dev", "etc", "proc", "tmp", "usr/bin", "usr/lib", "work"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):  # as Debian and Ubuntu have them
        target = pathlib.Path("/" + name)
        if target.is_symlink():
            (root / "usr" / name).mkdir(exist_ok=True)
            (root / name).symlink_to("usr/" + name)
        else:
            (root / name).mkdir()
    for name in TOOLS:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found:
            copy(found, root)
    python = pathlib.Path(sys.executable).resolve()
    copy(python, root)
    copy(importlib.util.find_spec("_lzma").origin, root)  # unpacks the programs
    (root / "usr/bin/python3").unlink(missing_ok=True)
    (root / "usr/bin/python3").symlink_to(python)
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    shutil.copytree(library, root / library.relative_to("/"), symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(
        "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "__pycache__", "config-*"))


def enter(root, *command, seconds):
    """Runs in the root, without a network except the loopback, with a private /dev and /proc."""
    mounts = ("mount -t proc proc $0/proc && mount -t tmpfs dev $0/dev && for d in null zero urandom; do touch $0/dev/$d && "
              "mount --bind /dev/$d $0/dev/$d || exit 9; done; ip link set lo up && ln -s /proc/self/fd $0/dev/fd; "
              'exec chroot "$0" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp "$@"')
    return run("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", mounts, root, *command, seconds=seconds)


def must(what, holds, reported=""):
    if not holds:
        sys.exit(f"{what}\n{reported[-6000:]}")


def hows(entries, *kinds):
    return collections.Counter(e["how"] for e in entries if e["kind"] in kinds)


def main():
    if not (BUILD / "cuda_tests.txt").exists():
        leave_out("NVIDIA's headers are not here")
    if run("unshare", "--mount", "--net", "--pid", "--fork", "chroot", "/", "true")[0] != 0:
        leave_out("this process may not change its root")
    code, reported, seconds = run(ROOT / "dev", "gpu-pack", "--host", LOCKSTEP_NO_SETUP="1")
    must("./dev gpu-pack --host fails", code == 0, reported)
    print(f"{seconds:.0f} s: {reported.splitlines()[-1]}", flush=True)

    with tempfile.TemporaryDirectory(dir=os.environ.get("LOCKSTEP_BIG_TMP")) as folder:
        root, warm = pathlib.Path(folder, "root"), pathlib.Path(folder, "warm")
        make_root(root)
        shutil.copytree(ROOT / "build/gpu", root / "work/gpu")
        # Outside there is a compiler; what it makes is kept in the pack.
        warm_phases = "" if os.environ.get("LOCKSTEP_GPU_CHECK_WARM") else PHASES
        for phase in warm_phases:
            code, reported, seconds = run("bash", root / "work/gpu/gpu_check.sh", phase, warm, LOCKSTEP_GPU_SECONDS="5000",
                                      LOCKSTEP_GPU_CASE_SECONDS="900", LOCKSTEP_KERNEL_CACHE=str(root / "work/gpu/cache"))
            print(f"outside, phase {phase}: exit code {code} after {seconds:.0f} s", flush=True)
        shutil.rmtree(root / "work/gpu/cache", ignore_errors=True)
        shutil.copytree(root / "work/gpu/host/store", BUILD / "host_gpu/store", dirs_exist_ok=True)
        must("there is a compiler in the root", not shutil.which("g++", path=f"{root}/usr/bin:{root}/bin"))

        for phase in PHASES:
            code, reported, seconds = enter(root, "bash", "/work/gpu/gpu_check.sh", phase, "/work/out", seconds=600)
            print(f"in the root, phase {phase}: exit code {code} after {seconds:.0f} s", flush=True)
            made = json.loads((root / f"work/out/{phase}.json").read_text("utf-8"))
            entries = made["entries"]
            print("  ", dict(hows(entries, "case", "smoke", "probe", "steps", "peers")), flush=True)
            must("it is not marked as the host's", made["small"] is True)
            must(f"phase {phase} has no table", (root / f"work/out/{phase}.md").exists(), reported)
            bad = [e for e in entries if e["how"] not in ("ok", "skipped", "no time") and e["kind"] != "version"]
            must(f"phase {phase} fails", not bad and code in (0, 1),
                 "\n".join(f"{e.get('program')}: {e['name']}: {e['how']}: {e['reason']}\n{e['text'][-800:]}" for e in bad))
            if phase == "a":
                must("the pack's libraries are not used", "libstdc++.so.6: using the version in the pack" in reported, reported)
                must("the smoke cases", hows(entries, "smoke") == {"ok": 3}, reported)
                cases = hows(entries, "case")
                must(f"too few cases ran: {cases}", cases["ok"] > 0.8 * cases.total(), reported)
                probe = [f for e in entries if e["kind"] == "probe" for f in e["figures"]]
                must("the probe", len({f.get("group") for f in probe}) == 5 and any(f["value"] is None for f in probe))
            elif phase == "b":
                must("steps of the programs", hows(entries, "steps") == {"ok": 8}, reported)
                must("profiles", hows(entries, "profile") == {"ok": 1}, reported)
            elif phase == "c":
                figures = {f["name"]: f for e in entries if e["kind"] == "peers" for f in e["figures"]}
                must("our steps and the peers'", figures["cnn-float32, ours: a step"]["value"] > 0, reported)
                must("a peer that is not installed", figures["cnn-float32, pytorch-eager: a step"].get("reason"), reported)
            else:
                must("phase d", all(e["kind"] == "sanitizer" for e in entries) and "compute-sanitizer was not found" in reported, reported)
        out = root / "work/out"
        large = [f.name for f in out.iterdir() if f.stat().st_size > 16 << 20]
        must(f"files that cannot come back: {large}", not large)
        code, reported, _ = run(sys.executable, ROOT / "tools/gpu/gpu_table.py", *sorted(out.glob("*.json")))
        must("the table", code == 0 and "### Tests" in reported and "### Steps of the programs" in reported, reported)
        keep = os.environ.get("LOCKSTEP_GPU_CHECK_OUT")
        if keep:
            shutil.copytree(out, keep, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
