#!/usr/bin/env python3
"""Checks the wording of comments, messages and pages, and that renamed identifiers do not return.

Usage: voice.py ROOT                                        checks the folders in CHECKED
       voice.py ROOT FOLDER...                              checks these files and folders
       voice.py ROOT --sample N [--messages M] [--seed S]   prints N random comments and M random messages

A line that needs a flagged word contains the words "voice: allow" in a comment.
"""
import argparse
import bisect
import io
import pathlib
import random
import re
import sys
import tokenize

# Files and folders that are clean and stay clean.
CHECKED = [
    ".ci",
    "benchmarks",
    "CHANGELOG.md",
    "cmake",
    "CMakeLists.txt",
    "CONTRIBUTING.md",
    "dev",
    "docs",
    "examples",
    "include",
    "packaging",
    "programs",
    "README.md",
    "SECURITY.md",
    "src",
    "tests",
    "tools",
]

# What a rule applies to: comments and Markdown ("c"), string literals ("m"), code ("i").
# (where, pattern, replacement). White space in a pattern also matches a line break; patterns ignore case unless they
# begin with (?-i:.
WORDS = [
    ("cm", r"(?<!there\x20)(?<!that\x20)\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|fewer\b|larger\b|smaller\b|later\b"
           r"|earlier\b|slower\b|faster\b|worse\b|better\b|shorter\b|other\b)", "'is not a', 'has no' or 'must be'"),
    ("cm", r"\bso many\b", "the number and its unit"),
    ("cm", r"\bbehind\b", "'after'"),
    ("cm", r"\bbeside\b", "'next to', 'in addition to' or 'while ... runs'"),
    ("cm", r"\bbut for\b", "'except' or 'apart from'"),
    ("cm", r"\banew\b", "'again'"),
    ("cm", r"\bin (?:the|its|their) place of\b|\bin place of\b", "'instead of'"),
    ("cm", r"\bby (?:itself|themselves)\b", "'on its own', 'automatically' or nothing"),
    ("cm", r"\bcannot be(?=\s*(?:[;,.:)]|\Z))", "the bound: 'must be at least 1'"),
    ("cm", r"\bof (?:one's|his) own\b|\b(?:thread|process|processe|folder|place|group|exception|case)s? of (?:its|their) own\b",
     "'its own X', 'separate', 'custom' or 'user-defined'"),
    ("cm", r"\bmend(?:s|ed|ing)?\b", "'fix'"),
    ("cm", r"\b(?:say|says|said|saying)\b(?! hello)", "'report', 'state', 'log', 'name' or 'declare'"),
    ("cm", r"\b(?:tell|tells|told|telling)\b", "'pass', 'notify', 'report' or 'show'"),
    ("cm", r"\b(?:lend|lends|lent|lending)\b", "'pass', 'borrow' or 'provide'"),
    ("cm", r"\blook(?:s|ed|ing)?\b(?! up\b| it up\b| them up\b| like\b| ahead\b| for\b)", "'check', 'poll', 'read' or 'inspect'"),
    ("cm", r"\b(?:take|takes|took|taken|taking)\b(?:\s+[\w'-]+){1,5}\s+for\s+(?:a|an|the|no|0|what|granted)\b",
           "'treat as', 'mistake for'"),
    ("cm", r"\b(?:settle|settles|settled|settling)\b", "'wait', 'finish' or 'decide'"),
    ("cm", r"\bunder way\b", "'in flight', 'pending' or 'in progress'"),
    ("c", r"(?-i:(?:^|[.;:]\s+)Who\s(?![^.]*\?))", "the subject: 'a peer that', 'a caller that'"),
    ("c", r"(?-i:(?:^|[.;:]\s+)What\s(?![^.]*\?))", "a noun phrase or a verb at the beginning"),
    ("c", r"(?-i:(?:^|[.]\s+)Of (?:a|an|the|its|what|each)\s)", "a noun phrase or a verb at the beginning"),
]
IDENTIFIERS = [
    (r"\b(?:un)?settled?_?\b|\bsettle_\w+", "wait_*, reset or write_*"),
    (r"\b(?:look|looks|look_at|look_every)_?(?=\s*[(<;={])", "poll, check_* or wait_*"),
    (r"\b(?:say|says|said)_?(?=\s*[(;={])|\b(?:say|said|unsaid)_\w+", "log, write_* or report_*"),
    (r"\b(?:tell|told|tells)_?(?=\s*[(;={])|\b(?:tell|told)_\w+", "notify, pass or warn_*"),
    (r"\b(?:lend|lends|lent)\w*\b", "pass, provide or install_*"),
    (r"(?<![.\w:|])(?<!\|\x20)take\s*\(|(?<!\bls)(?<!lockstep)(?<!pipeline)::take\s*\(|->take\s*\(", "pop, read_*, allocate or adopt"),
    (r"\bbeside_\b|\bbranches_\b|\barrivals?_\b|\bfamily_\b|\bnews_\b", "the term of the field"),
    (r"\blast_words\w*\b|\bLastWords\b", "failure_report or read_notice"),
    (r"\bRoll\b|\bRollEntry\b", "MemberRegistry"),
    (r"\bNcclFamily\b", "NcclDeviceState"),
    (r"\bmend(?:s|ed)?_?\w*\b", "fix or repair"),
]


