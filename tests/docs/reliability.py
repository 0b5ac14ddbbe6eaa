#!/usr/bin/env python3
"""Checks docs/reliability.md: it has each row of the fault matrix once, each test that it names exists, each row without a
test explains why, and the counts are right.
Usage: reliability.py ROOT"""
import pathlib
import re
import sys

# The matrix counts the fuzzers X1 to X9 as one of its 76 rows.
ROWS = {"F": 13, "R": 10, "N": 12, "E": 5, "C": 13, "D": 6, "T": 3, "X": 10, "S": 4, "G": 6, "B": 2}
PAGE = "docs/reliability.md"
CASE = re.compile(r'(?:TEST_CASE|TEST_CASE_METHOD|TEMPLATE_TEST_CASE)\(\s*(?:\w+,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)')


def cases(text, suffix):
    """Names of the test cases of a source."""
    if suffix == ".py":
        return set(re.findall(r"def (test_\w+)", text))
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', name)) for name in CASE.findall(text)}


def rows(page):
    """{row: cell of its tests}, in the order of the page; rows that occur twice."""
    found, twice = {}, []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]  # the first and the last are empty
        if len(cells) == 7 and re.fullmatch(r"[A-Z]\d+", cells[1]):
            if cells[1] in found:
                twice.append(cells[1])
            found[cells[1]] = cells[4]
    return found, twice


def named(cell):
    """[(path, [names])] of a cell."""
    parts = re.split(r"`([\w/]+\.(?:cpp|py|sh))`", cell)
    return [(path, re.findall(r'"([^"]+)"', rest) + re.findall(r"`(test_\w+)`", rest))
            for path, rest in zip(parts[1::2], parts[2::2])]


def complaints(page, files):
    """`files`: text of each file of the repository by path, read when asked for; None if there is none."""
    found, twice = rows(page)
    expected = [f"{letter}{i}" for letter, count in ROWS.items() for i in range(1, count + 1)]
    yield from (f"row {row} is missing" for row in expected if row not in found)
    yield from (f"row {row} is not one of the matrix" for row in found if row not in expected)
    yield from (f"row {row} is there twice" for row in twice)
    counts = [0, 0, 0]
    for row, cell in found.items():
        tests = named(cell)
        gaps = re.findall(r"(?:No test|Missing)\b[^:]*: \S[^|]*\.", cell)
        covered = bool(tests) or "./dev " in cell
        if not covered and not gaps:
            yield f"row {row} has neither a test nor a sentence 'No test: ...'"
        if tests and "No test:" in cell:
            yield f"row {row} has tests; name what is not tested after 'Missing:'"
        counts[2 if not covered else 1 if gaps else 0] += 1
        for path, names in tests:
            there = files(path if path.startswith("tools/") else f"tests/{path}")
            if there is None:
                yield f"row {row}: there is no tests/{path}"
                continue
            known = cases(there, pathlib.PurePath(path).suffix)
            yield from (f"row {row}: tests/{path} has no test \"{name}\"" for name in names if name not in known)
    sentence = f"Counts: {counts[0]} rows are tested, {counts[1]} in part, and {counts[2]} not."
    if sentence not in page:
        yield f"the counts are wrong; write: {sentence}"


def self_test():
    header = "| row | fault | what | tests | limit |\n"
    line = '| {} | a | b | {} | 1 s |\n'
    good = header + "".join(line.format(f"{letter}{i}", "`a.cpp`: \"one; two\"<br>`b.py`: `test_x`")
                            for letter, count in ROWS.items() for i in range(1, count + 1))
    good += "Counts: 84 rows are tested, 0 in part, and 0 not.\n"
    sources = {"tests/a.cpp": 'TEST_CASE(\n    "one; "\n    "two", "[.slow]")', "tests/b.py": "def test_x(self):"}
    first = line.format("F1", "`a.cpp`: \"one; two\"<br>`b.py`: `test_x`")
    wrong = {
        "a missing row": good.replace(first, ""),
        "an unknown row": good + line.format("Z1", "`b.py`: `test_x`"),
        "a test that is not there": good.replace('"one; two"', '"one"', 1),
        "a Python test that is not there": good.replace("test_x", "test_y", 1),
        "a file that is not there": good.replace("a.cpp", "c.cpp", 1),
        "a row without a sentence": good.replace(first, line.format("F1", "")),
        "a gap that is not counted": good.replace(first, line.format("F1", "`b.py`: `test_x`<br>Missing: all the rest.")),
        "a row with and without tests": good.replace(first, line.format("F1", "`b.py`: `test_x`<br>No test: why.")),
    }
    if found := list(complaints(good, sources.get)):
        yield f"a good page has complaints: {found}"
    yield from (f"{what} is not found" for what, page in wrong.items() if not list(complaints(page, sources.get)))


def main(root):
    texts = {}

    def text(path):
        if path not in texts:
            texts[path] = (root / path).read_text("utf-8") if (root / path).is_file() else None
        return texts[path]

    found = [*self_test(), *(f"{PAGE}: {c}" for c in complaints((root / PAGE).read_text("utf-8"), text))]
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
