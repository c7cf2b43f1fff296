"""The version of braidlog, for whatever is below the package's front page."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
