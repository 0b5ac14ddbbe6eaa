#!/usr/bin/env python3
"""The folder that `./dev static NAME` makes runs in a root folder that has nothing else: no C library, no shell, no /proc, no /dev.
Programs are in $LOCKSTEP_BIN. Exit code 4, skipped: this user may not change the root folder, or the programs are instrumented.
Usage: static_program.py"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACK = ROOT / "tools" / "static_pack.sh"
PROGRAM = pathlib.Path(os.environ["LOCKSTEP_BIN"]) / "mnist_multi_worker"


def without_job():
    foreign = ("SLURM", "LOCKSTEP", "OMPI", "PMI", "TF_CONFIG", "LD_")
    return {key: value for key, value in os.environ.items() if not key.startswith(foreign)}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Static(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        # A repository whose release preset has built the program; the stand-in for CMake has nothing to do.
        root = pathlib.Path(cls.temporary.name) / "root"
        (root / "build" / "release" / "bin").mkdir(parents=True)
        cls.names = (PROGRAM.name, "lockstep-run", "lockstep-doctor")
        for name in cls.names:
            (root / "build" / "release" / "bin" / name).symlink_to(PROGRAM.with_name(name))
        for name in ("dev", "tools", "programs", "examples"):
            (root / name).symlink_to(ROOT / name)
        (root / "bin").mkdir()
        (root / "bin" / "cmake").write_text("#!/bin/sh\n")
        (root / "bin" / "cmake").chmod(0o755)
        for name in cls.names:
            done = subprocess.run([root / "dev", "static", name], capture_output=True, text=True, timeout=300, env={
                **without_job(), "LOCKSTEP_NO_SETUP": "1", "PATH": f"{root}/bin:{os.environ['PATH']}"})
            assert done.returncode == 0, done.stderr
            assert f"copy the folder build/static/{name}, " in done.stderr, done.stderr
        cls.folder = root / "build" / "static" / PROGRAM.name

    def start(self, *arguments, **variables):
        """Starts the program in the folder as root folder."""
        return subprocess.Popen(["/mnist_multi_worker", *arguments], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, preexec_fn=lambda: os.chroot(self.folder) or os.chdir("/"))

    def test_two_workers_train_in_an_empty_root_folder(self):
        (self.folder / "etc").mkdir()
        (self.folder / "etc" / "hosts").write_text("127.0.0.1 worker-0.job worker-1.job\n")
        # As a volume of Kubernetes has it.
        (self.folder / "secret" / "..1").mkdir(parents=True)
        (self.folder / "secret" / "..1" / "lockstep").write_bytes(os.urandom(32))
        (self.folder / "secret" / "..1" / "lockstep").chmod(0o400)
        (self.folder / "secret" / "..data").symlink_to("..1")
        (self.folder / "secret" / "lockstep").symlink_to("..data/lockstep")
        self.assertEqual({p.name for p in self.folder.iterdir()}, {"mnist_multi_worker", "lib", "licenses", "etc", "secret"})
        workers = [f"worker-{i}.job:{port}" for i, port in enumerate(free_ports(2))]
        options = ["--epochs", "1", "--steps-per-epoch", "2", "--batch", "64", "--threads", "1", "--report", "report.json"]
        jobs = [self.start(*options, TF_CONFIG=json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}}),
                           LOCKSTEP_SECRET_FILE="/secret/lockstep", LOCKSTEP_RENDEZVOUS_TIMEOUT="60") for i in (1, 0)]
        for job in jobs:
            output, errors = job.communicate(timeout=240)
            self.assertEqual(job.returncode, 0, output + errors)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report["workers"], 2)

    def test_what_is_missing_is_named(self):
        hidden = self.folder / "hidden"
        (self.folder / "lib").rename(hidden)
        try:
            _, errors = (job := self.start("--version")).communicate(timeout=60)
        finally:
            hidden.rename(self.folder / "lib")
        self.assertEqual(job.returncode, 127)
        self.assertIn("/lib/ld-linux", errors)
        self.assertIn("copy the whole folder", errors)

    def test_it_starts_from_anywhere_with_its_own_libraries(self):
        link = self.folder.parent / "link"
        link.symlink_to(self.folder / "mnist_multi_worker")
        moved = self.folder.parent / "moved"
        shutil.copytree(self.folder / "lib", moved / "lib")
        shutil.copy(self.folder / "mnist_multi_worker", moved)
        version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
        for command, path in ((link, None), ("mnist_multi_worker", moved), (moved / "mnist_multi_worker", None)):
            done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, cwd="/",
                                  env={**without_job(), **({"PATH": str(path)} if path else {})})
            self.assertEqual((done.returncode, done.stdout), (0, version), done.stderr)
        # The loader lists what it loads instead of starting the program.
        listed = subprocess.run([moved / "mnist_multi_worker"], capture_output=True, text=True, timeout=60,
                                env={**without_job(), "LD_TRACE_LOADED_OBJECTS": "1", "LD_LIBRARY_PATH": "/nowhere"}).stdout
        found = [line.split()[2] for line in listed.splitlines() if "=> /" in line]
        self.assertGreater(len(found), 8, listed)
        self.assertEqual([path for path in found if not path.startswith(f"{moved}/lib/")], [])

    def test_a_launcher_in_a_folder_finds_itself_and_the_doctor_beside_it(self):
        """The kernel names the dynamic linker as its program."""
        folder = self.folder.parent / "together"  # as the image has them
        for name in self.names:
            shutil.copytree(self.folder.parent / name, folder, dirs_exist_ok=True)
        shell = folder / "shell"
        shell.write_text('#!/bin/sh\nshift\necho "$*" >"$0.call"\nenv -i PATH="$PATH" sh -c "$*"\n')
        shell.chmod(0o755)
        for options in (["-n", "1"], ["-H", "a.invalid"]):
            done = subprocess.run([folder / "lockstep-run", *options, "--check", "true"], capture_output=True, text=True, timeout=120,
                                  env={**without_job(), "LOCKSTEP_RSH": str(shell)})
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, ["verdict: ready to train"]), done.stderr)
        self.assertTrue((folder / "shell.call").read_text().endswith(f" '{folder}/lockstep-run'\n"))

    def test_only_programs_are_packed(self):
        done = subprocess.run([PACK, PACK, self.folder.parent / "none"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not a dynamically linked program", done.stderr)


def may_change_root():
    try:
        return subprocess.run(["/bin/true"], preexec_fn=lambda: os.chroot("/")).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


if __name__ == "__main__":
    if not may_change_root():
        print("skipped: only root may change the root folder")
        sys.exit(4)
    if any(name in subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout for name in ("libasan", "libtsan", "clang_rt")):
        print("skipped: sanitizers need /proc")
        sys.exit(4)
    unittest.main(verbosity=1)
