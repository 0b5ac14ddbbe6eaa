"""The site shows some files of the repository's root as pages: CHANGELOG.md becomes changelog.md."""
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {name: name.lower() for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}


def on_files(files, config):
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links between the two places: ../../SECURITY.md in docs/tutorials, docs/index.md in the root. And | in code in a table,
    which forges want as \\| and mkdocs shows as it stands."""
    markdown = re.sub(r"^\|.*", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), markdown,
                      flags=re.MULTILINE)
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, PAGES))})",
                      lambda found: f"]({up}{PAGES[found[1]]}", markdown)
    if page.file.src_uri in PAGES.values():
        markdown = re.sub(rf"\]\(({'|'.join(map(re.escape, PAGES))})", lambda found: f"]({PAGES[found[1]]}", markdown)
        markdown = markdown.replace("](docs/", "](")
    return markdown
