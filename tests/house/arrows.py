#!/usr/bin/env python3
"""Checks which header includes which: arrows go one way, folders on one level stay apart, and a
library's headers appear only where the house has a room for it."""
import pathlib
import re
import sys

LEVELS = ["core", "concepts files", "layers losses metrics optimizers data cluster", "devices",
          "model collectives", "strategies", "training"]
LEVEL = {folder: level for level, row in enumerate(LEVELS) for folder in row.split()}
UMBRELLAS = {"lockstep.hpp", "cpu.hpp", "reference.hpp", "cuda.hpp", "cluster.hpp"}
ROOMS = {  # a library's headers: the folders (or file names' beginnings) that may include them
    r"asio": ("cluster/",),
    r"gloo/": ("collectives/gloo",),
    r"(oneapi/)?dnnl": ("devices/cpu/",),
    r"omp\.h": ("devices/cpu/", "core/openmp_places"),
    r"nccl": ("devices/cuda/", "collectives/nccl"),
    r"cuda|cudnn|cublas|nvrtc": ("devices/cuda/",),
}


def complaints(header: str, text: str) -> list[str]:
    """`header` is the path below include/lockstep."""
    found = []
    folder = header.split("/")[0]
    if "/" not in header:
        return [] if header in UMBRELLAS else ["is no umbrella header; put it into a folder"]
    if folder == "impl":  # the definitions of a component in one
        return []
    if folder not in LEVEL:
        return [f"lies in the unknown folder {folder}/"]
    for quote, path in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.MULTILINE):
        target = path.removeprefix("lockstep/").split("/")
        if not path.startswith("lockstep/"):
            if quote == '"':
                found.append(f'includes "{path}": libraries with <>, our own from "lockstep/" on')
            found += [f"includes <{path}>, which belongs into {' or '.join(rooms)}"
                      for library, rooms in ROOMS.items()
                      if re.match(library, path) and not header.startswith(rooms)]
        elif len(target) == 1 or target[0] not in LEVEL:
            found.append(f"includes {path}, which is in no folder of the house")
        elif target[0] != folder and LEVEL[target[0]] >= LEVEL[folder]:
            found.append(f"includes {path}: the arrow from {folder}/ to {target[0]}/ is not allowed")
        # devices/host/ is what all devices over host memory share.
        elif target[0] == folder == "devices" and len(target) > 2 and target[1] != "host" and \
                header.split("/")[1] != target[1]:
            found.append(f"includes {path}: one device does not know another")
    return found


def main(root: pathlib.Path) -> None:
    found = [f"{path.relative_to(root)} {what}" for path in sorted([*root.rglob("*.hpp"), *root.rglob("*.ipp")])
             for what in complaints(path.relative_to(root).as_posix(), path.read_text("utf-8"))]
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
