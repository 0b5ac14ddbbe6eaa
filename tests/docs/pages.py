#!/usr/bin/env python3
"""Checks the documentation without mkdocs and without a network: each page is in the site, links lead somewhere, code is
that of its sources, tables are those of the headers, each folder of headers has a page, names of the library exist and what
is called missing does not, the search finds words of code, the picture files are what their script draws, and the README
shows the quick start.
Usage: pages.py ROOT"""
import html
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs" / "site"))
import snippets as snippet_script
import tables as table_script

ROOT_PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def pages(root):
    return sorted((root / "docs").rglob("*.md"))


def slug(heading):
    """mkdocs' name of a heading."""
    words = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading)).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def anchors(page):
    text = FENCE.sub("", page.read_text("utf-8"))
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def nav(root):
    """Each page of the site is in the navigation once, and each entry is a page."""
    config = (root / "mkdocs.yml").read_text("utf-8")
    entries = re.findall(r"(?:- |: )([\w/-]+\.md)$", config[config.index("\nnav:"):], re.MULTILINE)
    there = {p.relative_to(root / "docs").as_posix() for p in pages(root)} | set(ROOT_PAGES)
    yield from (f"mkdocs.yml: nav has {e}, which is not a page" for e in sorted(set(entries) - there))
    yield from (f"mkdocs.yml: nav leaves out {e}" for e in sorted(there - set(entries)))
    yield from (f"mkdocs.yml: nav has {e} twice" for e in sorted({e for e in entries if entries.count(e) > 1}))
    yield from (f"mkdocs.yml: there is no {name}" for name in ROOT_PAGES.values() if not (root / name).exists())


def links(root):
    for page in [*pages(root), *(root / name for name in ("README.md", *ROOT_PAGES.values()))]:
        text = FENCE.sub("", page.read_text("utf-8"))
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            where = page.relative_to(root).as_posix()
            if not target.is_file():
                yield f"{where}: the link {link} leads nowhere"
            elif anchor and anchor not in anchors(target):
                yield f"{where}: {target.name} has no heading #{anchor}"
            elif "docs" in page.parts and root / "docs" not in target.parents and target.name not in ROOT_PAGES.values():
                yield f"{where}: {link} is not part of the site"


