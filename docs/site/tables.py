#!/usr/bin/env python3
"""Writes the tables of docs/ that the comments of the headers determine. The rows after the comment

  <!-- table: KIND FOLDER -->

up to `<!-- end -->` are made from the headers in include/lockstep/FOLDER:

  files        a row for each header: the first sentence of its `\\file` comment. The headers of a subfolder share a row, and so
               do a device's kernels that have the name of a layer or an optimizer. Subfolders and types with a table of their
               own on the page are left out.
  layers       a row for each layer, from its comment (`Input ..., output ...` or `Shape unchanged`, `Parameters ...`) and that
               of its op
  activations  a row for each activation
  losses       a row for each loss: its comment
  metrics      a row for each metric, and callbacks, one for each callback: the `\\file` comment
  optimizers   a row for each optimizer or schedule: its options and its formulas
  keras        all types whose comments begin with "Keras' NAME"; the folder is `all`

Usage: tables.py [--check] [ROOT]; with --check nothing is written, and a page that differs from the headers is an error.
"""
import functools
import pathlib
import re
import sys

BLOCK = re.compile(r"^<!-- table: (\w+) (\S+) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"static constexpr std::string_view name\b|operator std::shared_ptr<Callback>")
CITED = re.compile(r"Keras' (?:metric )?'?(\w+)'?(?:\([^)]*\))?(?: layer)?(?: \([^)]*\))?")
LONG = 70  # characters of a first sentence, above which it is cut before its details
DETAILS = r": |; |, so that |, which |, for |, if |, without | \((?:see )?[\w/]+\.[ch]pp\)| \([A-Z]\. "
COMMON = {"learning_rate", "initial_learning_rate", "weight_decay", "with"}  # options of all optimizers or schedules
SHORT = 28  # no part is shorter than that
PLACES = r",? on (?:a GPU|the CPU|the reference device|every device over host memory)$"


def pages(root):
    return sorted((root / "docs").rglob("*.md"))


def first_sentence(text):
    """The first sentence, without its full stop. Initials and "et al." end no sentence."""
    return re.split(r"(?<!\b[A-Z])(?<!\bal)(?<![. ])\.(?: |$)", text, maxsplit=1)[0]


def without_full_stop(text):
    return text.strip().rstrip(".:;,").strip()


def cell(text):
    """Text as a cell of a table."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def row(*cells):
    return "| " + " | ".join(map(cell, cells)) + " |\n"


def head(*cells):
    return row(*cells) + "|---" * len(cells) + "|\n"


class Type:
    """A documented type with a name: a layer, a loss, an optimizer, ..."""

    def __init__(self, comment, arguments, name, body):
        comment = re.sub(r"\\code.*?\\endcode", "", "\n".join(comment), flags=re.DOTALL)
        self.lines = [line for line in comment.splitlines() if not line.startswith("\\")]
        self.comment = " ".join(" ".join(line for line in self.lines if not line.startswith("   ")).split())
        self.paragraph = " ".join("\n".join(self.lines).split("\n\n")[0].split())
        self.arguments, self.name, self.body = arguments, name, body
        cited = CITED.match(self.comment)
        self.keras = cited and cited[1]
        self.text = self.comment[cited.end():].lstrip(" :,.") if cited else self.comment

    def signature(self):
        """`AUC<Thresholds = 200>{.curve, .from_logits}`."""
        arguments = []
        for argument in (self.arguments or "").split(","):
            found = re.search(r"(\.\.\.)? ?(\w+)( = \d+)?(?: = .*)?$", argument)
            if found:
                arguments.append("..." if found[1] else found[2] + (found[3] or ""))
        members = ", ".join(f".{member}" for member in self.members())
        return (self.name + (f"<{', '.join(arguments)}>" if self.arguments is not None else "")
                + (f"{{{members}}}" if members else ""))

    def members(self):
        """The names of the data members, which designated initializers set."""
        type_name = r"(?! |static|using|friend|constexpr|template|return)[\w:<>, ()]+?"
        found = re.findall(rf"^  {type_name} (\w+(?: = [^;()]*|\{{\}})?(?:, \w+ = [^;,()]+)*);", self.body, re.MULTILINE)
        return [name for text in found for name in re.findall(r"(?:^|, )(\w+)(?= = |\{|$)", text)]

    def formulas(self):
        """The first paragraph and the formulas, which are indented. Text to the right of a formula is in parentheses."""
        made = []
        for line in (line for line in self.lines if line.startswith("   ")):
            formula = re.sub(r" {3,}(.+)$", r" (\1)", line.strip())
            if line.startswith("      ") and made:  # goes on with the line above
                made[-1] += " " + formula
            else:
                made.append(formula)
        text = CITED.sub("", self.paragraph, count=1).lstrip(" :,.")
        return f"{text} {'; '.join(made)}".strip() if made else ""


class Header:
    """A header: the text of its \\file comment, and its documented types."""

    def __init__(self, folder, path):
        self.path, self.text = path.relative_to(folder).as_posix(), path.read_text("utf-8")
        found = re.match(r"/// \\file\n((?:/// .*\n)*)", self.text)
        text = " ".join(re.sub(r"^///", "", found[1], flags=re.MULTILINE).split()) if found else ""
        self.sentence = without_full_stop(first_sentence(re.split(r" Invariants?: ", text, maxsplit=1)[0]))
        self.stem = path.stem

    def title(self):
        """The sentence, without its details if it is long."""
        ends = [m.start() for m in re.finditer(DETAILS, self.sentence) if m.start() >= SHORT]
        return self.sentence[:ends[0]] if len(self.sentence) > LONG and ends else self.sentence

    @functools.cached_property
    def types(self):
        """Documented types outside of `namespace detail`."""
        found, comment, hidden, lines = [], [], False, self.text.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("///"):
                comment.append(line[4:])
                continue
            hidden = hidden and not line.startswith("}  // namespace detail") or line.startswith("namespace detail")
            if comment and not hidden:
                declared = re.match(r"(?:template <([^;{}]*|.*\{\}.*?)> )?(?:struct|class) (\w+)[^;]*?\{",
                                    " ".join(lines[number:number + 3]))
                if declared:
                    end = next((n for n in range(number, len(lines)) if re.match(r"(?! ).*\};$", lines[n])), number)
                    found.append(Type(comment, declared[1], declared[2], "\n".join(lines[number:end])))
            comment = []
        return found

    def named(self):
        return [t for t in self.types if NAMED.search(t.body) and not t.name.endswith("Op")]

    def op(self, name):
        return next((t for t in self.types if t.name == name + "Op"), None)


class Catalogue:
    """All headers below include/lockstep, by their folder."""

    def __init__(self, root):
        folder = root / "include" / "lockstep"
        self.headers = [Header(folder, path) for path in sorted(folder.rglob("*.hpp"))]

    def below(self, folder):
        return [h for h in self.headers if h.path.startswith(folder + "/")]

    def files(self, folder, others):
        """`others`: the kinds and folders of the page's tables."""
        covered = [other for kind, other in others if kind == "files" and other.startswith(folder + "/")]
        typed = [other for kind, other in others if kind != "files"]
        ops = {h.stem for h in self.headers if h.path.startswith(("layers/", "optimizers/"))}
        rows, kernels, subfolders = "", [], {}
        for header in self.below(folder):
            if any(header.path.startswith(other + "/") for other in covered):
                continue
            if header.named() and any(header.path.startswith(other + "/") for other in typed):
                continue
            subfolder, _, name = header.path[len(folder) + 1:-len(".hpp")].rpartition("/")
            if subfolder:
                subfolders.setdefault(subfolder, []).append(name)
            elif folder.startswith("devices/") and name in ops:
                kernels.append(name)
            else:
                rows += row(f"`{name}`", re.sub(rf"^`?{name}`?(?: |: )|{PLACES}", "", header.title()))
        if kernels:
            rows += row(f"`{', '.join(kernels)}`", "kernels of the layers and optimizers of these names")
        for subfolder, names in subfolders.items():
            rows += row(f"`{subfolder}/`", f"`{', '.join(names)}`")
        return head(f"`{folder}/*.hpp`", "what is in it") + rows

    def typed(self, folder, others):
        """Headers of the folder with their types, without those of subfolders that have a table of their own."""
        covered = [other for kind, other in others if kind != "files" and other.startswith(folder + "/")]
        found = [(h, t) for h in self.below(folder) for t in h.named() if not any(h.path.startswith(o + "/") for o in covered)]
        return sorted(found, key=lambda pair: pair[1].name.lower())

    def layers(self, folder, others):
        rows = ""
        for header, layer in self.typed(folder, others):
            shape = re.search(r"Input (?:of )?(.+?)[;,] output (.+?)(?:;|\.(?= |$)|, which|$)", layer.text)
            if not shape and "Shape unchanged" not in layer.text:
                raise ValueError(f"{header.path}: the comment of {layer.name} does not state 'Input ..., output ...' or "
                                 "'Shape unchanged'")
            shapes = f"{shape[1]} → {shape[2]}" if shape else "unchanged"
            rows += row(f"`{layer.signature()}`", shapes, self.result(header, layer))
        return head("layer", "input → output", "result, parameters") + rows

    @staticmethod
    def result(header, layer):
        """What a layer computes: its op's comment without the derivatives, or else its own without the shapes."""
        op = header.op(layer.name)
        if op:
            text = re.sub(r"[.;] d[xy](?:/dx)? = .*|; NaN stays.*", "", op.paragraph)
        else:
            own = re.sub(r"Input .+?[;,] output .*?\.(?= |$)|Shape unchanged\.", "", layer.text).strip()
            text = first_sentence(own) or header.title()
        held = re.search(r"\b([Pp]arameters? `.*?|State `.*?)(?:;|\.(?= |$)|, drawn|, is )", layer.text)
        return (without_full_stop(text) + (f"; {held[1][0].lower()}{held[1][1:]}" if held else "")
                + ("" if layer.keras else "; not in Keras"))

    def activations(self, folder, others):
        rows = (row(f"`{t.signature()}`", self.result(h, t)) for h, t in self.typed(folder, others))
        return head("layer", "result") + "".join(rows)

    def losses(self, folder, others):
        rows = ""
        for _, loss in self.typed(folder, others):
            targets = re.search(r"[Tt]argets are ((?:[^.;,]|, or|,(?= [-\d]))+)", loss.text)
            value = first_sentence(loss.text).replace(" over all elements of an example", "")
            rows += row(f"`{loss.signature()}`", value, targets[1] if targets else "values")
        return head("loss", "value", "targets") + rows

    def metrics(self, folder, others):
        rows = (row(f"`{t.signature()}`", h.sentence) for h, t in self.typed(folder, others))
        return head("metric", "value") + "".join(rows)

    def callbacks(self, folder, others):
        rows = (row(f"`{t.name}`", h.sentence) for h, t in self.typed(folder, others))
        return head("callback", "what it does") + "".join(rows)

    def optimizers(self, folder, others):
        rows = ""
        for header, optimizer in self.typed(folder, others):
            options = [f"`.{member}`" for member in optimizer.members() if member not in COMMON]
            rows += row(f"`{optimizer.name}`", ", ".join(options), optimizer.formulas() or first_sentence(optimizer.text))
        return head("type", "options", "formula") + rows

    def keras(self, folder, others):
        kinds = {"layers": "layers", "activations": "layers/activations", "losses": "losses", "metrics": "metrics",
                 "optimizers": "optimizers", "schedules": "optimizers/schedules", "callbacks": "training/callbacks"}
        own = [("layers", other) for other in kinds.values()]
        rows = ""
        for kind, where in kinds.items():
            named = [t.name + ("" if re.sub("_", "", t.keras).lower() == t.name.lower() else f" ({t.keras})")
                     for _, t in self.typed(where, own) if t.keras]
            rows += row(kind, ", ".join(named))
        return head("Keras'", "names") + rows


KINDS = {"files", "layers", "activations", "losses", "metrics", "callbacks", "optimizers", "keras"}


def expand(catalogue, page):
    """A page's text with the tables of today, and what is wrong with them."""
    text, faults = page.read_text("utf-8"), []
    others = [(kind, folder) for kind, folder, _ in BLOCK.findall(text)]

    def replaced(found):
        kind, folder, _ = found.groups()
        try:
            if kind not in KINDS or not (folder == "all" or catalogue.below(folder)):
                raise ValueError(f"no table: {kind} {folder}")
            made = getattr(catalogue, kind)(folder, others)
        except ValueError as error:
            faults.append(str(error))
            return found[0]
        return f"<!-- table: {kind} {folder} -->\n\n{made}\n<!-- end -->"

    made = BLOCK.sub(replaced, text)
    if len(re.findall(r"^<!-- (?:table|end)\b", text, re.MULTILINE)) != 2 * len(others):
        faults.append("a table's comments are not a pair: '<!-- table: KIND FOLDER -->' and '<!-- end -->'")
    return made, faults


def complaints(root):
    """What `--check` finds, as texts."""
    catalogue = Catalogue(root)
    yield from (f"include/lockstep/{h.path}: no comment '/// \\file' that says what it is" for h in catalogue.headers
                if not h.sentence)
    for page in pages(root):
        where = page.relative_to(root).as_posix()
        text, faults = expand(catalogue, page)
        yield from (f"{where}: {fault}" for fault in faults)
        if text != page.read_text("utf-8"):
            yield f"{where}: its tables differ from the headers; run docs/site/tables.py"


def main(check=False, root=pathlib.Path(__file__).parents[2]):
    root = pathlib.Path(root).resolve()
    if not check:
        catalogue = Catalogue(root)
        for page in pages(root):
            text, _ = expand(catalogue, page)
            if text != page.read_text("utf-8"):
                page.write_text(text, "utf-8")
                print(f"wrote {page.relative_to(root).as_posix()}")
    sys.exit("\n".join(complaints(root)) or None)


if __name__ == "__main__":
    main("--check" in sys.argv, *[a for a in sys.argv[1:] if a != "--check"])
