"""What the clients of coordinators were told, and what must hold of it."""

from __future__ import annotations

from collections.abc import Sequence

from support.simulation.history import PartitionTarget
from support.simulation.invariants import check


class GroupHistory:
    """Who owned what, and what was committed."""

    def __init__(self) -> None:
        self.generations = 0
        self.commits = 0
        self._owners: dict[tuple[str, int, int], str] = {}
        self._told: dict[tuple[str, int, str], tuple[int, ...]] = {}
        self._sent: dict[tuple[str, int], int] = {}
        self._acknowledged: dict[tuple[str, int], int] = {}

    def owned(self, group: str, generation: int, member: str, partitions: Sequence[int]) -> None:
        """One owner a partition and generation, and every member is told the same each time."""
        before = self._told.setdefault((group, generation, member), tuple(partitions))
        check(
            before == tuple(partitions),
            f"{member} was given {before}, then {partitions} in generation {generation} of {group}",
        )
        self.generations += 1
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), member)
            check(owner == member, f"{group}-{partition}: {owner} and {member} own it in generation {generation}")

    def committing(self, group: str, partition: int, offset: int) -> None:
        key = (group, partition)
        self._sent[key] = max(offset, self._sent.get(key, -1))

    def committed(self, group: str, partition: int, offset: int) -> None:
        self.commits += 1
        key = (group, partition)
        self._acknowledged[key] = max(offset, self._acknowledged.get(key, -1))

    def promised(self, group: str, partition: int) -> int:
        return self._acknowledged.get((group, partition), -1)

    def fetched(self, group: str, partition: int, offset: int, promised: int) -> None:
        """A committed offset never goes back, and nobody made one up."""
        check(offset >= promised, f"{group}-{partition}: {promised} was committed, {offset} is what is left")
        sent = self._sent.get((group, partition), -1)
        check(offset <= sent, f"{group}-{partition}: {offset} is committed, nobody sent more than {sent}")


class Transaction:
    def __init__(self) -> None:
        self.records: list[tuple[PartitionTarget, str]] = []
        self.acknowledged = 0
        self.offset: tuple[str, int] | None = None
        # None: its end was not asked for.
        self.asked_to_commit: bool | None = None
        self.ended = False

    @property
    def must_be_visible(self) -> bool:
        return self.ended and self.asked_to_commit is True

    @property
    def may_be_visible(self) -> bool:
        return self.asked_to_commit is True


class TransactionHistory:
    """What transactional producers did and were answered; `check_visible` is the judge."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._counts: dict[str, int] = {}

    def began(self, transaction: str) -> None:
        self.transactions[transaction] = Transaction()

    def begin(self, transactional_id: str) -> str:
        """The name of the next transaction of a producer."""
        self._counts[transactional_id] = self._counts.get(transactional_id, 0) + 1
        name = f"{transactional_id}/{self._counts[transactional_id]}"
        self.began(name)
        return name

    def current(self, transactional_id: str) -> str | None:
        """The last one that its producer began."""
        count = self._counts.get(transactional_id)
        return None if count is None else f"{transactional_id}/{count}"

    def wrote(self, transaction: str, target: PartitionTarget, names: Sequence[str]) -> None:
        self.transactions[transaction].records += [(target, name) for name in names]

    def acknowledged(self, transaction: str, target: PartitionTarget, names: Sequence[str]) -> None:
        self.transactions[transaction].acknowledged += len(names)

    def offset_sent(self, transaction: str, group: str, offset: int) -> None:
        self.transactions[transaction].offset = (group, offset)

    def ending(self, transaction: str, commits: bool) -> None:
        known = self.transactions[transaction]
        # A commit that was asked for may have happened, whatever was asked later.
        known.asked_to_commit = commits or known.asked_to_commit is True

    def ended(self, transaction: str, commits: bool) -> None:
        self.transactions[transaction].ended = True

    @property
    def committed(self) -> int:
        return sum(transaction.must_be_visible for transaction in self.transactions.values())

    def check_visible(self, visible: dict[PartitionTarget, list[str]], offsets: dict[str, int]) -> None:
        """All or nothing, once, in order, and with its offsets; what is aborted or unfinished is nowhere."""
        seen: dict[str, list[tuple[PartitionTarget, str]]] = {}
        for target, names in visible.items():
            check(len(set(names)) == len(names), f"{target}: a record is there twice: {names}")
            for name in names:
                seen.setdefault(name.rsplit("/", 1)[0], []).append((target, name))
        for name in seen:
            check(name in self.transactions, f"nobody began the transaction {name}")
        latest: dict[str, list[int]] = {}
        for name, transaction in self.transactions.items():
            found = seen.get(name, [])
            self._check_one(name, transaction, found)
            if transaction.offset is not None:
                group, offset = transaction.offset
                choices = latest.setdefault(group, [-1])
                if found:
                    choices[:] = [offset]
        for group, choices in latest.items():
            reported = offsets.get(group, -1)
            check(reported in choices, f"{group}: committed is {reported}, its transactions say {choices}")

    def _check_one(self, name: str, transaction: Transaction, found: list[tuple[PartitionTarget, str]]) -> None:
        if found:
            check(transaction.may_be_visible, f"{name} was not committed, but {found} can be read")
            missing = [record for record in transaction.records if record not in found]
            check(not missing, f"{name} is torn: {missing} cannot be read, {found} can")
            for target in dict.fromkeys(target for target, _ in found):
                written = [written for at, written in transaction.records if at == target]
                read = [read for at, read in found if at == target]
                check(read == written, f"{name}: written {written}, read {read}")
        else:
            check(not transaction.must_be_visible, f"{name} was committed and cannot be read")
