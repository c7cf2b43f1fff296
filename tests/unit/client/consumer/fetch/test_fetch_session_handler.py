"""The client's half of fetch sessions against a broker that keeps them by the book."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.consumer.fetch.fetch_session_handler import (
    FINAL,
    FULL,
    FetchRequestData,
    FetchSessionHandler,
    RequestedPartition,
)
from braidlog.core.protocol_errors import (
    NONE,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from braidlog.core.types import TopicPartition

ID = b"i" * 16
OTHER_ID = b"o" * 16


def asked(offset: int = 0, topic_id: bytes = ID) -> RequestedPartition:
    return RequestedPartition(topic_id, offset, 0, 1 << 20)


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


class BookBroker:
    """Keeps at most one session, as KIP-227 says; `what` is everything that it would read for the last request."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.kept: dict[TopicPartition, RequestedPartition] = {}
        self.what: dict[TopicPartition, RequestedPartition] = {}
        self.last_id = 0

    def serve(self, plan: FetchRequestData, *, keeps: bool) -> tuple[int, int]:
        if plan.epoch in (FULL, FINAL):
            assert not plan.forgotten
            if plan.session_id == self.session_id:
                self.session_id = 0
            self.what = dict(plan.asked)
            if plan.epoch == FINAL or not keeps:
                return NONE, 0
            self.last_id += 1
            self.session_id, self.epoch, self.kept = self.last_id, 1, dict(plan.asked)
            return NONE, self.session_id
        if plan.session_id != self.session_id:
            return FetchSessionIdNotFoundError.code, 0
        if plan.epoch != self.epoch:
            return InvalidFetchSessionEpochError.code, self.session_id
        for each, topic_id in plan.forgotten.items():
            assert self.kept[each].topic_id == topic_id, "only what the session has can be forgotten"
            del self.kept[each]
        self.kept.update(plan.asked)
        self.epoch += 1
        self.what = dict(self.kept)
        return NONE, self.session_id


wishes = st.dictionaries(
    st.builds(partition, st.integers(0, 4)),
    st.builds(asked, st.integers(0, 3), st.sampled_from([ID, OTHER_ID])),
    max_size=5,
)
events = st.sampled_from(["fetch", "fetch", "fetch", "lost answer", "lost request", "broker forgets", "broker is full"])


@given(st.lists(st.tuples(events, wishes), max_size=20))
def test_the_broker_always_reads_exactly_what_is_wanted(
    steps: list[tuple[str, dict[TopicPartition, RequestedPartition]]],
) -> None:
    session, broker = FetchSessionHandler(), BookBroker()
    for event, wanted in steps:
        if event == "broker forgets":
            broker.session_id = 0
        plan = session.plan(wanted, uses_ids=True)
        if event == "lost request":
            session.handle_error()
            continue
        code, session_id = broker.serve(plan, keeps=event != "broker is full")
        if event == "lost answer":
            session.handle_error()
            continue
        session.handle_response(code, session_id)
        if code == NONE:
            assert broker.what == wanted
        else:
            # The next one starts over and is served.
            again = session.plan(wanted, uses_ids=True)
            assert again.is_full
            code, session_id = broker.serve(again, keeps=True)
            session.handle_response(code, session_id)
            assert code == NONE
            assert broker.what == wanted


def opened(session: FetchSessionHandler, wanted: dict[TopicPartition, RequestedPartition]) -> None:
    session.plan(wanted, uses_ids=True)
    session.handle_response(NONE, 7)


def test_only_changes_are_sent() -> None:
    session = FetchSessionHandler()
    opened(session, {partition(0): asked(0), partition(1): asked(5)})
    plan = session.plan({partition(0): asked(3), partition(2): asked(0)}, uses_ids=True)
    assert plan == FetchRequestData(7, 1, {partition(0): asked(3), partition(2): asked(0)}, {partition(1): ID}, True)


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = FetchSessionHandler()
    opened(session, {partition(0): asked(9)})
    plan = session.plan({partition(0): asked(0, OTHER_ID)}, uses_ids=True)
    assert plan.forgotten == {partition(0): ID}
    assert plan.asked == {partition(0): asked(0, OTHER_ID)}


def test_names_instead_of_ids_need_a_session_of_their_own() -> None:
    session = FetchSessionHandler()
    opened(session, {partition(0): asked()})
    plan = session.plan({partition(0): asked()}, uses_ids=False)
    assert (plan.session_id, plan.epoch) == (7, FULL)


def test_a_refused_session_is_closed_by_the_full_request_that_follows() -> None:
    for error in (InvalidFetchSessionEpochError, FetchSessionTopicIdError):
        session = FetchSessionHandler()
        opened(session, {})
        session.plan({}, uses_ids=True)
        session.handle_response(error.code, 0)
        assert session.plan({}, uses_ids=True)[:2] == (7, FULL)


def test_epochs_wrap_to_one() -> None:
    session = FetchSessionHandler()
    opened(session, {})
    session.epoch = 0x7FFFFFFF
    session.plan({}, uses_ids=True)
    session.handle_response(NONE, 7)
    assert session.epoch == 1


def test_closing_needs_a_session() -> None:
    session = FetchSessionHandler()
    assert session.closing() is None
    opened(session, {partition(0): asked()})
    plan = session.closing()
    assert plan is not None
    assert (plan.session_id, plan.epoch, plan.asked) == (7, FINAL, {})
