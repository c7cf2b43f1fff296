"""Checks the links of the documents: `python -m tools.links`, part of `make check`.

Every relative link must lead to a file or directory of the tree, every `#anchor` to a heading of its page. Links to
other sites are not followed. A broken link is reported as `file:line`, and the exit code is 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "deploy/README.md", "docs/**/*.md")

FENCE = re.compile(r"^\s*(```|~~~)")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
# [text](target), ![text](target "title"), and the target of <img src="…"> or <a href="…">.
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|(?:src|href|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
EXPLICIT_ID = re.compile(r"\s*\{[^}]*#([\w-]+)[^}]*\}$|<a (?:id|name)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class BrokenLink(NamedTuple):
    page: Path
    line: int
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.target}: {self.reason}"


def text_lines(page: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page, without its code blocks."""
    fence = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1] == fence:
            fence = ""
        elif not fence:
            yield number, line


def anchor_of(heading: str) -> str:
    """The id that GitHub gives a heading: lower case, no punctuation, dashes for spaces."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = re.sub(r"[^\w\- ]", "", plain.lower())
    return kept.replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    found: set[str] = set()
    for _, line in text_lines(page):
        for explicit in EXPLICIT_ID.finditer(line):
            found.add(explicit[1] or explicit[2])
        heading = HEADING.match(line)
        if heading is None:
            continue
        base = anchor_of(EXPLICIT_ID.sub("", heading[2]))
        anchor, copies = base, 0
        while anchor in found:
            copies += 1
            anchor = f"{base}-{copies}"
        found.add(anchor)
    return found


def targets_of(page: Path) -> Iterator[tuple[int, str]]:
    for number, line in text_lines(page):
        # What is inside `code` is not a link, but `[code](link)` is one: blank the code and keep the length.
        visible = CODE.sub(lambda code: "x" * len(code[0]), line)
        for found in LINK.finditer(visible):
            yield number, found[1] or found[2]


def broken_links(root: Path = ROOT, pages: tuple[str, ...] = PAGES) -> list[BrokenLink]:
    broken = []
    for page in sorted({path for pattern in pages for path in root.glob(pattern)}):
        shown = page.relative_to(root)
        for line, target in targets_of(page):
            if ELSEWHERE.match(target):
                continue
            path, _, anchor = target.partition("#")
            aim = (page.parent / unquote(path)).resolve() if path else page
            if not aim.is_relative_to(root.resolve()) or not aim.exists():
                broken.append(BrokenLink(shown, line, target, "no such file"))
            elif anchor and aim.suffix == ".md" and anchor not in anchors_of(aim):
                broken.append(BrokenLink(shown, line, target, f"no heading of {path or 'this page'} has that anchor"))
    return broken


def main() -> int:
    broken = broken_links()
    for link in broken:
        print(link, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
