#!/usr/bin/env python3
"""Checks that tests mirror the tree: tests/unit/<path>/<name>.cpp tests include/lockstep/<path>/<name>.hpp, or is
listed in THEMES as a test of several headers. A suite shared by devices, tests/unit/devices/<name>.hpp, must be
included by each test of that name except the reference's, which the suites use for comparison. No name of a test case
has a character at which CMake splits lists, since ctest would lose the cases after it.
Usage: mirror.py REPOSITORY"""
import pathlib
import re
import sys

THEMES = {
    "cluster/description": "tf_config_bad tf_config_bad_hosts",
    "cluster/elastic": "elastic_processes",
    "cluster/network": "tls_servers",
    "cluster/rendezvous": "addresses failures network processes starts strangers",
    "collectives": "allocations",
    "collectives/cuda": "nccl_id real_nccl",
    "collectives/mpi": "mpi_plane",
    "data": "allocations",
    "data/operations": "take_skip",
    "devices/cpu": "allocations along_steps augmentation bfloat16_kernels bfloat16_training concatenate frozen long_sums "
                   "losses models nan noise pooling3d positions prelu recompute resized_image separable_conv2d shapes",
    "devices/cpu/fused": "activation_option rules",
    "devices/cuda": "bfloat16_layers bfloat16_products checked executions float16_layers gpu_figures gpu_time graphs "
                    "host_gpu launches loss_scaling models nan packed_weights positions profile resident_rows sass "
                    "training",
    "devices/cuda/cudnn": "device_properties",
    "devices/cuda/ops/fused": "relu",
    "devices/cuda/ops": "losses metrics optimizers",
    "devices/reference": "batch_normalization kernels positions",
    "files": "power_loss",
    "inference/cpu": "allocations predictor text_generator",
    "layers": "activations gradient_check resnet56",
    "losses": "gradient_check",
    "optimizers": "rules",
    "tensorboard": "arguments",
    "testing": "elastic example files ignored_labels jobs sockets threads",
    "training": "activations augmentation batch_normalization callback in_blocks mirrored model_fit model_metrics model_state "
                "model_weights positions workers",
    "training/callbacks": "in_fit",
    "training/checks": "one_definition_other",
    "training/checkpoint": "resume",
    "training/callbacks/fast_math": "finite",
    "training/elastic": "random_jobs served_jobs",
    "training/cpu": "in_blocks input_gradients mirrored profile replica resume step_allocations",
}


def complaints(headers: set[str], tests: list[str], themes: dict[str, str] = THEMES) -> list[str]:
    """`headers` and `tests` are paths without suffix, below include/lockstep and tests/unit."""
    listed = {f"{folder}/{name}" for folder, names in themes.items() for name in names.split()}
    found = []
    for test in tests:
        if test not in headers and test not in listed:
            found.append(f"tests/unit/{test}.cpp: there is no include/lockstep/{test}.hpp; name the test after its "
                         f"header, or add it to the themes of {pathlib.Path(__file__).name}")
    found += [f"THEMES lists {test}, which does not exist" for test in sorted(listed - set(tests))]
    found += [f"THEMES lists {test}, which is the test of a header" for test in sorted(listed & headers)]
    return found


def left_out(suites: list[str], texts: dict[str, str]) -> list[str]:
    """`suites` are names; `texts` are of the tests of devices, by path below tests/unit."""
    return [f"tests/unit/{test}.cpp does not include the suite devices/{suite}.hpp" for suite in suites
            for test, text in sorted(texts.items())
            if pathlib.PurePath(test).name == suite and f'"unit/devices/{suite}.hpp"' not in text]


def split_names(texts: dict[str, str]) -> list[str]:
    """`texts` are of all test sources, by path."""
    return [f"{path}: the name of a test case must not have [ ] or ;: \"{name}\"" for path, text in sorted(texts.items())
            for name in re.findall(r'TEST_CASE(?:_METHOD)?\(\s*"([^"]*)"', text) if re.search(r"[\[\];]", name)]


def names(root: pathlib.Path, pattern: str) -> list[str]:
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob(pattern))


def self_test() -> list[str]:
    themes = {"core": "theme"}
    wrong = (({"core/a"}, ["core/b", "core/theme"]), ({"core/a"}, ["core/a"]), ({"core/theme"}, ["core/theme"]))
    found = [f"one complaint expected for {headers}, {tests}" for headers, tests in wrong
             if len(complaints(headers, tests, themes)) != 1]
    if complaints({"core/a", "core/c"}, ["core/a", "core/theme"], themes):
        found.append("a correct tree has a complaint")
    texts = {"devices/cpu/a": '#include "unit/devices/a.hpp"', "devices/cuda/ops/a": "", "devices/cpu/b": ""}
    if left_out(["a"], texts) != ["tests/unit/devices/cuda/ops/a.cpp does not include the suite devices/a.hpp"]:
        found.append("one complaint expected for a suite that one device omits")
    if len(split_names({"a.cpp": 'TEST_CASE(\n    "a; b") TEST_CASE("from [0, 1)") TEST_CASE("a, b", "[alone]")'})) != 2:
        found.append("split_names must find two names, those with ; and [")
    return found


def main(root: pathlib.Path) -> None:
    headers = set(names(root / "include/lockstep", "*.hpp"))
    units = root / "tests/unit"
    suites = [path.stem for path in sorted((units / "devices").glob("*.hpp"))]
    texts = {test: (units / f"{test}.cpp").read_text("utf-8") for test in names(units, "*.cpp")
             if test.startswith("devices/") and not test.startswith("devices/reference/")}
    sources = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in (root / "tests").rglob("*.?pp")}
    found = self_test() + split_names(sources) + complaints(headers, names(units, "*.cpp")) + left_out(suites, texts)
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
