"""The table of states: every path keeps to it, and the error for every misuse says what to do."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.errors import TransactionStateError
from braidlog.client.producer.transactions.states import ABORT, ALLOWED, COMMIT, INIT, TRANSITIONS, State, StateMachine

PATHS = {
    State.UNINITIALIZED: [],
    State.INITIALIZING: [State.INITIALIZING],
    State.READY: [State.INITIALIZING, State.READY],
    State.IN_TRANSACTION: [State.INITIALIZING, State.READY, State.IN_TRANSACTION],
    State.COMMITTING: [State.INITIALIZING, State.READY, State.IN_TRANSACTION, State.COMMITTING],
    State.ABORTING: [State.INITIALIZING, State.READY, State.IN_TRANSACTION, State.ABORTING],
    State.ABORTABLE_ERROR: [State.INITIALIZING, State.READY, State.IN_TRANSACTION, State.ABORTABLE_ERROR],
    State.FATAL_ERROR: [State.FATAL_ERROR],
}
# What a message has to name where the call is wrong.
ADVICE = {
    State.UNINITIALIZED: r"call init_transactions\(\) first",
    State.INITIALIZING: r"wait until init_transactions\(\) has returned",
    State.READY: r"begin_transaction\(\)",
    State.IN_TRANSACTION: r"end it with commit_transaction\(\) or abort_transaction\(\)",
    State.COMMITTING: r"if commit_transaction\(\) timed out, call it again",
    State.ABORTING: r"if abort_transaction\(\) timed out, call it again",
    State.ABORTABLE_ERROR: r"call abort_transaction\(\), then begin another",
    State.FATAL_ERROR: "close it and make a new one",
}


def table_in(state: State) -> StateMachine:
    table = StateMachine("tid")
    for step in PATHS[state]:
        table.move(step)
    assert table.now is state
    return table


@given(st.lists(st.sampled_from(State), max_size=30))
def test_only_the_tables_moves_are_made(steps: list[State]) -> None:
    table = StateMachine("tid")
    for target in steps:
        before = table.now
        if target in TRANSITIONS[before]:
            table.move(target)
            assert table.now is target
        else:
            with pytest.raises(TransactionStateError, match=f"tid: no way from {before.name} to {target.name}"):
                table.move(target)
            assert table.now is before


def test_an_illegal_transition_names_the_history() -> None:
    table = table_in(State.COMMITTING)
    with pytest.raises(TransactionStateError, match="READY → IN_TRANSACTION → COMMITTING"):
        table.move(State.IN_TRANSACTION)


@pytest.mark.parametrize(("call", "state"), list(itertools.product(ALLOWED, State)))
def test_a_call_in_the_wrong_state_says_what_to_do(call: str, state: State) -> None:
    table = table_in(state)
    if state in ALLOWED[call]:
        table.check(call)
    else:
        with pytest.raises(TransactionStateError, match=ADVICE[state]) as refused:
            table.check(call)
        assert f"{call}() is not possible now" in str(refused.value)


def test_calls_are_allowed_where_kafka_allows_them() -> None:
    assert ALLOWED[INIT] == {State.UNINITIALIZED}
    assert ALLOWED[COMMIT] == {State.IN_TRANSACTION}
    assert ALLOWED[ABORT] == {State.IN_TRANSACTION, State.ABORTABLE_ERROR}
    assert TRANSITIONS[State.FATAL_ERROR] == frozenset()


def test_a_move_from_elsewhere_is_not_made() -> None:
    table = table_in(State.READY)
    assert not table.move_from(frozenset({State.IN_TRANSACTION}), State.ABORTABLE_ERROR)
    assert table.now is State.READY
    table.move(State.IN_TRANSACTION)
    assert table.move_from(frozenset({State.IN_TRANSACTION}), State.ABORTABLE_ERROR)
    assert table.now is State.ABORTABLE_ERROR
