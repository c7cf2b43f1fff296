"""A hook of mkdocs (mkdocs.yml): pages from outside docs/, and links that leave it.

README, CONTRIBUTING, CHANGELOG and deploy/README become pages of the site. A link to one of them is turned to that
page, a link to a directory of docs/ to its first page, and a link to any other file of the repository, which the site
does not have, to plain text. In the navigation a name with a directory stands for all of its pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

# The page of the site for each document of the repository that is not in docs/.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "deploy/README.md": "deploy.md",
}
FIRST_PAGES = {"docs": "index.md", "docs/client": "client/producer.md", "docs/spark": "spark/examples.md"}

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"^(?:[a-z]+:|#)")


def site_links(text: str, source: str) -> str:
    """The Markdown of a document (its path in the repository), with links as its page of the site needs them."""
    here = posixpath.dirname(page_of(source) or "")

    def rewritten(link: re.Match[str]) -> str:
        mark, label, target = link.groups()
        if _ELSEWHERE.match(target):
            return link[0]
        path, hash_mark, anchor = target.partition("#")
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = page_of(aim)
        if page is None:
            return str(label)
        return f"{mark}[{label}]({posixpath.relpath(page, here or '.')}{hash_mark}{anchor})"

    parts: list[str] = []
    position = 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(rewritten, text[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, _LINK.sub(rewritten, text[position:])])


def page_of(source: str) -> str | None:
    """Where a file of the repository is on the site, None if it is not there."""
    if source in OUTSIDE:
        return OUTSIDE[source]
    if source in FIRST_PAGES:
        return FIRST_PAGES[source]
    return source.removeprefix("docs/") if source.startswith("docs/") else None


def with_directories(navigation: Any, docs: Path) -> Any:
    """The navigation with each directory replaced by its pages, in the order of their names."""
    if isinstance(navigation, list):
        return [with_directories(each, docs) for each in navigation]
    if isinstance(navigation, dict):
        return {name: with_directories(each, docs) for name, each in navigation.items()}
    if (docs / navigation).is_dir():
        return [path.relative_to(docs).as_posix() for path in sorted((docs / navigation).glob("*.md"))]
    return navigation


def on_config(config: Any) -> Any:
    config.nav = with_directories(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=site_links(text, source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    is_ours = page.file.src_uri in OUTSIDE.values()
    return markdown if is_ours else site_links(markdown, f"docs/{page.file.src_uri}")
