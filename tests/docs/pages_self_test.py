#!/usr/bin/env python3
"""Proves pages.py: a small documentation without a fault passes, and each kind of fault is found."""
import pathlib
import sys
import tempfile

import pages
import tables

GOOD = {
    "mkdocs.yml": "site_name: x\nplugins:\n  - search:\n      separator: '[\\s:()]+|&[lg]t;'\n\nnav:\n  - Start: index.md\n  - House:\n      - house/core.md\n  - T: tutorials/multi_worker.md\n  - E: environment.md\n"
                  "  - A: changelog.md\n  - B: contributing.md\n  - C: security.md\n",
    "CHANGELOG.md": "", "CONTRIBUTING.md": "[docs](docs/index.md)", "SECURITY.md": "",
    "README.md": "```cpp\n#include <x>\nint main() {}\n```\n[pages](docs/index.md)\n",
    "docs/index.md": "# Start\n\n## Two `words`, here\n[core](house/core.md#what-it-is) [up](#two-words-here) "
                     "[s](../SECURITY.md) [w](https://example.org)\n<!-- snippet: examples/01_quickstart.cpp:2: -->\n```cpp\n#include <x>  // x\n\nint main() {}\n```\n"
                     "`ls::Shape`\n```text\n[a](b.md)\n" + "".join(f"a::b<a::{word}(1)>\n" for word in pages.SEARCHED) +
                     "```\n| `Lstm` | **missing** |\n| `Norm<>`: **no kernel yet** |\nNo GPU.\n",
    "docs/house/core.md": "## What it is\n`shape.hpp` `more/rng.hpp` `core/shape.hpp`\n<!-- table: files core -->\n\n| `core/*.hpp` | what is in it |\n"
                          "|---|---|\n| `shape` | Shapes |\n| `more/` | `rng` |\n\n<!-- end -->\n<!-- snippet: tests/docs/house.cpp:core -->\n```cpp\nint i;\n```\n",
    "include/lockstep/core/shape.hpp": "/// \\file\n/// Shapes. Invariant: few.\nstruct Shape {};  // not Size",
    "include/lockstep/core/more/rng.hpp": "/// \\file\n/// Numbers.\n",
    "docs/environment.md": "| `LOCKSTEP_PORT` | none | a port |\n",
    "include/lockstep/core/port.ipp": 'variable("LOCKSTEP_PORT");',
    "dev": "build_packages=(g++ cmake\n                liba-dev)\nother=(b)\n",
    "packaging/deployment/Dockerfile": "FROM debian:12 AS build\nRUN apt-get install -y --no-install-recommends \\\n"
                                       "    g++ cmake \\\n    liba-dev\nCOPY . /a\n",
    "docs/tutorials/multi_worker.md": "# Image\n<!-- snippet: packaging/deployment/Dockerfile -->\n```dockerfile\nFROM debian:12 AS build\n"
                                      "RUN apt-get install -y --no-install-recommends \\\n    g++ cmake \\\n    liba-dev\nCOPY . /a\n```\n",
    "examples/01_quickstart.cpp": "// clang-format off\n#include <x>  // x\n\nint main() {}\n",
    "tests/docs/house.cpp": "{\n  // --8<-- [start:core]\n  int i;\n  // --8<-- [end:core]\n}\n",
}
FAULTS = {  # what is found: (check, file, its text before, and after; no text before: the whole file; None: no file)
    "nav has none.md, which is not a page": (pages.nav, "mkdocs.yml", "index.md", "none.md"),
    "nav leaves out house/core.md": (pages.nav, "mkdocs.yml", "      - house/core.md\n", ""),
    "nav has index.md twice": (pages.nav, "mkdocs.yml", "  - House", "  - Again: index.md\n  - House"),
    "environment.md leaves out LOCKSTEP_PORT": (pages.environment, "docs/environment.md", "LOCKSTEP_PORT", "LOCKSTEP_RANK"),
    "environment.md has LOCKSTEP_PORT, which": (pages.environment, "include/lockstep/core/port.ipp", "LOCKSTEP_PORT", "LOCKSTEP_RANK"),
    "the link none.md leads nowhere": (pages.links, "docs/index.md", "house/core.md#what-it-is", "none.md"),
    "the link docs/none.md leads nowhere": (pages.links, "README.md", "docs/index.md", "docs/none.md"),
    "core.md has no heading #what": (pages.links, "docs/index.md", "#what-it-is", "#what"),
    "index.md has no heading #two": (pages.links, "docs/index.md", "#two-words-here", "#two"),
    "../README.md is not part of the site": (pages.links, "docs/index.md", "../SECURITY.md", "../README.md"),
    "there is no examples/other.cpp": (pages.snippets, "docs/index.md", "01_quickstart.cpp", "other.cpp"),
    "examples/01_quickstart.cpp has no line 9": (pages.snippets, "docs/index.md", ":2:", ":9:"),
    "tests/docs/house.cpp has no section other": (pages.snippets, "docs/house/core.md", ":core", ":other"),
    "tests/docs/house.cpp has no section core": (pages.snippets, "tests/docs/house.cpp", "[end:core]", "[end:all]"),
    "no page shows the section core": (pages.snippets, "docs/house/core.md", None, ""),
    "no snippet: <!-- snippet: examples": (pages.snippets, "docs/index.md", "```cpp", "\n```cpp"),
    "no snippet: <!-- snippet: x y": (pages.snippets, "docs/index.md", "snippet: examples/01_quickstart.cpp:2:", "snippet: x y"),
    'no snippet: --8<-- "a.cpp"': (pages.snippets, "docs/index.md", "Two `words`, here\n", 'Two\n--8<-- "a.cpp"\n'),
    "index.md: its code differs": (pages.snippets, "examples/01_quickstart.cpp", "int main", "void main"),
    "core.md: its code differs": (pages.snippets, "docs/house/core.md", "int i;", "  int i;"),
    "core/ has no page docs/house/core.md": (pages.house, "docs/house/core.md", None, None),
    "docs/house/data.md is about a folder that is not there": (pages.house, "docs/house/data.md", None, ""),
    "core.md has no table of its headers": (pages.house, "docs/house/core.md", "table: files core", "table: files core/more"),
    "names old.hpp, which is not in core/": (pages.house, "docs/house/core.md", "`more/rng.hpp`", "`old.hpp`"),
    "core.md: its tables differ": (pages.tables, "include/lockstep/core/shape.hpp", "Shapes.", "Extents."),
    "core.md: its tables": (pages.tables, "include/lockstep/core/size.hpp", None, "/// \\file\n/// Sizes.\n"),
    "core.md: no table: files cores": (pages.tables, "docs/house/core.md", "files core", "files cores"),
    "core.md: no table: rows core": (pages.tables, "docs/house/core.md", "files core", "rows core"),
    "core.md: a table's comments are not a pair": (pages.tables, "docs/house/core.md", "<!-- end -->", "<!-- ends -->"),
    "shape.hpp: no comment '/// \\file'": (pages.tables, "include/lockstep/core/shape.hpp", "/// \\file", "//"),
    "ls::Size is in no header": (pages.names, "docs/index.md", "ls::Shape", "ls::Size"),
    "Lstm is called missing": (pages.absent, "include/lockstep/core/shape.hpp", "// not", "struct Lstm {}; //"),
    "Norm has no kernel according to the page": (pages.absent, "include/lockstep/core/shape.hpp", "// not", "struct Kernel<NormOp, D>; //"),
    "there is no GPU": (pages.absent, "include/lockstep/devices/cuda/a.hpp", None, ""),
    "leaves out Huber": (pages.kernels, "include/lockstep/losses/huber.hpp", None,
                         "struct Huber {\n  int i;\n  Rule op(Shape out) const;\n};\n"),
    "leaves out Lion": (pages.kernels, "include/lockstep/optimizers/lion.hpp", None, "struct LionOp {\n};\n"),
    "its image does not install": (pages.image, "dev", "liba-dev", "libb-dev"),
    "its image does not": (pages.image, "packaging/deployment/Dockerfile", "cmake ", ""),
    "job.yaml: no page shows it": (pages.snippets, "packaging/deployment/job.yaml", None, ""),
    "the search has no separator": (pages.search, "mkdocs.yml", "      separator", "      lang"),
    "no example has 'factor' as a word": (pages.search, "mkdocs.yml", "[\\s:()]", "[\\s()]"),
    "no example has 'LossIo' as a word": (pages.search, "docs/index.md", "a::LossIo(1)", "LossIo_"),
    "its program is not that of": (pages.readme, "README.md", "int main", "void main"),
}