def compiled(pattern):
    return re.compile(pattern, re.MULTILINE if pattern.startswith("(?-i:") else re.IGNORECASE | re.MULTILINE)


RULES = {kind: [(compiled(pattern.replace(" ", r"\s+")), instead) for where, pattern, instead in WORDS if kind in where]
         for kind in "cm"} | {"i": [(compiled(pattern), instead) for pattern, instead in IDENTIFIERS]}
# Uses that are right: the match with some text around it.
ALLOWED = [
    r"\b(?:fall|falls|fell|lag|lags|lagging|left|leave|leaves) (?:\w+ )?behind\b", r"\bbehind (?:a|the) (?:proxy|firewall|NAT|switch|pointer)\b",
    r"\bthat is to say\b", r"\bneedless to say\b", r"\b(?:as|, say,)\b say\b",
    r"\b(?:tell|tells|told)\s+(?:\w+\s+){0,4}apart\b", r"\bcannot tell\b",
    r"\b(?:auto|static|constexpr|Data\w*)\s+take\(",  # Keras' take(n) of a data set
]
ALLOWED_FILES = {  # patterns that a file may match
    "tests/house/voice.py": "(?s:.)",
    "include/lockstep/data/operations/take.hpp": r"(?i:take)",
    "tests/house/voice.py": ".",
    "include/lockstep/data/operations/take.hpp": r"(?i:take)",
    "include/lockstep/data/operations/validation_split.hpp": r"take",
}
PROGRAMS = {".cpp", ".hpp", ".ipp", ".cu", ".h"}
SCRIPTS = {".sh", ".cmake", ".yml", ".yaml", ".toml", ".in"}
SKIPPED = {"build", ".git", "site", "__pycache__", "node_modules"}
TOKEN = re.compile(r'''(?P<raw>R"(?P<end>[^(\s"]*)\((?P<text>.*?)\)(?P=end)")|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)'''
                   r'''|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<char>(?<![\w])'(?:\\.|[^'\\\n])+')|(?P<number>\b\d[\w'.]*)''', re.DOTALL)


class Text:
    """Pieces of a file: (kind, first line, text); the lines of a block of comments and the parts of a message are one."""

    def __init__(self, source):
        self.source, self.pieces = source, []
        self.breaks = [m.start() for m in re.finditer("\n", source)]

    def line(self, offset):
        return bisect.bisect_left(self.breaks, offset) + 1

    def add(self, kind, offset, text, is_own_line=True):
        line = self.line(offset)
        if self.pieces and is_own_line:
            last_kind, first, last, last_own = self.pieces[-1]
            if last_kind == kind and last_own and first + last.count("\n") + 1 == line:
                self.pieces[-1] = (kind, first, last + "\n" + text, True)
                return
        self.pieces.append((kind, line, text, is_own_line))


