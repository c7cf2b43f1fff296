"""`braidlog pipeline init`: a project of Spark Declarative Pipelines that runs as it is."""

from __future__ import annotations

import argparse
import os
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from braidlog.cli.options import DEFAULT_BOOTSTRAP
from braidlog.cli.output import report
from braidlog.core.errors import UserError

_LOG_SETTINGS: Final = "log4j2.properties"
# Files that would be taken for something else where they are kept.
_NAMES: Final = {"gitignore": ".gitignore", "orders.py.in": "orders.py"}
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def run(options: argparse.Namespace) -> int:
    home = Path(options.directory).resolve()
    if not _TOPIC.fullmatch(options.topic):
        raise UserError(f"{options.topic!r} is no name for a topic: letters, digits, dot, dash and underscore")
    if any(sign in str(home) for sign in "\n;\"'@"):
        raise UserError(f"{home}: Spark's settings cannot hold this path; choose another")
    bootstrap = os.environ.get("BRAIDLOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    words = {
        "NAME": re.sub(r"[^A-Za-z0-9_-]", "-", home.name) or "pipeline",
        "HOME": str(home),
        "HOME_URI": home.as_uri(),
        "TOPIC": options.topic,
        "TABLE": "t_" * options.topic[0].isdigit() + re.sub(r"[^a-z0-9_]", "_", options.topic.lower()),
        "BOOTSTRAP": bootstrap,
    }
    contents = project_files(words)
    taken = [name for name in contents if (home / name).exists()]
    if taken:
        raise UserError(f"{home / taken[0]} is there already, and nothing is overwritten: choose another directory")
    for name, text in contents.items():
        place = home / name
        place.parent.mkdir(parents=True, exist_ok=True)
        # Also where the file was made since.
        with open(place, "x", encoding="utf-8") as file:
            file.write(text)
    (home / "state").mkdir(exist_ok=True)
    shown = options.directory.rstrip("/") or "/"
    report(
        f"{shown} is ready; `braidlog pipeline run {shown}` runs it, and {shown}/README.md says more",
        {"directory": str(home), "files": list(contents)},
        options.output,
    )
    return 0


def project_files(words: dict[str, str]) -> dict[str, str]:
    """What a project is made of, by name."""
    templates = files("pyspark_braidlog.templates")
    found = dict(_texts(templates / "project", ""))
    for word, value in words.items():
        found = {name: text.replace(f"@{word}@", value) for name, text in found.items()}
    found[f"conf/{_LOG_SETTINGS}"] = (templates / _LOG_SETTINGS).read_text(encoding="utf-8")
    return dict(sorted(found.items()))


def _texts(folder: Traversable, under: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for each in folder.iterdir():
        name = f"{under}{_NAMES.get(each.name, each.name)}"
        if each.is_dir():
            found += _texts(each, f"{name}/") if each.name != "__pycache__" else []
        else:
            found.append((name, each.read_text(encoding="utf-8")))
    return found