HEADERS = {  # their tables are below
    "layers/dense.hpp": """/// \\file
/// Fully connected layer.
#pragma once
/// y[.., u] = bias[u] + x[.., i] * kernel[i, u]. dx = dy w'.
struct DenseOp {
};
namespace detail {
/// Hidden.
struct CheckDense { static constexpr std::string_view name = "x"; };
}  // namespace detail
/// Keras' Dense. Input (.., i), output (.., Units); parameters `kernel`
/// (i, Units) and `bias` (Units). Options: an activation.
/// \\code
///   Dense<64>
/// \\endcode
template <int Units, Pool P = 2, auto... Options>
struct Dense {
  static constexpr std::string_view name = "dense";
};
""",
    "layers/cutout.hpp": """/// \\file
/// Squares | masks.
#pragma once
/// Shape unchanged. Masks squares < n.
struct Cutout {
  static constexpr std::string_view name = "cutout";
};
""",
    "layers/options.hpp": "/// \\file\n/// Options: a long list of what can be passed to a layer, and of how it is passed.\n/// More.\n",
    "layers/more/window.hpp": "/// \\file\n/// Windows.\n",
    "layers/join.hpp": "/// \\file\n/// `join` joins layers.\n",
    "devices/a/dense.hpp": "/// \\file\n/// Dense on the CPU.\n",
    "devices/a/loss.hpp": "/// \\file\n/// Losses of a batch (T. Mean et al. 2001) on the CPU. Slow.\n",
    "odd/odd.hpp": """/// \\file
/// Odd.
#pragma once
/// Has no shapes.
struct Odd {
  static constexpr std::string_view name = "odd";
};
""",
    "losses/huber.hpp": """/// \\file
/// Huber.
#pragma once
/// Keras' Huber (Huber, 1964): the mean over all elements of an example of e^2. Targets are 0 and 1, as numbers.
struct Huber {
  static constexpr std::string_view name = "huber";
  double delta = 1, other = 2;
  std::optional<double> third{};

  double result() const {
    double local = 1;
  }
};
""",
    "optimizers/sgd.hpp": """/// \\file
/// Descent.
#pragma once
/// Keras' SGD. g is the gradient.
///
///     v = m v
///          - g              with momentum
///     w += v
///
/// More.
struct SGD {
  static constexpr std::string_view name = "sgd";
  Schedule learning_rate = 0.01;
  double momentum = 0;
};
""",
}
TABLES = {
    ("layers", "layers"): ["| `Cutout` | unchanged | Masks squares &lt; n; not in Keras |",
                           "| `Dense<Units, P = 2, ...>` | (.., i) → (.., Units) | y[.., u] = bias[u] + x[.., i] * kernel[i, u]; "
                           "parameters `kernel` (i, Units) and `bias` (Units) |"],
    ("files", "layers"): ["| `join` | joins layers |", "| `options` | Options: a long list of what can be passed to a layer, and of how it is passed |",
                          "| `more/` | `window` |"],
    ("files", "devices/a"): ["| `loss` | Losses of a batch (T. Mean et al. 2001) |",
                             "| `dense` | kernels of the layers and optimizers of these names |"],
    ("losses", "losses"): ["| `Huber{.delta, .other, .third}` | the mean of e^2 | 0 and 1 |"],
    ("optimizers", "optimizers"): ["| `SGD` | `.momentum` | g is the gradient. v = m v - g (with momentum); w += v |"],
}


def complaints(checks, changes):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in {**GOOD, **changes}.items():
            if text is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
        return [c for check in checks for c in check(root)]


failures = [f"refused: {c}" for c in complaints([c for c in pages.CHECKS if c is not pages.pictures], {})]
for expected, (check, name, before, after) in FAULTS.items():
    changed = after if before is None else GOOD[name].replace(before, after)
    found = complaints([check], {name: changed})
    if changed == GOOD.get(name) or not any(expected in c for c in found):
        failures.append(f"'{expected}' expected, not {found}")
with tempfile.TemporaryDirectory() as folder:
    for name, text in HEADERS.items():
        path = pathlib.Path(folder) / "include" / "lockstep" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    catalogue = tables.Catalogue(pathlib.Path(folder))
    for (kind, where), expected in TABLES.items():
        found = getattr(catalogue, kind)(where, list(TABLES)).splitlines()[2:]
        if found != expected:
            failures.append(f"the table {kind} of {where} is {found}")
    try:
        failures.append(f"a layer without shapes is accepted: {catalogue.layers('odd', [])}")
    except ValueError as error:
        if "odd/odd.hpp: the comment of Odd" not in str(error):
            failures.append(str(error))
sys.exit("\n".join(failures) or None)
