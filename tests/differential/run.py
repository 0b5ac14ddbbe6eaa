#!/usr/bin/env python3
"""Trains random graphs with lockstep and with Keras in float64 and compares them. README.md describes it.

Usage: run.py FOLDER FIRST LAST [--build build/release] [--per-unit 5] [--flags "-O0"]   the seeds FIRST to LAST - 1"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools/exchange")]
import cpp  # noqa: E402
import draw  # noqa: E402
import tensors  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description="Compares random graphs with Keras in float64.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build/release")
    parser.add_argument("--per-unit", type=int, default=5)
    parser.add_argument("--flags", default="-O0")
    parser.add_argument("--cpu", action="store_true", help="also in float32 on ls::Cpu; needs oneDNN")
    return parser.parse_args()


def with_keras(seeds, folder):
    """The networks of these seeds that Keras trains, with the reason for others."""
    import keras_side
    networks = []
    for seed in seeds:
        network = json.loads(json.dumps(draw.Drawer(seed).network()))
        try:
            data, results = keras_side.train(network)
            if not all((keras_side.np.abs(value) < 1e9).all() for value in results.values()):
                raise ValueError("a result is not finite, or training diverges")
        except Exception as error:
            print(f"{seed}: not in Keras: {' '.join(str(error).split()):.200}", flush=True)
            continue
        tensors.save(folder / f"{seed}.data", data)
        tensors.save(folder / f"{seed}.keras", results)
        networks.append(network)
    return networks


def compiled(networks, folder, given):
    """The program of these networks; None if it does not compile."""
    source = folder / f"unit_{networks[0]['seed']}.cpp"
    program = source.with_suffix("")
    source.write_text(cpp.unit(networks))
    libraries = [str(given.build / f"liblockstep_compiled{part}.a") for part in ("_onnx", "_cluster", "")]
    cpu = [str(given.build / "liblockstep_compiled_cpu.a"), "-ldnnl", "-fopenmp"] if given.cpu else []
    command = ["g++", "-std=c++20", *given.flags.split(), *(["-DDIFFERENTIAL_CPU"] if cpu else []), "-DFMT_SHARED", "-DLOCKSTEP_SEPARATE_COMPILATION",
               "-DASIO_STANDALONE", f"-I{HERE.parents[1] / 'include'}", f"-I{HERE}", str(source), "-o", str(program), *cpu, *libraries,
               "-lfmt", "-lz", "-lssl", "-lcrypto", "-lpthread"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line]
        print(f"{source.name} does not compile: {(errors or result.stderr.splitlines())[0]}", flush=True)
        return None
    return program


def runs(program, folder, given):
    """Trains in one process, then in a job of two."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for command in ([program, folder, "alone"], [given.build / "bin/lockstep-run", "-n", "2", program, folder, "job"]):
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, timeout=600)
        for line in (result.stdout + result.stderr).splitlines():
            if "FAILED" in line or result.returncode:
                print(line, flush=True)


def main():
    given = arguments()
    given.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    from compare import compare
    total, failed = collections.defaultdict(list), []
    for first in range(given.first, given.last, given.per_unit):
        networks = with_keras(range(first, min(first + given.per_unit, given.last)), given.folder)
        program = networks and compiled(networks, given.folder, given)
        if not program:
            failed += [network["seed"] for network in networks]
            continue
        runs(program, given.folder, given)
        for network in networks:
            seed = network["seed"]
            try:
                rows = compare(network, given.folder / str(seed))
            except OSError as error:
                rows = [("no results", False, 0.0, str(error))]
            for what, holds, found, name in rows:
                total[what].append((found, seed))
                if not holds:
                    print(f"{seed}: {what}: {found:.1e} {name:.200}", flush=True)
            if not all(row[1] for row in rows):
                failed.append(seed)
        program.unlink()
    for what, found in total.items():
        print(f"{what}: {len(found)} networks, largest error {max(found)[0]:.1e} (seed {max(found)[1]})")
    print(f"failed: {failed or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
