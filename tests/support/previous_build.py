"""The sources of an earlier commit, to be run beside these: for upgrades, and the way back."""

from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
# A checkout of another version to come from; without it, the commit before this one.
VARIABLE: Final = "BRAIDLOG_UPGRADE_FROM"
# What the earlier sources call themselves here, so that a broker shows which ones it runs.
VERSION: Final = "0.0.1-previous"


def previous_source(directory: Path) -> Path:
    """Copied to the directory; what `PYTHONPATH` has to name. Skips the test where there is no earlier commit."""
    given = os.environ.get(VARIABLE)
    if given:
        subprocess.run(["cp", "-r", str(Path(given) / "src"), str(directory)], check=True)
    else:
        made = subprocess.run(["git", "archive", "HEAD~1", "src"], cwd=ROOT, capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"no earlier commit to upgrade from, and no {VARIABLE}: {made.stderr.decode().strip()}")
        with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
            archive.extractall(directory, filter="data")
    sources = directory / "src"
    for name, line in (("core/version.py", "VERSION: Final = "), ("__init__.py", "__version__ = ")):
        module = sources / "braidlog" / name
        text = module.read_text() if module.exists() else ""
        before = next((each for each in text.splitlines() if each.startswith(line)), None)
        if before is not None:
            module.write_text(text.replace(before, f'{line}"{VERSION}"'))
            return sources
    raise AssertionError("the earlier sources do not say which version they are")
