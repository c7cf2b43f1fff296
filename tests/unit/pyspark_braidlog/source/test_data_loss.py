"""Losses told apart by their cause, each with the way on; and what is none."""

from __future__ import annotations

import pytest

from braidlog import TopicPartition
from pyspark_braidlog.source.data_loss import Cause, Findings, Loss, examine, notice, refusal
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.stream_offset import StreamOffset
from pyspark_braidlog.source.topics import TopicFacts

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))
FACTS = {"t": TopicFacts("id", (0, 1))}


def options(**given: str) -> ReadOptions:
    return ReadOptions.for_stream({"kafka.bootstrap.servers": "a:1", **(given or {"subscribe": "t"})})


def look(
    start: StreamOffset,
    *,
    facts: dict[str, TopicFacts] | None = None,
    earliest: dict[TopicPartition, int] | None = None,
    ends: dict[TopicPartition, int] | None = None,
    chosen: ReadOptions | None = None,
) -> Findings:
    return examine(
        start,
        chosen or options(),
        FACTS if facts is None else facts,
        earliest={} if earliest is None else earliest,
        ends={T0: 100, T1: 100, T2: 100} if ends is None else ends,
    )


AT = StreamOffset({T0: 10, T1: 20}, {"t": "id"})


def test_nothing_is_lost() -> None:
    assert look(AT, earliest={T0: 0, T1: 20}) == Findings((), {T0: 10, T1: 20})


def test_what_was_not_asked_for_is_not_lost() -> None:
    assert look(AT, earliest={}).losses == ()


def test_standing_at_the_end_is_no_loss() -> None:
    assert look(AT, ends={T0: 10, T1: 20}).losses == ()


def test_retention() -> None:
    found = look(AT, earliest={T0: 50, T1: 0})
    assert found == Findings((Loss(Cause.RETENTION, T0, 10, 50),), {T0: 50, T1: 20})
    assert "t-0: retention deleted 40 offsets (10 to 49)" in str(found.losses[0])


def test_truncation() -> None:
    found = look(AT, ends={T0: 7, T1: 100})
    assert found == Findings((Loss(Cause.TRUNCATION, T0, 10, 7),), {T0: 7, T1: 20})
    assert "ends at 7" in str(found.losses[0])
    assert "read up to 10" in str(found.losses[0])


def test_recreation_is_no_truncation_even_if_the_new_topic_is_longer() -> None:
    facts = {"t": TopicFacts("other", (0,))}
    for end in (3, 3000):
        found = look(AT, facts=facts, earliest={T0: 0}, ends={T0: end})
        assert found.losses == (Loss(Cause.RECREATION, T0, 10, 0), Loss(Cause.DELETION, T1, 20, None))
        assert found.begin == {T0: 0}
    assert "created again" in str(found.losses[0])


@pytest.mark.parametrize(("before", "now"), [("", "id"), ("id", "")])
def test_clusters_without_ids_know_no_recreation(before: str, now: str) -> None:
    start = StreamOffset(AT.offsets, {"t": before} if before else {})
    assert look(start, facts={"t": TopicFacts(now, (0, 1))}).losses == ()


def test_deletion_of_a_topic() -> None:
    found = look(AT, facts={})
    assert [each.cause for each in found.losses] == [Cause.DELETION] * 2
    assert found.begin == {}
    assert "was at offset 10" in str(found.losses[0])


@pytest.mark.parametrize(
    "chosen",
    [options(subscribe="other"), options(subscribePattern="o.*"), options(assign='{"t": [0]}')],
    ids=["subscribe", "pattern", "assign"],
)
def test_what_the_options_left_out_was_not_deleted(chosen: ReadOptions) -> None:
    facts = {"t": TopicFacts("id", (0,))} if "assign" in str(chosen.consumer_strategy).lower() else {}
    losses = look(AT, facts=facts, chosen=chosen).losses
    assert {each.cause for each in losses} == {Cause.UNCHOSEN}
    assert T1 in {each.place for each in losses}


def test_new_partitions_begin_with_their_first_record() -> None:
    facts = {"t": TopicFacts("id", (0, 1, 2))}
    assert look(AT, facts=facts, earliest={T2: 0}) == Findings((), {T0: 10, T1: 20, T2: 0})
    found = look(AT, facts=facts, earliest={T2: 8})
    assert found == Findings((Loss(Cause.RETENTION, T2, None, 8),), {T0: 10, T1: 20, T2: 8})
    assert "t-2 is new to the stream and begins at offset 8" in str(found.losses[0])


def test_a_new_stream_can_only_miss_offsets_that_were_asked_for() -> None:
    new = StreamOffset({T0: 10, T1: 20}, {"t": "id"}, is_initial=True)
    low, high = {T0: 50, T1: 0}, {T0: 100, T1: 15}
    assert look(new, earliest=low, ends=high) == Findings((), {T0: 50, T1: 15})
    asked = options(subscribe="t", startingOffsets='{"t": {"0": 10, "1": 20}}')
    found = look(new, earliest=low, ends=high, chosen=asked)
    assert found.losses == (Loss(Cause.OUT_OF_RANGE, T0, 10, 50), Loss(Cause.OUT_OF_RANGE, T1, 20, 15))
    assert "begins at 50" in str(found.losses[0])
    assert "ends at 15" in str(found.losses[1])


def test_the_refusal_says_what_to_do() -> None:
    text = str(refusal(look(AT, earliest={T0: 50, T1: 0}).losses))
    assert "failOnDataLoss=false (t-0: reading goes on at 50)" in text
    assert "new checkpoint" in text


def test_of_many_losses_some_are_told() -> None:
    start = StreamOffset({TopicPartition("t", each): 4 for each in range(50)})
    text = str(refusal(look(start, facts={}).losses))
    assert "and 45 more partitions" in text
    assert "t-4 was deleted" in text
    assert "t-5 " not in text


def test_the_notice_says_what_is_done() -> None:
    (loss,) = look(AT, ends={T0: 7, T1: 100}).losses
    assert notice(loss).endswith("failOnDataLoss=false: reading goes on at 7")
