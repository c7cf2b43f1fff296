from __future__ import annotations

from dataclasses import dataclass

from braidlog.cluster.store import EventKind, WatchEvent
from braidlog.cluster.tree import CREATE, DELETE, SET, Change
from braidlog.cluster.watches import WatchTable


@dataclass(eq=False)
class Session:
    open: bool = True


def fire(table: WatchTable, *changes: Change) -> list[WatchEvent]:
    """Calls what fires, and returns the events in their order."""
    fired = table.fire(changes)
    for watch, event in fired:
        watch(event)
    return [event for _, event in fired]


def test_a_watch_fires_once() -> None:
    table, heard = WatchTable(), list[WatchEvent]()
    table.watch_data("/a", Session(), heard.append)
    assert fire(table, Change(SET, "/b")) == []
    fire(table, Change(SET, "/a"))
    fire(table, Change(SET, "/a"))
    assert heard == [WatchEvent(EventKind.DATA_CHANGED, "/a")]


def test_the_same_watch_set_twice_is_one_and_two_sessions_have_two() -> None:
    table, heard = WatchTable(), list[WatchEvent]()
    mine, other = Session(), Session()
    watch = heard.append
    table.watch_data("/a", mine, watch)
    table.watch_data("/a", mine, watch)
    fire(table, Change(SET, "/a"))
    assert len(heard) == 1
    table.watch_data("/a", mine, watch)
    table.watch_data("/a", other, watch)
    fire(table, Change(SET, "/a"))
    assert len(heard) == 3


def test_a_watch_on_data_and_children_hears_of_a_deletion_once() -> None:
    table, heard = WatchTable(), list[WatchEvent]()
    session, watch = Session(), heard.append
    table.watch_data("/p/a", session, watch)
    table.watch_children("/p/a", session, watch)
    table.watch_children("/p", session, watch)
    fire(table, Change(DELETE, "/p/a"))
    assert heard == [WatchEvent(EventKind.DELETED, "/p/a"), WatchEvent(EventKind.CHILDREN_CHANGED, "/p")]


def test_data_watches_do_not_hear_of_children() -> None:
    table, heard = WatchTable(), list[WatchEvent]()
    table.watch_data("/", Session(), heard.append)
    fire(table, Change(CREATE, "/a"))
    assert heard == []


def test_events_come_in_the_order_of_the_changes() -> None:
    table, heard = WatchTable(), list[WatchEvent]()
    for path in ("/c", "/b", "/a"):
        table.watch_data(path, Session(), heard.append)
    fire(table, Change(SET, "/a"), Change(SET, "/c"), Change(DELETE, "/b"))
    assert [event.path for event in heard] == ["/a", "/c", "/b"]


def test_a_session_that_closed_between_firing_and_calling_hears_nothing() -> None:
    table, heard, session = WatchTable(), list[WatchEvent](), Session()
    table.watch_data("/a", session, heard.append)
    ((watch, event),) = table.fire([Change(SET, "/a")])
    session.open = False
    watch(event)
    assert heard == []


def test_forgetting_a_session_leaves_the_watches_of_others() -> None:
    table, heard = WatchTable(), list[str]()
    mine, other = Session(), Session()
    table.watch_data("/a", mine, lambda event: heard.append("mine"))
    table.watch_data("/a", other, lambda event: heard.append("other"))
    table.watch_children("/", mine, lambda event: heard.append("mine"))
    table.forget(mine)
    fire(table, Change(DELETE, "/a"))
    assert heard == ["other"]
