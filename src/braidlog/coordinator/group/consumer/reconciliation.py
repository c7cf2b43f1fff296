"""Leads one member to its target, without a partition ever being with two members.

                      target changes
    Stable ─────────────────────────────────► something to give up? ── yes ──► Unrevoked ─┐
      ▲                                               │ no               ▲                │ the member says
      │                                               ▼                  └── still owns ──┤ what it owns
      └─ everything free ── in the target's epoch: something still with others?           │
                                      ▲               │ yes                               │
                                      │               ▼                                   │
                                      └───────── Unreleased ◄─── all given up ────────────┘

A partition is free once no member has it in `assigned` or `revoking`: its former owner has said that it let go of it,
and that was written down.
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog.coordinator.group.consumer.member import STABLE, UNRELEASED, UNREVOKED, Assignment, Progress
from braidlog.core.protocol_errors import FencedMemberEpochError

# (topic id, partition) -> whether any member has it.
IsTaken = Callable[[bytes, int], bool]


def reconcile(
    progress: Progress, target: Assignment, target_epoch: int, owned: Assignment | None, is_taken: IsTaken
) -> Progress:
    """The next step of a member that says it owns `owned` (None where it did not say)."""
    state = progress.state
    if state == STABLE:
        if progress.epoch == target_epoch:
            return progress
        return _next(progress, progress.epoch, target, target_epoch, owned, is_taken)
    if state == UNREVOKED:
        if _still_owns(owned, progress.revoking):
            return progress
        # What it gave up belongs to the past: it goes on from the next epoch.
        return _next(progress, progress.epoch + 1, target, target_epoch, owned, is_taken)
    if state == UNRELEASED:
        return _next(progress, progress.epoch, target, target_epoch, owned, is_taken)
    if owned is None or owned:
        raise FencedMemberEpochError("the member's state is not known here: give up all partitions and join again")
    return _next(progress, target_epoch, target, target_epoch, owned, is_taken)


def _next(
    progress: Progress,
    epoch: int,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_taken: IsTaken,
) -> Progress:
    kept: dict[bytes, frozenset[int]] = {}
    revoking: dict[bytes, frozenset[int]] = {}
    for topic_id, partitions in progress.assigned.items():
        wanted = target.get(topic_id)
        keep = frozenset() if wanted is None else partitions & wanted
        if keep:
            kept[topic_id] = keep
        if len(keep) < len(partitions):
            revoking[topic_id] = partitions - keep
    if revoking and _still_owns(owned, revoking):
        return Progress(epoch, _previous(progress, epoch), UNREVOKED, kept, revoking)
    assigned, unreleased = _with_free(kept, target, is_taken)
    previous = _previous(progress, target_epoch)
    return Progress(target_epoch, previous, UNRELEASED if unreleased else STABLE, assigned)


def _previous(progress: Progress, epoch: int) -> int:
    """The epoch that the member may still believe in if it misses the answer."""
    return progress.previous_epoch if epoch == progress.epoch else progress.epoch


def _with_free(kept: dict[bytes, frozenset[int]], target: Assignment, is_taken: IsTaken) -> tuple[Assignment, bool]:
    """What is kept and what of the target is free; and whether something of it is not."""
    unreleased = False
    for topic_id, partitions in target.items():
        have = kept.get(topic_id, frozenset())
        if len(have) == len(partitions):
            continue
        free = frozenset(number for number in partitions - have if not is_taken(topic_id, number))
        if len(have) + len(free) < len(partitions):
            unreleased = True
        if free:
            kept[topic_id] = have | free
    return kept, unreleased


def _still_owns(owned: Assignment | None, revoking: Assignment) -> bool:
    if owned is None:
        return True
    for topic_id, partitions in revoking.items():
        mine = owned.get(topic_id)
        if mine is not None and not mine.isdisjoint(partitions):
            return True
    return False