def is_first(source, offset):
    return not source[source.rfind("\n", 0, offset) + 1:offset].strip()


def of_program(source):
    """Comments, messages and code of a C++ file."""
    text, code = Text(source), list(source)
    for m in TOKEN.finditer(source):
        if m["number"]:
            continue
        code[m.start():m.end()] = [c if c == "\n" else " " for c in m[0]]
        if m["line"] and not re.match(r"// (?:clang-format|NOLINT)", m[0]):
            is_own_line = is_first(source, m.start())
            if is_own_line and m[0].startswith("///<") and text.pieces:  # goes on with the line before
                kind, first, last, was_own_line = text.pieces.pop()
                text.pieces.append((kind, first, f"{last}\n{m[0][4:].strip()}", was_own_line))
            else:
                text.add("c", m.start(), re.sub(r"^//[/!]?<? ?", "", m[0]), is_own_line)
        elif m["block"]:
            text.add("c", m.start(), m[0].strip("/*!"), False)
        elif m["string"]:
            if not is_include(source, m.start()):
                text.add("m", m.start(), m[0][1:-1], is_first(source, m.start()))
        elif m["raw"]:  # kernels as text, JSON
            base = m.start("text")
            for comment in re.finditer(r"//([^\n]*)", m["text"]):
                text.add("c", base + comment.start(), comment[1].strip(), is_first(source, base + comment.start()))
    return text.pieces, "".join(code)


def is_include(source, offset):
    return source[source.rfind("\n", 0, offset) + 1:offset].lstrip().startswith("#")


def of_python(source):
    text, code = Text(source), source
    before = None
    starts = [0, *(b + 1 for b in text.breaks)]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        offset = starts[token.start[0] - 1] + token.start[1] if token.start[0] <= len(starts) else 0
        if token.type == tokenize.COMMENT:
            text.add("c", offset, token.string.lstrip("#! "), is_first(source, offset))
        elif token.type == tokenize.STRING:
            is_docstring = before in (None, tokenize.INDENT, tokenize.NEWLINE, tokenize.DEDENT, tokenize.NL)
            body = re.sub(r'^\w*("""|\'\'\'|"|\')|("""|\'\'\'|"|\')$', "", token.string)
            text.add("c" if is_docstring else "m", offset, body, False)
        if token.type not in (tokenize.COMMENT,):
            before = token.type
    return text.pieces, re.sub(r"#[^\n]*|\"[^\"\n]*\"|'[^'\n]*'", "", code)


def of_script(source):
    text = Text(source)
    for m in re.finditer(r"(?m)(?:^|(?<=\s))#[^\n]*|\"(?:\\.|[^\"\\])*\"", source):
        if m[0][0] == "#":
            text.add("c", m.start(), m[0].lstrip("#! "), is_first(source, m.start()))
        else:
            text.add("m", m.start(), m[0][1:-1], False)
    return text.pieces, ""


def of_page(source):
    """Prose outside of code, and the comments of C++ blocks."""
    text, in_code = Text(source), ""
    offset = 0
    for line in source.splitlines(keepends=True):
        if line.lstrip().startswith("```"):
            in_code = "" if in_code else line.strip("` \n") or "text"
        elif not in_code:
            text.add("c", offset, line.rstrip("\n"))
        elif in_code.startswith("cpp") and "//" in line:
            at = line.index("//")
            text.add("c", offset + at, line[at + 2:].strip(), False)
        offset += len(line)
    return text.pieces, ""


def pieces(path, source):
    if path.suffix in PROGRAMS:
        return of_program(source)
    if path.suffix == ".py" or source.startswith("#!/usr/bin/env python"):
        return of_python(source)
    if path.suffix == ".md":
        if path.name == "CHANGELOG.md":  # older parts are history
            source = "\n## ".join(source.split("\n## ")[:2])
        return of_page(source)
    if path.suffix in SCRIPTS or path.name == "CMakeLists.txt" or source.startswith("#!"):
        return of_script(source)
    return [], ""


