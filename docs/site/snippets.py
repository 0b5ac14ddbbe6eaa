#!/usr/bin/env python3
"""Copies code from its sources into the pages of docs/. The fenced block after the comment

  <!-- snippet: FILE:SECTION -->

shows the lines of FILE between `--8<-- [start:SECTION]` and `--8<-- [end:SECTION]`, without their common indent.
`FILE:LINE:` shows the file from that line on, `FILE` the whole file. Paths are relative to the repository's root.
Usage: snippets.py [--check] [ROOT]; with --check nothing is written, and a page that differs from its sources is an error.
"""
import pathlib
import re
import sys
import textwrap

COMMENT = re.compile(r"^.*<!-- snippet:.*$", re.MULTILINE)
BLOCK = re.compile(r"^<!-- snippet: ([^\s:]+)(?::(?:(\d+):|(\w+)))? -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages(root):
    return sorted((root / "docs").rglob("*.md"))


def code(root, path, line, section):
    """The lines that a snippet shows. Raises ValueError if there are none."""
    if not (root / path).is_file():
        raise ValueError(f"there is no {path}")
    lines = (root / path).read_text("utf-8").splitlines(keepends=True)
    if line:
        if not 1 <= int(line) <= len(lines):
            raise ValueError(f"{path} has no line {line}")
        lines = lines[int(line) - 1:]
    elif section:
        ends = [[i for i, text in enumerate(lines) if f"--8<-- [{end}:{section}]" in text] for end in ("start", "end")]
        if [len(e) for e in ends] != [1, 1] or ends[0] > ends[1]:
            raise ValueError(f"{path} has no section {section}")
        lines = lines[ends[0][0] + 1:ends[1][0]]
    return textwrap.dedent("".join(text for text in lines if "--8<-- [" not in text))


def expand(root, page):
    """A page's text with the code of today, and what is wrong with its snippets."""
    text, faults = page.read_text("utf-8"), []

    def replaced(found):
        path, line, section, language, _ = found.groups()
        try:
            body = code(root, path, line, section)
        except ValueError as error:
            faults.append(str(error))
            return found[0]
        return f"{found[0].splitlines()[0]}\n```{language}\n{body}```"

    whole = {found.start() for found in BLOCK.finditer(text)}
    faults += [f"no snippet: {found[0]}; write '<!-- snippet: FILE:SECTION -->' on the line before a fenced block"
               for found in COMMENT.finditer(text) if found.start() not in whole]
    faults += [f"no snippet: {line}; write '<!-- snippet: FILE:SECTION -->' before the block"
               for line in re.findall(r'^--8<-- ".*$', text, re.MULTILINE)]
    return BLOCK.sub(replaced, text), faults


def complaints(root):
    """What `--check` finds, as texts."""
    for page in pages(root):
        where = page.relative_to(root).as_posix()
        text, faults = expand(root, page)
        yield from (f"{where}: {fault}" for fault in faults)
        if text != page.read_text("utf-8"):
            yield f"{where}: its code differs from the sources; run docs/site/snippets.py"


def main(check=False, root=pathlib.Path(__file__).parents[2]):
    root = pathlib.Path(root).resolve()
    found = list(complaints(root))
    if not check:
        for page in pages(root):
            text, _ = expand(root, page)
            if text != page.read_text("utf-8"):
                page.write_text(text, "utf-8")
                print(f"wrote {page.relative_to(root).as_posix()}")
        found = list(complaints(root))
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main("--check" in sys.argv, *[a for a in sys.argv[1:] if a != "--check"])
