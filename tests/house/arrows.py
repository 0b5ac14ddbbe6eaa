#!/usr/bin/env python3
"""Checks the includes of each header: arrows go one way, folders on one level do not include each other, a library's headers
are included only in the folders that may use it, rooms of a folder are in order, a folder has at most MOST subjects, a file
name has one meaning, and no header includes itself indirectly. In the header-only form a header ends with its definitions, so
x.hpp must not include y.hpp if y.ipp needs x.hpp: a program that includes x.hpp first would compile y.ipp without it."""
import collections
import pathlib
import re
import sys

LEVELS = ["core", "concepts files", "functions", "layers losses metrics optimizers data cluster", "devices",
          "model collectives", "strategies", "training", "inference onnx tensorboard testing"]
LEVEL = {folder: level for level, row in enumerate(LEVELS) for folder in row.split()}
UMBRELLAS = {"lockstep.hpp", "cpu.hpp", "reference.hpp", "cuda.hpp", "cluster.hpp", "tensorboard.hpp", "onnx.hpp",
             "mpi.hpp", "testing.hpp", "fmt.hpp", "checkpoints.hpp", "trace.hpp", "elastic.hpp", "parameter_server.hpp",
             "sharded.hpp", "local_sgd.hpp", "wire.hpp", "heads.hpp", "function.hpp",
             "predictor.hpp", "text_generator.hpp"}
ROOMS = {  # a library's headers: folders, or prefixes of file names, that may include them
    r"asio": ("cluster/",),
    r"(oneapi/)?dnnl": ("devices/cpu/",),
    r"protozero/": ("tensorboard/", "onnx/"),
    r"mpi\.h": ("collectives/mpi/mpi_calls",),
    r"omp\.h": ("devices/cpu/", "core/process/openmp_places"),
    r"nccl": ("devices/cuda/", "collectives/cuda/"),
    r"fmt/core\.h$": ("core/fmt_core",),
    r"fmt/(?!core\.h$)": ("core/fmt_core", "fmt.hpp"),  # take long to compile; fmt.hpp is opt-in
    r"cuda|cudnn|cublas|nvrtc": ("devices/cuda/",),
}

# The rooms of a folder: a room includes those before it; those in one text do not include each other. Headers of the folder
# itself may include all of them.
STAIRS = {
    "cluster": ["description", "network", "rendezvous", "elastic"],
    "collectives": ["algorithms", "exchange mpi shared_memory tcp", "cuda"],
    "strategies": ["job", "planes"],
    "layers": ["activations", "convolution merging normalization pooling preprocessing regularization reshaping"],
}
STAIR = {f"{folder}/{room}": level for folder, rows in STAIRS.items() for level, row in enumerate(rows) for room in row.split()}
MOST = 32  # subjects in one folder

# An op, its concept and its kernels share a name; files in ALIKE are named after different public names with one spelling.
OPS = {"concepts", "layers", "losses", "metrics", "optimizers", "devices"}
ALIKE = {"concatenate.hpp", "function.hpp", "heads.hpp", "mpi.hpp", "parameter_server.hpp", "predictor.hpp", "random_crop.hpp", "random_flip.hpp", "repeat.hpp", "sharded.hpp", "text_generator.hpp", "wire.hpp"}
COMPILER = "lockstep/core/compiler.hpp"  # reports an old compiler in one sentence

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)', re.MULTILINE)


def room_of(path: str) -> str:
    """The first two folders of a path below include/lockstep."""
    return "/".join(path.split("/")[:-1][:2])


def crowds(headers: list[str]) -> list[str]:
    """Folders with too many subjects. `headers`: paths."""
    counts = collections.Counter(header.rpartition("/")[0] for header in headers if header.endswith(".hpp"))
    return [f"{folder}/ has {count} subjects; the limit is {MOST}: divide it into rooms"
            for folder, count in sorted(counts.items()) if count > MOST]


def complaints(header: str, text: str) -> list[str]:
    """`header` is the path below include/lockstep."""
    found = []
    folder = header.split("/")[0]
    if "/" not in header:
        if header not in UMBRELLAS:
            return ["is not an umbrella header; move it into a folder"]
        first = [path for _, path in INCLUDE.findall(text)][:1]
        return [] if first == [COMPILER] else [f"does not include {COMPILER} first"]
    if folder == "impl":  # includes all definitions of a component
        return []
    if folder not in LEVEL:
        return [f"is in the unknown folder {folder}/"]
    for quote, path in INCLUDE.findall(text):
        if f"lockstep/{header}" == COMPILER and path.startswith("lockstep needs "):
            continue
        target = path.removeprefix("lockstep/").split("/")
        if not path.startswith("lockstep/"):
            if quote == '"':
                found.append(f'includes "{path}": write <> for libraries, and paths from "lockstep/" for our headers')
            found += [f"includes <{path}>, which belongs in {' or '.join(rooms)}"
                      for library, rooms in ROOMS.items()
                      if re.match(library, path) and not header.startswith(rooms)]
        elif len(target) == 1 or target[0] not in LEVEL:
            found.append(f"includes {path}, which is not in any known folder")
        elif target[0] != folder and LEVEL[target[0]] >= LEVEL[folder]:
            found.append(f"includes {path}: the arrow from {folder}/ to {target[0]}/ is not allowed")
        elif (room := room_of(header)) in STAIR and (other := room_of("/".join(target))) in STAIR and room != other and \
                room.startswith(folder) and other.startswith(f"{folder}/") and STAIR[other] >= STAIR[room]:
            found.append(f"includes {path}: the arrow from {room}/ to {other}/ is not allowed")
        # devices/host/ is shared by all devices over host memory.
        elif target[0] == folder == "devices" and len(target) > 2 and target[1] != "host" and \
                header.split("/")[1] != target[1]:
            found.append(f"includes {path}: devices must not depend on each other")
    return found


def cycles(files: dict[str, str]) -> list[str]:
    """Cycles of includes that begin in a header, not in its definitions. `files`: texts by path."""
    includes = {path: [target.removeprefix("lockstep/") for _, target in INCLUDE.findall(text)]
                for path, text in files.items()}
    found = []
    for header in filter(lambda path: path.endswith(".hpp"), includes):
        for target in includes[header]:
            seen, todo = set(), [target] if target.endswith(".hpp") else []
            while todo:
                path = todo.pop()
                if path not in seen:
                    seen.add(path)
                    todo += includes.get(path, [])
            if header in seen:
                found.append(f"{header} includes {target}, which leads back to it")
    return found


def namesakes(headers: list[str]) -> list[str]:
    """Names of headers with different meanings in different folders. `headers`: paths."""
    folders: dict[str, list[str]] = {}
    for folder, _, name in (header.rpartition("/") for header in headers if header.endswith(".hpp")):
        folders.setdefault(name, []).append(folder)
    return [f"{name} is in {' and in '.join(where)}: name each after its content" for name, where in folders.items()
            if len(where) > 1 and name not in ALIKE and not OPS.issuperset(folder.split("/")[0] for folder in where)]


def main(root: pathlib.Path) -> None:
    files = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(root.rglob("*.[hi]pp"))}
    found = [f"{path} {what}" for path, text in files.items() for what in complaints(path, text)]
    found += cycles(files) + namesakes(list(files)) + crowds(list(files))
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
