"""Every target by its name."""

from __future__ import annotations

from tools.fuzz import login_targets, record_targets, text_targets, wire_targets
from tools.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (wire_targets, record_targets, login_targets, text_targets)
    for target in module.TARGETS
}
