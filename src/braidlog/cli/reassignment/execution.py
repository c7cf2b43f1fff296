"""Carries moves out: throttles on, moves asked for, watched until they are done, leaders elected, throttles off.

All that has to be remembered is in the cluster: the moves under way, and the throttles in settings. So whoever runs
this again after it was killed goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from braidlog.cli.interrupts import interrupts_wait
from braidlog.cli.output import Progress, remark, remark_failure
from braidlog.cli.reassignment.moves import Move, Verdict, ask_for, read_sizes, still_under_way, verify
from braidlog.cli.reassignment.progress import MoveProgress
from braidlog.cli.reassignment.throttles import involved_brokers, set_throttle, take_off
from braidlog.client.admin.admin import Admin
from braidlog.client.admin.log_dirs import Replica
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import (
    ElectionNotNeededError,
    ProtocolError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition

_EVERY_S: Final = 1.0
# Looks that may fail one after the other, as while the controller changes; each has waited for its timeout.
_MOST_FAILURES: Final = 3
# So long all brokers take at most to hear of a change, however busy they are.
_NEWS_S: Final = 60.0
_NOT_THERE_YET: Final = (ReplicaNotAvailableError, UnknownTopicOrPartitionError)


class Execution:
    def __init__(
        self,
        admin: Admin,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin = admin
        self._progress = progress
        self._clock = clock
        self._sleep = sleep

    def run(
        self,
        moves: Sequence[Move],
        under_way: Sequence[Move],
        rate: int | None,
        alive: Mapping[int, object],
        log_dirs: Mapping[tuple[TopicPartition, int], str],
    ) -> list[Verdict]:
        """Do the moves, beside those under way, at a rate; what became of each."""
        with interrupts_wait():
            if rate is not None:
                set_throttle(self._admin, [*moves, *under_way], rate, alive)
            # Before replicas come, so that they are made where they are to lie.
            placed = self._place(log_dirs)
            refused = ask_for(self._admin, moves)
        for problem in refused.values():
            remark_failure(problem)
        self._warn_of_dead([*moves, *under_way], alive)
        asked = [each for each in moves if each.partition not in refused]
        # One that goes elsewhere now is judged by that.
        redirected = {each.partition for each in asked}
        followed = [*asked, *(each for each in under_way if each.partition not in redirected)]
        self.watch(followed)
        with interrupts_wait():
            verdicts = self._verdicts(followed)
            self._place({each: path for each, path in log_dirs.items() if each not in placed})
            self._elect([each.move for each in verdicts if each.problem is None])
            take_off(self._admin)
        return [*verdicts, *(Verdict(each, "refused") for each in moves if each.partition in refused)]

    def watch(self, moves: Sequence[Move]) -> None:
        """Until none is under way any more."""
        if not moves:
            return
        shown = MoveProgress(moves)
        brokers = involved_brokers(moves)
        failures = 0
        try:
            while True:
                try:
                    under_way = still_under_way(self._admin, moves)
                    if not under_way:
                        break
                    if self._progress.is_watched:
                        sizes = read_sizes(self._admin, brokers, [each.partition for each in moves])
                        shown.look({each.partition for each in under_way}, sizes, self._clock())
                        self._progress.show(shown.text())
                    failures = 0
                except (BraidlogError, ProtocolError) as problem:
                    failures += 1
                    if failures > _MOST_FAILURES:
                        raise
                    self._progress.clear()
                    remark_failure(problem)
                self._sleep(_EVERY_S)
        except (KeyboardInterrupt, BraidlogError, ProtocolError):
            self._progress.clear()
            remark(
                "the moves go on in the cluster, throttled as they are: run the same command again to watch them and "
                "to take the throttles off, or `braidlog reassign cancel`"
            )
            raise
        self._progress.clear()

    def _verdicts(self, moves: Sequence[Move]) -> list[Verdict]:
        """The controller knows first that a move is done: the broker that is asked may be told a little later."""
        deadline = self._clock() + _NEWS_S
        while True:
            verdicts = verify(self._admin, moves)
            if not any(each.is_news for each in verdicts) or self._clock() >= deadline:
                return verdicts
            self._sleep(_EVERY_S)

    def _warn_of_dead(self, moves: Sequence[Move], alive: Mapping[int, object]) -> None:
        dead = sorted({broker for move in moves for broker in move.adding if broker not in alive})
        if dead:
            remark(f"moves to broker {', '.join(map(str, dead))} wait until it is up")

    def _place(self, log_dirs: Mapping[tuple[TopicPartition, int], str]) -> set[tuple[TopicPartition, int]]:
        """Those whose directory a broker knows for good now."""
        if not log_dirs:
            return set()
        targets = {Replica(*partition, broker): path for (partition, broker), path in log_dirs.items()}
        answers = self._admin.alter_replica_log_dirs(targets).outcomes
        for problem in answers.values():
            # A replica that is not there yet: the broker remembers the directory, and says so with one of these.
            if problem is not None and not isinstance(problem, _NOT_THERE_YET):
                remark_failure(problem)
        return {(each.place, each.broker_id) for each, problem in answers.items() if problem is None}

    def _elect(self, moves: Sequence[Move]) -> None:
        """Those that are to lead from now on."""
        if not moves:
            return
        errors = self._admin.elect_leaders([each.partition for each in moves]).errors
        for problem in errors.values():
            if not isinstance(problem, ElectionNotNeededError):
                remark_failure(problem)
