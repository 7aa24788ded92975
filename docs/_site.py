"""A hook of MkDocs: pages and files of the repository outside docs/ are part of the site, and links to them lead there.

In the repository `docs/running.md` links to `../benchmarks/RESULTS.md`; in the site docs/ is the root, so the same page
links to `benchmarks/RESULTS.md`. The README is the site's first page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", *sorted(ROOT.glob("benchmarks/**/*.md"))]
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and every file that some page links to, which the navigation need not list."""
    outside = [posixpath.normpath(Path(ROOT, page).relative_to(ROOT).as_posix()) for page in PAGES]
    inside = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    linked = [target for page in (*outside, *inside) for target in _targets(page, (ROOT / page).read_text())]
    for path in dict.fromkeys([*outside, *linked]):
        if not path.startswith("docs/") and (ROOT / path).is_file():
            level = InclusionLevel.UNDEFINED if path in outside else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, _uri(path), abs_src_path=str(ROOT / path), inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links at the places that the files have in the site."""
    here = _path(page.file.src_uri)
    return LINK.sub(lambda link: _relative(here, _target(here, link[1])), markdown)


def _targets(page: str, text: str) -> list[str]:
    return [_target(page, link) for link in LINK.findall(text)]


def _target(page: str, link: str) -> str:
    """The path in the repository that a link on `page` (a path in the repository, too) leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _relative(page: str, target: str) -> str:
    return posixpath.relpath(_uri(target), posixpath.dirname(_uri(page)) or ".")


def _uri(path: str) -> str:
    """The place in the site of a path in the repository."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def _path(uri: str) -> str:
    """The path in the repository of a place in the site."""
    if uri == "index.md":
        return "README.md"
    return f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri
