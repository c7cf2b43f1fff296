"""Fault tests use the golden messages of the wire tests as what honest clients send."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "unit" / "wire"))
