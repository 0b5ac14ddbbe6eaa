#!/usr/bin/env python3
"""Checks that a program with both forms of the library does not link, with each linker that is installed, that the
error shows the name with the remedy, and that the sources of the definitions do not compile without the macro.
Usage: forms.py INCLUDE_ROOT COMPILER [FLAG...]"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

MACRO = "-DLOCKSTEP_SEPARATE_COMPILATION"
NAME = "define_LOCKSTEP_SEPARATE_COMPILATION_in_all_units_of_a_program_or_in_none"


def run(*command) -> tuple[bool, str]:
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode == 0, result.stdout


def links(folder: pathlib.Path, command: list[str]) -> list[str]:
    for name, more in {"main": "int main() {}\n", "other": ""}.items():
        source = folder / f"{name}.cpp"
        source.write_text('#include "lockstep/core/config.hpp"\n' + more)
        for form, flags in {"header_only": [], "compiled": [MACRO]}.items():
            done, output = run(*command, *flags, "-c", source, "-o", folder / f"{name}.{form}.o")
            if not done:
                return [output]
    found = []
    linkers = [linker for linker in ("bfd", "gold", "lld") if shutil.which(f"ld.{linker}")]
    for linker in linkers:
        for main in ("header_only", "compiled"):
            for other in ("header_only", "compiled"):
                done, output = run(*command, f"-fuse-ld={linker}", folder / f"main.{main}.o", folder / f"other.{other}.o",
                                 "-o", folder / "program")
                if done != (main == other) or (not done and NAME not in output):
                    found.append(f"{linker}, {main} with {other}: {output or 'it links'}")
    print("linkers:", *linkers)
    return found


def main(root: pathlib.Path, command: list[str]) -> None:
    command = [*command, "-std=c++20", f"-I{root}"]
    with tempfile.TemporaryDirectory() as folder:
        found = links(pathlib.Path(folder), command)
    sources = sorted(path.relative_to(root).as_posix() for path in root.glob("lockstep/impl/src*.hpp"))
    for header in sources:
        done, output = run(*command, "-E", "-x", "c++", root / header, "-o", "/dev/null")
        sentence = f"{header}: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
        if done or f'error "{sentence}"' not in " ".join(output.split()).replace("error: ", "error "):
            found.append(f"{header}: '{sentence}' expected:\n{output}")
    if len(sources) != 8:
        found.append(f"one source for each component expected, not {sources}")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
