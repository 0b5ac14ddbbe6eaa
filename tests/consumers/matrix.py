#!/usr/bin/env python3
"""Compiles and runs users' programs with the flags and the compilers of users' builds.

With --compiler: a few programs with this compiler. Without: all of them, with each compiler of the list that is
installed; the others are named as skipped. Nothing may be written by a compiler, not even a warning."""
import argparse
import concurrent.futures
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

COMPILERS = ("g++", "g++-12", "g++-14", "clang++", "clang++-14", "clang++-19")
PROJECT = pathlib.Path(__file__).with_name("project")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wold-style-cast",
          "-Wdouble-promotion", "-Werror")
CORE = ("-lfmt", "-lcrypto", "-lz", "-lpthread")
CPU = ("-ldnnl", "-l:libgomp.so.1", *CORE)
# Not native: clang 19 warns of a feature that it has found itself.
WIDE = "-march=x86-64-v3" if platform.machine() == "x86_64" else "-mcpu=native"
HIDDEN = ("-fvisibility=hidden", "-fvisibility-inlines-hidden")

# A program, its expected output, and its builds: a name and flags.
PREDICTING = ("predicting.cpp", "", {"release": ("-O3", "-Wall", "-Wextra", "-Werror")})
TRAINING = ("training.cpp", "trains: yes", {"debug": ("-D_GLIBCXX_DEBUG", *STRICT)})
PROCESS_WIDE = ("process_wide.cpp", "log: one, signals: one, errors: one", {"hidden": HIDDEN})
SMALL = (PREDICTING, TRAINING, PROCESS_WIDE)
CLUSTER = ("cluster.cpp", None, {"debug": ("-D_GLIBCXX_DEBUG", *STRICT), "release": ("-O3", "-Wall", "-Werror")})
TENSORBOARD = ("tensorboard.cpp", "writes events: yes", {"debug": ("-D_GLIBCXX_DEBUG", *STRICT), "release": ("-O3", *STRICT)})
ONNX = ("onnx.cpp", "writes ONNX: yes", {"debug": ("-D_GLIBCXX_DEBUG", *STRICT), "release": ("-O3", *STRICT)})
LARGE = ((*PREDICTING[:2], {
    **PREDICTING[2],
    "wide vectors": ("-O3", WIDE, *STRICT),
    "link-time optimisation": ("-O2", "-flto", "-Wall", "-Werror"),
}), (*TRAINING[:2], {
    **TRAINING[2],
    "release": ("-O3", *STRICT),
    "wide vectors": ("-O2", WIDE, "-Wall", "-Werror"),
    "assertions": ("-O1", "-D_GLIBCXX_ASSERTIONS", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-Wall", "-Werror"),
    "without type information": ("-O1", "-fno-rtti", "-Wall", "-Werror"),
    "C++23": ("-std=c++2b", *STRICT),
}), PROCESS_WIDE, CLUSTER, TENSORBOARD, ONNX)


def call(command: list, **more) -> str:
    result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            **more)
    return f"exit code {result.returncode}: {command}\n{result.stdout}" if result.returncode else result.stdout


def check(include: str, compiler: str, source: str, expected: str | None, flags: tuple) -> str:
    """The error, or nothing. A program without an expected output is only compiled."""
    command = [compiler, "-std=c++20", f"-I{include}", *flags]
    if expected is None:
        return call([*command, "-c", PROJECT / source, "-o", "/dev/null"])
    with tempfile.TemporaryDirectory() as folder:
        program, libraries = pathlib.Path(folder, "program"), CPU
        if source == PROCESS_WIDE[0]:
            speaker = pathlib.Path(folder, "libspeaker.so")
            libraries = (speaker, *CORE)
            reported = call([*command, "-shared", "-fPIC", PROJECT / "speaker.cpp", "-o", speaker, *CORE])
            if reported:
                return reported
        reported = call([*command, PROJECT / source, "-o", program, *libraries])
        if reported:
            return reported
        output = call([program], cwd=folder, timeout=120).strip()
        return "" if output == expected else f"'{expected}' expected, but the output is:\n{output}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", required=True)
    parser.add_argument("--compiler")
    options = parser.parse_args()
    compilers, versions = [], {}
    for name in [options.compiler] if options.compiler else COMPILERS:
        if not shutil.which(name):
            print(f"skipped: there is no {name}")
            continue
        version = call([name, "--version"]).splitlines()[0].split(maxsplit=1)[-1]
        family = "clang" if "clang" in version else "g++"
        if versions.setdefault((family, version.split()[-1]), name) == name:
            compilers.append(name)
    jobs = [(compiler, source, expected, build, flags) for compiler in compilers
            for source, expected, builds in (SMALL if options.compiler else LARGE) for build, flags in builds.items()]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda job: check(options.include, *job[:3], job[4]), jobs))
    for (compiler, source, _, build, _), wrong in zip(jobs, found):
        print(f"{compiler}, {source}, {build}: {'failed' if wrong else 'passed'}")
    sys.exit("\n".join(f"{job[0]}, {job[1]}, {job[3]}:\n{wrong}" for job, wrong in zip(jobs, found) if wrong) or None)


if __name__ == "__main__":
    main()
