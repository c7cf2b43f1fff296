from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cluster.shared_store import frames
from braidlog.cluster.shared_store.frames import BadFrameError, Frames, Hello
from braidlog.cluster.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RequestTooLargeError,
    SetData,
    Stat,
    StoreError,
    StoreUnavailableError,
    WatchEvent,
)
from braidlog.cluster.zookeeper.session_connection import Exists, GetChildren, GetData, GetMany, Request, Sync, Transact

STAT = Stat(1, 2, 3, 1_700_000_000_000, 1_700_000_000_001, 4, 5, 1 << 60, 7)
NODE = Node(b"{}", STAT)

paths = st.text(max_size=20)
versions = st.integers(-1, (1 << 31) - 1)
operations = st.one_of(
    st.builds(Create, paths, st.binary(max_size=40), st.booleans(), st.booleans()),
    st.builds(SetData, paths, st.binary(max_size=40), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
requests = st.one_of(
    st.builds(GetData, paths, st.booleans()),
    st.builds(Exists, paths, st.booleans()),
    st.builds(GetChildren, paths, st.booleans()),
    st.builds(GetMany, st.lists(paths, max_size=5)),
    st.builds(Transact, st.lists(operations, max_size=5)),
    st.builds(Sync),
)


def body(frame: bytes) -> bytes:
    (only,) = Frames(frames.MOST_ANSWER_BYTES).feed(frame)
    return only


@given(st.integers(0, (1 << 32) - 1), requests)
def test_requests_come_back_as_they_were(xid: int, request: Request) -> None:
    assert frames.decode_request(body(frames.encode_request(xid, request))) == (xid, request)


def test_a_close_is_a_request_without_content() -> None:
    assert frames.decode_request(body(frames.encode_close(9))) == (9, None)


def test_hello_and_welcome() -> None:
    hello = Hello(1 << 40, 18_000, "/data/worker-1")
    assert frames.decode_hello(body(frames.encode_hello(hello))) == hello
    assert frames.decode_welcome(body(frames.encode_welcome(1 << 40, 6_000))) == (1 << 40, 6_000)
    assert frames.decode_refused(body(frames.encode_refused("no"))) == "no"


def test_another_version_is_refused_with_what_to_do() -> None:
    frame = bytearray(body(frames.encode_hello(Hello(0, 1, ""))))
    frame[6] = 9
    with pytest.raises(BadFrameError, match=r"version 9 .* restart all workers"):
        frames.decode_hello(bytes(frame))


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        (GetData("/a"), NODE),
        (Exists("/a"), STAT),
        (Exists("/a"), None),
        (GetChildren("/a"), ["x", "ü"]),
        (GetMany(["/a", "/b"]), [NODE, None]),
        (Transact([]), ["/a", STAT, None]),
        (Sync(), None),
        (None, None),
    ],
)
def test_answers_come_back_as_they_were(request_: Request | None, value: object) -> None:
    assert frames.decode_answer(body(frames.encode_answer(7, request_, value))) == (7, value, None)


@pytest.mark.parametrize(
    "problem",
    [
        NoNodeError("/a"),
        NodeExistsError("/a"),
        BadVersionError("/a", 3, 4),
        BadVersionError("/a", 3),
        NotEmptyError("/a"),
        NoChildrenForEphemeralsError("/a"),
        InvalidPathError("/a//b", "a path has no empty component"),
        RequestTooLargeError("/a", 2, 1),
        StoreUnavailableError("no room"),
    ],
)
def test_refusals_keep_kind_text_and_place(problem: StoreError | StoreUnavailableError) -> None:
    if isinstance(problem, StoreError):
        problem.operation = 5
    xid, value, found = frames.decode_answer(body(frames.encode_error(1, problem)))
    assert (xid, value) == (1, None)
    assert type(found) is type(problem)
    assert str(found) == str(problem)
    assert vars(found) == vars(problem)


def test_events() -> None:
    event = WatchEvent(EventKind.DELETED, "/brokers/ids/1")
    assert frames.decode_event(body(frames.encode_event(event))) == event
    with pytest.raises(BadFrameError):
        frames.decode_event(b"\x25\x09\0\0\0\0")


def test_frames_are_cut_wherever_they_break() -> None:
    whole = frames.encode_request(1, Sync()) + frames.encode_request(2, GetData("/a"))
    expected = Frames(1000).feed(whole)
    assert len(expected) == 2
    for size in (1, 3, 7):
        cutter = Frames(1000)
        found = [frame for at in range(0, len(whole), size) for frame in cutter.feed(whole[at : at + size])]
        assert found == expected


@pytest.mark.parametrize("length", [0, 1001, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_refused_before_anything_is_read(length: int) -> None:
    with pytest.raises(BadFrameError):
        Frames(1000).feed(length.to_bytes(4, "big"))


@given(st.binary(min_size=1, max_size=60))
def test_rubbish_raises_bad_frame_and_nothing_else(frame: bytes) -> None:
    for decode in (frames.decode_hello, frames.decode_request, frames.decode_answer, frames.decode_event):
        try:
            decode(frame)
        except BadFrameError:
            continue


def test_a_count_that_the_frame_cannot_hold_is_refused() -> None:
    frame = bytes([frames.GET_MANY]) + (1).to_bytes(4, "big") + (1 << 30).to_bytes(4, "big")
    with pytest.raises(BadFrameError, match="entries"):
        frames.decode_request(frame)


def test_an_answer_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_ANSWER_BYTES", 20)
    _, _, problem = frames.decode_answer(body_of_any_size(frames.encode_answer(1, GetData("/a"), NODE)))
    assert isinstance(problem, StoreUnavailableError)


def body_of_any_size(frame: bytes) -> bytes:
    (only,) = Frames(1000).feed(frame)
    return only