def is_allowed(name, text, match):
    around = text[max(0, match.start() - 40):match.end() + 40].replace("\n", " ")
    return any(m.start() <= min(40, match.start()) < m.end() for p in ALLOWED for m in re.finditer(p, around, re.IGNORECASE)) or bool(
        name in ALLOWED_FILES and re.search(ALLOWED_FILES[name], match[0]))


def complaints(name, source):
    """`name` is a path from the root."""
    found, lines = [], source.splitlines()
    parts, code = pieces(pathlib.PurePath(name), source)

    def check(kind, first, text):
        prose = re.sub(r"`[^`\n]*`", lambda m: "_" * len(m[0]), text) if kind == "c" else text
        for pattern, instead in RULES[kind]:
            for m in pattern.finditer(prose):
                line = first + prose.count("\n", 0, m.start() + len(m[0]) - len(m[0].lstrip()))
                if "voice: allow" not in lines[line - 1] and not is_allowed(name, prose, m):
                    found.append(f"{name}:{line}: '{' '.join(m[0].split())}'; write {instead}")

    for kind, first, text, _ in parts:
        check(kind, first, text)
    check("i", 1, code)
    return found


def files(root, folders):
    for folder in folders:
        path = root / folder
        if not path.exists():
            sys.exit(f"{folder}: there is no such file or folder")
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not SKIPPED & set(file.relative_to(root).parts[:-1]) and "golden/data" not in file.as_posix():
                yield file.relative_to(root).as_posix()


def read(root, name):
    try:
        return (root / name).read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def self_test():
    wrong = {
        "a.hpp": ["int a;  ///< in the\n        ///< place of\n", "/// in a thread of\n/// its own\n", '// This is no list.\n', 'f("-1 threads cannot be");', "// What is kept.\n",
                  "void settle();", "// it takes NaN for a number", 'g("the file" // x\n  " says 3");', 'R"(\n// beside it\n)"'],
        "a.py": ['"""Said once."""\n', "x = 1  # behind it\n", 'print("so many")\n'],
        "a.md": ["Lies beside it.\n", "```cpp\nf();  // anew\n```\n"],
        "a.sh": ["# tell all\n", 'echo "but for one"\n'],
        "CHANGELOG.md": ["# C\n\n## New\n- anew\n"],
    }
    right = {
        "a.hpp": ["// `take` is no longer used, and there is no other.\n", "// The worker falls behind.\n", "auto a = data.take(3);",
                  '#include "say/beside.hpp"', "int n = 1'000; // runs after it\n", 'R"(beside)"', "a(); // x beside y; voice: allow"],
        "a.py": ["beside = 1\n"],
        "a.md": ["`beside`\n", "```\nbeside\n```\n"],
        "CHANGELOG.md": ["# C\n\n## New\n- x\n\n## 1.0\n- anew\n"],
    }
    found = [f"one complaint expected for {text!r}, not {complaints(name, text)}"
             for name, texts in wrong.items() for text in texts if len(complaints(name, text)) != 1]
    return found + [f"refused: {complaints(name, text)}"
                    for name, texts in right.items() for text in texts if complaints(name, text)]


def sample(root, comments, messages, seed):
    """Prints random comments of C++ files and pages and random messages of at least four words."""
    found = {"c": [], "m": []}
    for name in files(root, ["include", "src", "tools", "examples", "programs", "benchmarks", "tests", "dev"]):
        for kind, line, text, _ in pieces(pathlib.PurePath(name), read(root, name))[0]:
            is_message = kind == "m" and len(text.split()) >= 4 and not name.startswith("tests")
            if is_message or (kind == "c" and len(text.split()) >= 2):
                found[kind].append((name, line, text))
    draw = random.Random(seed)
    for kind, count in (("c", comments), ("m", messages)):
        for name, line, text in draw.sample(found[kind], min(count, len(found[kind]))):
            print(f"{name}:{line}", *("    " + part for part in text.splitlines()), sep="\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--messages", type=int, metavar="M")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.sample is not None:
        sample(args.root, args.sample, args.sample // 2 if args.messages is None else args.messages, args.seed)
        return
    found = self_test()
    for name in files(args.root, args.folders or CHECKED):
        found += complaints(name, read(args.root, name))
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
