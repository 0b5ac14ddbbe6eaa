#!/usr/bin/env python3
"""Installs lockstep into a temporary prefix and uses it as users do, header-only and compiled: as a CMake package with
components, as a subdirectory, and through pkg-config."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import symbols

parser = argparse.ArgumentParser(description=__doc__)
for name in ("cmake", "compiler", "source", "build"):
    parser.add_argument(f"--{name}", required=True)
options = parser.parse_args()
project = pathlib.Path(__file__).with_name("project")


def run(*command, fails: bool = False, **more) -> str:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            **more)
    if (result.returncode != 0) != fails:
        print(result.stdout)
        sys.exit(f"exit code {result.returncode}: {' '.join(map(str, command))}")
    return result.stdout


def expect(text: str, output: str) -> None:
    if text not in output:
        sys.exit(f"'{text}' expected in:\n{output}")


with tempfile.TemporaryDirectory() as folder:
    prefix = pathlib.Path(folder, "prefix")
    run(options.cmake, "--install", options.build, "--prefix", prefix)

    def configure(name: str, *arguments: str, fails: bool = False) -> tuple[pathlib.Path, str]:
        tree = pathlib.Path(folder, name)
        output = run(options.cmake, "-S", project, "-B", tree, "-G", "Ninja", *arguments,
                     f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={options.compiler}",
                     f"-DQUICKSTART={options.source}/examples/01_quickstart.cpp", fails=fails)
        return tree, output

    compiled = "-DFORM=compiled"
    simulated = "survivors name the lost worker: yes, same seed, same run: yes, another seed, another run: yes"
    for name, arguments in {"core": ["-DCOMPONENTS=core"], "cpu": ["-DCOMPONENTS=core;cpu"],
                            "cpu-compiled": ["-DCOMPONENTS=core;cpu", compiled],
                            "testing-compiled": ["-DCOMPONENTS=core;testing", compiled],
                            "subdirectory": ["-DCOMPONENTS=cpu", f"-DLOCKSTEP_SOURCE={options.source}"],
                            "subdirectory-compiled": ["-DCOMPONENTS=core", compiled, "-DLOCKSTEP_COMPONENTS=core",
                                                       f"-DLOCKSTEP_SOURCE={options.source}"]}.items():
        tree, _ = configure(name, *arguments)
        run(options.cmake, "--build", tree)
        expect("(28, 28, 1)", run(tree / "core_program"))
        if name.startswith("testing"):
            expect(simulated, run(tree / "simulated_job"))
        if name.startswith("cpu"):
            expect("loss falls: yes, slopes are equal: yes", run(tree / "two_units"))
            reported = symbols.complaint(next(tree.glob("libdigits*")))
            if reported:
                sys.exit(reported)

    # CMake folds its messages, so that the sentence is compared word by word.
    _, output = configure("unknown", "-DCOMPONENTS=core;gpu", fails=True)
    expect("lockstep has no component 'gpu'; its components are core, cpu",
           " ".join(output.split()))

    if shutil.which("pkg-config"):
        environment = {"PKG_CONFIG_PATH": str(prefix / "share/pkgconfig"), "PATH": "/usr/bin:/bin"}
        program = pathlib.Path(folder, "program")

        def flags_of(module: str) -> list[str]:
            return run("pkg-config", "--cflags", "--libs", module, env=environment).split()

        def build(module: str, source: str = "core_program", text: str = "(28, 28, 1)") -> None:
            run(options.compiler, project / f"{source}.cpp", "-o", program, *flags_of(module))  # with -std=c++20
            expect(text, run(program))

        build("lockstep-cpu")
        expect("link lockstep::compiled_testing instead of lockstep::testing",
               run(options.compiler, "-std=c++20", "-E", project / "simulated_job.cpp", "-o", program,
                   *flags_of("lockstep-testing"), fails=True))

        # The static library built by the package, in another prefix.
        prefix, tree = pathlib.Path(folder, "compiled"), pathlib.Path(folder, "package")
        run(options.cmake, "-S", options.source, "-B", tree, "-G", "Ninja", "-DLOCKSTEP_COMPONENTS=core;testing",
            "-DLOCKSTEP_COMPILED=ON", f"-DCMAKE_CXX_COMPILER={options.compiler}", f"-DCMAKE_INSTALL_PREFIX={prefix}",
            "-DCMAKE_INSTALL_LIBDIR=lib", *(f"-DLOCKSTEP_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "BENCHMARKS")))
        run(options.cmake, "--build", tree)
        run(options.cmake, "--install", tree)
        environment["PKG_CONFIG_PATH"] = str(prefix / "share/pkgconfig")
        build("lockstep-compiled")
        build("lockstep-compiled-testing", "simulated_job", simulated)
        tree, _ = configure("prebuilt", "-DCOMPONENTS=core;testing", compiled)
        run(options.cmake, "--build", tree)
        expect("(28, 28, 1)", run(tree / "core_program"))
        expect(simulated, run(tree / "simulated_job"))
        if next(tree.glob("liblockstep*"), None):
            sys.exit("the package has the static library, and the program compiled it again")
