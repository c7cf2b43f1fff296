"""The states of a transactional id, and which may follow which."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The numbers are those in the log; the names are those that clients are told."""

    # A producer has its id and epoch, and no transaction yet.
    Empty = 0
    # Partitions were added. Ends by EndTxn, by its timeout, or because a newer producer came.
    Ongoing = 1
    # Decided and written down, from here on nothing can change the outcome. Who asks for anything else is told
    # CONCURRENT_TRANSACTIONS until every partition has its marker.
    PrepareCommit = 2
    PrepareAbort = 3
    # Every partition has its marker.
    CompleteCommit = 4
    CompleteAbort = 5
    # Being forgotten. Never written: a tombstone says it.
    Dead = 6
    # On the way from Ongoing to PrepareAbort with a newer epoch. Never written: here both are one step.
    PrepareEpochFence = 7


_E, _O = TransactionState.Empty, TransactionState.Ongoing
_PC, _PA = TransactionState.PrepareCommit, TransactionState.PrepareAbort
_CC, _CA = TransactionState.CompleteCommit, TransactionState.CompleteAbort
_D, _F = TransactionState.Dead, TransactionState.PrepareEpochFence

# An abort without any partition, straight from Empty or a Complete state, is what KIP-890 allows.
TRANSITIONS: Final[dict[TransactionState, tuple[TransactionState, ...]]] = {
    _E: (_E, _O, _PA, _D),
    _O: (_O, _PC, _PA, _F),
    _PC: (_CC,),
    _PA: (_CA,),
    _CC: (_E, _O, _PA, _D),
    _CA: (_E, _O, _PA, _D),
    _F: (_PA,),
    _D: (),
}

# Decided, and waiting for markers.
PREPARED: Final = (_PC, _PA)
# Without a transaction: a new one may begin, and an id that stays so is forgotten in the end.
IDLE: Final = (_E, _CC, _CA)

BY_NAME: Final[dict[str, TransactionState]] = {state.name: state for state in TransactionState}


class IllegalTransactionTransitionError(AssertionError):
    """A bug of ours: the rules let something through that the table forbids."""


def check_transition(transactional_id: str, before: TransactionState, after: TransactionState) -> None:
    if after not in TRANSITIONS[before]:
        raise IllegalTransactionTransitionError(f"{transactional_id}: {after.name} cannot follow {before.name}")
