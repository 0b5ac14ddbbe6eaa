"""The pages of docs/ are true: each block of them is compiled, run or compared.

A comment on the line before the fence declares how the block is tested; a block without one is an error:
  <!-- snippet: FILE:SECTION --> C++ that docs/site/snippets.py copied from FILE, which must be a unit of the build; or
                                 a file of packaging/deployment/, which tests/packaging checks
  <!-- test: program NAME -->    C++, whole: compiled as examples/01_quickstart.cpp is, but with -O0; `./dev NAME` runs it
  <!-- test: lines of FILE -->   C++: these lines stand in FILE, a unit of examples/ or programs/, a header that one of
                                 programs/ includes, or a NAME.cpp of this page
  <!-- test: run -->             shell: run by bash, in a folder of the page with a small data/mnist; must end with 0
  <!-- test: output -->          text: all that the shell block before wrote to stdout
  <!-- test: errors -->          text: all that it wrote to stderr
  <!-- test: not run -->         needs more than this machine has; the page must state that the block is not run
Each program of a page must be run by the page. In texts durations are not compared, and decimal fractions may differ a
little: processors round differently.

`./dev NAME ARGS` builds NAME and runs it. Here a stand-in runs the NAME that $LOCKSTEP_BIN or the page has, to save
the time of a second build; it knows no other command.
"""

import concurrent.futures
import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

import contract

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
UNTESTED = {"architecture.md", "performance.md"}  # these and docs/lab/: blocks of figures, measured elsewhere
PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if p.name not in UNTESTED and p.parent.name != "lab")
SNIPPET = re.compile(r"<!-- snippet: ([^\s:]+)(?::[\w:]+)? -->")  # tests/docs/pages.py compares the code
INSTRUCTION = re.compile(r"<!-- test: (program|lines of|run|output|errors|not run)(?: (\S+))? -->")
LANGUAGES = {"program": ["cpp"], "lines of": ["cpp"], "run": ["sh", "bash"], "output": ["text"], "errors": ["text"],
             "not run": ["sh", "cmake", "dockerfile", "yaml", "text", "ini", "python", "cpp"], "snippet": ["cpp", "sh", "yaml", "dockerfile"]}
DURATION = re.compile(r"\b\d+(\.\d+)?(s|ms|us)\b(/step)?")
FRACTION = re.compile(r"\b\d+\.\d+\b")
STAND_IN = """#!/usr/bin/env bash
for folder in {folders}; do
  if [[ -x $folder/$1 ]]; then echo "$1" >>{log}; exec "$folder/$1" "${{@:2}}"; fi
done
echo "the stand-in for ./dev knows no program '$1'" >&2
exit 2
"""


@dataclasses.dataclass
class Block:
    line: int
    language: str
    what: str  # one of LANGUAGES, or empty
    name: str
    text: str


def blocks_of(page):
    """The fenced blocks of a page. Raises ValueError for a fence without an end."""
    blocks, open_block, before = [], None, ""
    for number, line in enumerate(page.splitlines(), 1):
        if open_block is None and line.startswith("```"):
            found, shown = INSTRUCTION.fullmatch(before), SNIPPET.fullmatch(before)
            what = ("snippet", shown[1]) if shown else found.groups("") if found else ("", "")
            open_block = Block(number, line[3:].strip(), *what, "")
        elif open_block is not None and line == "```":
            blocks.append(open_block)
            open_block = None
        elif open_block is not None:
            open_block.text += line + "\n"
        before = line
    if open_block is not None:
        raise ValueError(f"line {open_block.line}: the block has no end")
    return blocks


def same_text(shown, found):
    def skeleton(text):
        return FRACTION.sub("#", DURATION.sub("TIME", text)).strip()

    def fractions(text):
        return [float(n) for n in FRACTION.findall(DURATION.sub("TIME", text))]

    return skeleton(shown) == skeleton(found) and all(
        abs(a - b) <= 0.005 + 0.01 * abs(a) for a, b in zip(fractions(shown), fractions(found)))


@functools.cache
def units():
    """The files that the build compiles, below the repository's root."""
    entries = json.loads((BIN.parent / "compile_commands.json").read_text())
    files = {pathlib.Path(entry["file"]) for entry in entries}
    batched = {BIN.parent / source for file in files if file.parent.name == "batches"  # tests/support/batch.py
               for source in re.findall(r'^#line 1 "(.+)"$', file.read_text(), re.MULTILINE)}
    return {os.path.relpath(os.path.realpath(file), os.path.realpath(ROOT)) for file in files | batched}


def is_included(path):
    """Whether a unit of the same folder includes the header by its path within that folder."""
    folder, _, header = path.partition("/")
    return any(f'#include "{header}"\n' in (ROOT / unit).read_text() for unit in units() if unit.startswith(f"{folder}/"))