def snippets(root):
    """The code in the pages is that of its sources, and each marked section of a source and each manifest is shown."""
    yield from snippet_script.complaints(root)
    for path in sorted((root / "packaging" / "deployment").glob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix != ".dockerignore" and not any(f"<!-- snippet: {name} -->" in page.read_text("utf-8") for page in pages(root)):
            yield f"{name}: no page shows it"
    for path in [*(root / "examples").glob("*.cpp"), *(root / "tests" / "docs").glob("*.cpp")]:
        for section in re.findall(r"--8<-- \[start:(\w+)\]", path.read_text("utf-8")):
            name = path.relative_to(root).as_posix()
            if not any(f"<!-- snippet: {name}:{section} -->" in page.read_text("utf-8") for page in pages(root)):
                yield f"{name}: no page shows the section {section}"


def tables(root):
    """The tables in the pages are what the comments of the headers determine."""
    yield from table_script.complaints(root)


def house(root):
    """Each folder has a page with a table of its headers. Headers that the text of a page names exist."""
    include = root / "include" / "lockstep"
    folders = {p.name for p in include.iterdir() if p.is_dir()}
    described = {p.stem for p in (root / "docs" / "house").glob("*.md")}
    yield from (f"include/lockstep/{f}/ has no page docs/house/{f}.md" for f in sorted(folders - described))
    yield from (f"docs/house/{f}.md is about a folder that is not there" for f in sorted(described - folders))
    for folder in sorted(folders & described):
        text = (root / "docs" / "house" / f"{folder}.md").read_text("utf-8")
        if f"<!-- table: files {folder} -->" not in text:
            yield f"docs/house/{folder}.md has no table of its headers: add <!-- table: files {folder} --> and <!-- end -->"
        for header in sorted(set(re.findall(r"`([\w/]+\.hpp)`", text))):
            if not any((at / header).exists() for at in (include / folder, include, root)):
                yield f"docs/house/{folder}.md names {header}, which is not in {folder}/"


def names(root):
    """ls::Name in a page stands in a header."""
    words = set()
    for header in (root / "include" / "lockstep").rglob("*.hpp"):
        words |= set(re.findall(r"\w+", re.sub(r"//.*", "", header.read_text("utf-8"))))
    for page in pages(root):
        for name in sorted(set(re.findall(r"\bls::(\w+)", page.read_text("utf-8"))) - words):
            yield f"{page.relative_to(root).as_posix()}: ls::{name} is in no header"


def absent(root):
    """Features that pages call missing do not exist. Data pipelines do not count: some have the name of a layer."""
    headers = {p: p.read_text("utf-8") for p in (root / "include" / "lockstep").rglob("*.hpp") if p.parent.name != "data"}
    declared = {name for text in headers.values() for name in re.findall(r"\b(?:struct|class) (\w+)", text)}
    has_kernel = {name for text in headers.values() for name in re.findall(r"\bKernel<(\w+)Op\b", text)}
    for page in pages(root):
        where, text = page.relative_to(root).as_posix(), page.read_text("utf-8")
        for row in re.findall(r"^\|.*\*\*missing\*\*.*$", text, re.MULTILINE):
            for name in sorted(set(re.findall(r"\w+", row.split(" | ")[0])) & declared):
                yield f"{where}: {name} is called missing, and a header declares it"
        for name in re.findall(r"`(?:ls::)?(\w+)<>`.*\b(?:no kernel yet|no device has|No device has a kernel)", text):
            if name in has_kernel:
                yield f"{where}: {name} has no kernel according to the page, but a header has one"
        if re.search(r"no GPU", text, re.IGNORECASE) and (root / "include" / "lockstep" / "devices" / "cuda").exists():
            yield f"{where}: the page states that there is no GPU, but there is devices/cuda"


def kernels(root):
    """The tables of kernels have each op of a layer and of an optimizer, each loss and each metric."""
    page = root / "docs" / "kernels.md"
    rows = re.findall(r"^\| ([\w, ]+) \|", page.read_text("utf-8"), re.MULTILINE) if page.exists() else ()
    there = {name for row in rows for name in re.findall(r"\w+", row)} | {"View", "Weighted", "HeadLoss", "LossesOf", "MetricOn"}
    has_op = r"struct (\w+) \{(?:(?!^\};).)*? op\(Shape"
    for folder, declaration in (("layers", r"struct (\w+)Op \{"), ("optimizers", r"struct (\w+)Op \{"),
                                ("losses", has_op), ("metrics", has_op)):
        for header in sorted((root / "include" / "lockstep" / folder).rglob("*.hpp")):
            found = re.findall("^" + declaration, header.read_text("utf-8"), re.MULTILINE | re.DOTALL)
            yield from (f"docs/kernels.md leaves out {name}: add it to tests/docs/kernels/table.cpp"
                        for name in found if name not in there)


def environment(root):
    """The page of the environment variables has those that the library, `./dev` and lockstep-run read, and no others."""
    texts = [p.read_text("utf-8") for p in (root / "include").rglob("*.?pp")]
    read = set().union(*(re.findall(r'"(LOCKSTEP_[A-Z0-9_]+)"', text) for text in texts))
    for source in (root / "tools").rglob("*.?pp"):  # those that lockstep-run reads itself
        read |= set(re.findall(r'variable_text\("(LOCKSTEP_[A-Z0-9_]+)"\)', source.read_text("utf-8")))
    read |= set(re.findall(r"\$\{(LOCKSTEP_[A-Z0-9_]+):-", (root / "dev").read_text("utf-8")))
    named = set(re.findall(r"^\| `(LOCKSTEP_[A-Z0-9_]+)` \|", (root / "docs" / "environment.md").read_text("utf-8"), re.MULTILINE))
    yield from (f"docs/environment.md leaves out {name}" for name in sorted(read - named))
    yield from (f"docs/environment.md has {name}, which nothing reads" for name in sorted(named - read))


# Words that a user looks for, each of which an example shows.
SEARCHED = ("factor", "MonitorMode", "Identity", "NpzFile", "read_npy", "check_gradients", "LossIo", "Rescaling", "prefix")


def search(root):
    """The site's search finds words of code: the plugin's separator cuts them out of the examples."""
    separator = re.search(r"^ +separator: '(.*)'$", (root / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    if not separator:
        yield "mkdocs.yml: the search has no separator, so it finds ls::factor(0.1) as a whole only"
        return
    code = "\n".join(block for page in pages(root) for block in FENCE.findall(page.read_text("utf-8")))
    found = set(re.split(separator[1], html.escape(code)))
    yield from (f"docs: no example has '{word}' as a word of its own" for word in SEARCHED if word not in found)


def readme(root):
    """The README's program is the quick start, apart from comments."""
    def code(text):
        return [line for line in (re.sub(r"\s*//.*", "", line) for line in text.splitlines()) if line]
    shown = re.search(r"^```cpp\n(.*?)^```$", (root / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    if not shown or code(shown[1]) != code((root / "examples" / "01_quickstart.cpp").read_text("utf-8")):
        yield "README.md: its program is not that of examples/01_quickstart.cpp"


def image(root):
    """The image installs the packages with which ./dev builds, and no others."""
    page, dev = root / "packaging" / "deployment" / "Dockerfile", root / "dev"
    packages = re.search(r"^build_packages=\((.*?)\)", dev.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    shown = re.search(r"^FROM \S+ AS build\n.*?--no-install-recommends((?:[^\n]*\\\n)*[^\n]*)\n", page.read_text("utf-8"),
                      re.MULTILINE | re.DOTALL)
    if not packages or not shown or set(packages[1].split()) != set(shown[1].replace("\\", " ").split()):
        yield "packaging/deployment/Dockerfile: its image does not install the build_packages of ./dev"


def pictures(root):
    done = subprocess.run([sys.executable, "-B", root / "docs" / "pictures" / "make.py", "--check"], capture_output=True,
                          text=True)
    if done.returncode:
        yield f"docs/pictures: {done.stderr.strip()}"


CHECKS = (nav, links, environment, snippets, tables, house, names, absent, kernels, search, readme, image, pictures)


def main(root):
    found = [text for check in CHECKS for text in check(root)]
    print(f"{len(pages(root))} pages, {len(found)} complaints")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
