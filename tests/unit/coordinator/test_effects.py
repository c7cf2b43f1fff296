from __future__ import annotations

from braidlog.coordinator.effects import CoordinatorRecord, Effects, SendMarkers
from braidlog.core.protocol_errors import UnknownMemberIdError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.heartbeat import HeartbeatResponse
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.responders import RecordingResponder

MARKERS = SendMarkers("tx", 7, 1, True, [TopicPartition("t", 0)], 3)


def test_an_operation_that_decides_nothing_is_empty() -> None:
    assert Effects().is_empty()
    for decide in (
        lambda effects: effects.write(b"k", None),
        lambda effects: effects.reply(RecordingResponder(), HeartbeatResponse()),
        lambda effects: effects.act(MARKERS),
    ):
        effects = Effects()
        decide(effects)
        assert not effects.is_empty()


def test_what_another_operation_decided_comes_after() -> None:
    first, second = Effects(), Effects()
    early, late = RecordingResponder(), RecordingResponder()
    first.write(b"a", b"1", applied=True)
    first.reply(early, HeartbeatResponse())
    second.write(b"b", None)
    second.reply(late, UnknownMemberIdError("gone"))
    second.act(MARKERS)
    first.add(second)
    assert first.records == [CoordinatorRecord(b"a", b"1", True), CoordinatorRecord(b"b", None, False)]
    assert [responder for responder, _ in first.replies] == [early, late]
    assert first.actions == [MARKERS]


def test_a_batch_is_never_larger_than_expected() -> None:
    effects = Effects()
    for number in range(200):
        effects.write(b"k" * number, None if number % 3 == 0 else b"v" * number * 10)
    records = [
        Record(timestamp=2**40 * (place % 2), key=each.key, value=each.value)
        for place, each in enumerate(effects.records)
    ]
    assert len(build_batch(records, base_offset=0)) <= effects.batch_bytes()


def test_markers_say_what_they_are_for() -> None:
    assert repr(MARKERS) == "<SendMarkers commit tx 7/1>"