def is_checked(block):
    """Whether a snippet is known to be right: a unit of the build, a header of one in tests/, or a file of packaging/deployment/,
    which is never C++."""
    if block.language != "cpp":
        return block.name.startswith("packaging/deployment/")
    return block.name in units() or (block.name.startswith("tests/") and block.name.endswith(".hpp") and is_included(block.name))


def is_shown(path):
    """Whether pages may show lines of this file: a unit of examples/ or programs/, or a header that one of programs/ includes."""
    folder, _, header = path.partition("/")
    if folder == "programs" and header.endswith(".hpp"):
        return is_included(path)
    return folder in ("examples", "programs") and path in units()


def build_commands():
    """How the build compiles and links examples/01_quickstart.cpp, as two lists of arguments."""
    tree = BIN.parent
    lines = subprocess.run(["ninja", "-C", tree, "-t", "commands", "quickstart"], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    compiles = next(line for line in lines if line.endswith("/01_quickstart.cpp"))
    links = next(line for line in lines if " -o bin/quickstart " in line)
    return shlex.split(compiles), [a for a in shlex.split(links) if a not in (":", "&&")]


def compile_program(source, target):
    """The output of the compiler or linker if it fails, else nothing."""
    compiles, links = build_commands()
    unit = target.with_suffix(".o")
    for option, value in (("-o", unit), ("-MF", target.with_suffix(".d")), ("-c", source)):
        compiles[compiles.index(option) + 1] = str(value)
    links[links.index("-o") + 1] = str(target)
    links = [str(unit) if a.endswith("01_quickstart.cpp.o") else a for a in links]
    for command in ([*compiles, "-O0"], links):
        done = subprocess.run(command, cwd=BIN.parent, capture_output=True, text=True)
        if done.returncode:
            return done.stdout + done.stderr
    return ""


class Page:
    """Runs one page. `faults`: what is wrong with it, as texts that begin with the line."""

    def __init__(self, text, folder):
        self.faults = []
        self.folder, self.programs_folder, self.log = folder / "page", folder / "programs", folder / "log"
        self.folder.mkdir()
        self.programs_folder.mkdir()
        self.log.touch()
        data = self.folder / "data" / "mnist"
        data.mkdir(parents=True)
        for name, count in zip(contract.NAMES, (640, 640, 130, 130)):
            (data / name).write_bytes(contract.images(count) if "images" in name else contract.labels(count))
        dev = self.folder / "dev"
        folders = " ".join(shlex.quote(str(f)) for f in (self.programs_folder, BIN))
        dev.write_text(STAND_IN.format(folders=folders, log=shlex.quote(str(self.log))))
        dev.chmod(0o755)
        try:
            self.blocks = blocks_of(text)
        except ValueError as error:
            self.blocks = []
            self.faults.append(str(error))
        (self.folder / "build" / "release").mkdir(parents=True)
        (self.folder / "build" / "release" / "bin").symlink_to(BIN)

    def fault(self, block, text):
        self.faults.append(f"line {block.line}: {text}")

    def check(self):
        known = [b for b in self.blocks if b.what]
        for block in self.blocks:
            if not block.what:
                self.fault(block, "the block has no test: write <!-- test: ... --> on the line before it")
            elif block.language not in LANGUAGES[block.what]:
                self.fault(block, f"'{block.what}' is not for a block of '{block.language}'")
        self.programs = {b.name: b for b in known if b.what == "program"}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for block, reported in zip(self.programs.values(), pool.map(self.compile, self.programs.values())):
                if reported:
                    self.fault(block, f"{block.name}.cpp does not compile:\n{reported[:4000]}")
        done = None
        for block in known:
            if block.what == "lines of":
                self.check_lines(block)
            elif block.what == "snippet" and not is_checked(block):
                self.fault(block, f"{block.name} is not a unit of the build, so it is not known to compile")
            elif block.what == "run":
                done = self.run(block)
            elif block.what in ("output", "errors"):
                self.check_text(block, done)
        run = self.log.read_text().split()
        for name in self.programs.keys() - set(run):
            self.fault(self.programs[name], f"the page does not run its program {name}")
        return self.faults

    def compile(self, block):
        source = self.programs_folder / f"{block.name}.cpp"
        source.write_text(block.text)
        return compile_program(source, self.programs_folder / block.name)

    def check_lines(self, block):
        path = pathlib.PurePosixPath(block.name)
        if is_shown(block.name):
            text = (ROOT / path).read_text()
        elif path.suffix == ".cpp" and path.stem in self.programs:
            text = self.programs[path.stem].text
        else:
            return self.fault(block, f"{block.name} is neither built nor a program of this page")
        if "\n" + block.text not in "\n" + text:
            self.fault(block, f"these lines do not stand in {block.name}")

    def run(self, block):
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=self.folder, capture_output=True,
                                  text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return self.fault(block, "the commands do not end")
        if done.returncode:
            self.fault(block, f"the commands end with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def check_text(self, block, done):
        if done is None:
            return self.fault(block, "no command was run before this text")
        found = done.stdout if block.what == "output" else done.stderr
        if not same_text(block.text, found):
            self.fault(block, f"shown:\n{block.text}found:\n{found}")


def faults_of(text):
    with tempfile.TemporaryDirectory() as folder:
        return Page(text, pathlib.Path(folder)).check()


def block(instruction, language, text):
    return f"{instruction}\n```{language}\n{text}\n```\n"


class SelfCheck(unittest.TestCase):
    """A page that is not true fails."""

    program = block("<!-- test: program two -->", "cpp", '#include <cstdio>\nint main() {\n  std::puts("2.0");\n}')
    command = block("<!-- test: run -->", "sh", "./dev two")

    def test_a_true_page_passes(self):
        page = (self.program + self.command + block("<!-- test: output -->", "text", "2.0")
                + block("<!-- test: lines of two.cpp -->", "cpp", '  std::puts("2.0");')
                + block("<!-- test: lines of examples/01_quickstart.cpp -->", "cpp", "int main() {")
                + block("<!-- test: lines of programs/resnet.hpp -->", "cpp", "namespace resnet {")
                + block("<!-- test: lines of programs/support/strategy.hpp -->", "cpp", "namespace support {")
                + block("<!-- snippet: examples/01_quickstart.cpp:12: -->", "cpp", "int main() {")
                + block("<!-- test: run -->", "sh", "./dev none || echo failed >&2")
                + block("<!-- test: errors -->", "text", "the stand-in for ./dev knows no program 'none'\nfailed"))
        self.assertEqual(faults_of(page), [])

    def test_each_kind_of_fault_is_found(self):
        output = "<!-- test: output -->"
        for name, page, says in (
            ("does not compile", block("<!-- test: program p -->", "cpp", "int main() { return x; }"), "does not compile"),
            ("warning", block("<!-- test: program p -->", "cpp", "int main() { int unused = 1; }"), "does not compile"),
            ("not run", self.program, "does not run"),
            ("no test", block("", "sh", "true"), "no test"),
            ("misspelt", block("<!-- test: runs -->", "sh", "true"), "no test"),
            ("language", block("<!-- test: run -->", "cpp", "true"), "not for"),
            ("no end", "<!-- test: run -->\n```sh\ntrue\n", "no end"),
            ("command", block("<!-- test: run -->", "sh", "false\ntrue"), "end with 1"),
            ("unknown program", block("<!-- test: run -->", "sh", "./dev nothing"), "end with 2"),
            ("text", self.program + self.command + block(output, "text", "two"), "shown"),
            ("number", self.program + self.command + block(output, "text", "2.1"), "shown"),
            ("no command", block(output, "text", "2.0"), "no command"),
            ("other lines", block("<!-- test: lines of programs/mnist.cpp -->", "cpp", "int x;"), "do not stand"),
            ("part of a line", self.program + self.command + block("<!-- test: lines of two.cpp -->", "cpp", "std::puts"), "do not"),
            ("no header", block("<!-- test: lines of programs/none.hpp -->", "cpp", "int x;"), "neither"),
            ("header of another folder", block("<!-- test: lines of programs/support/resnet.hpp -->", "cpp", "int x;"), "neither"),
            ("folder left out", block("<!-- test: lines of programs/strategy.hpp -->", "cpp", "int x;"), "neither"),
            ("snippet", block("<!-- snippet: docs/other.cpp:all -->", "cpp", "int x;"), "is not a unit of the build"),
            ("snippet of a manifest", block("<!-- snippet: docs/other.yaml -->", "yaml", "a: 1"), "is not a unit of the build"),
            ("snippet of a text", block("<!-- snippet: programs/mnist.cpp -->", "text", "int x;"), "not for"),
            ("not compiled", block("<!-- test: lines of README.md -->", "cpp", "# lockstep"), "neither"),
        ):
            with self.subTest(name):
                faults = faults_of(page)
                self.assertTrue(any(says in f for f in faults), faults)

    def test_durations_and_last_digits_may_differ(self):
        self.assertTrue(same_text("5/5 - 0s - 4ms/step - loss: 2.2919", "5/5 - 1s - 335us/step - loss: 2.2921"))
        self.assertFalse(same_text("5/5 - 0s - loss: 2.2919", "5/5 - 0s - loss: 2.4"))
        self.assertFalse(same_text("exit code 130", "exit code 131"))


class Pages(unittest.TestCase):
    def test_pages(self):
        names = {p.relative_to(ROOT / "docs").as_posix() for p in PAGES}
        self.assertLessEqual({"index.md", "tutorials/cifar10.md", "tutorials/mirrored.md",
                              "tutorials/multi_worker.md", "tutorials/one_device.md",
                              "adding-a-layer.md", "house/core.md"}, names)
        for page in PAGES:
            with self.subTest(page.name):
                self.assertEqual(faults_of(page.read_text()), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
