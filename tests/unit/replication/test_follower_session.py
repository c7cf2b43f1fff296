from __future__ import annotations

from braidlog.replication.follower_session import FollowerSession, FollowerTarget
from braidlog.replication.partition import Partition
from braidlog.replication.progress import NEVER, RemoteReplica
from support.partitions import Waiter


def linked(partition: Partition) -> tuple[FollowerSession, FollowerTarget, RemoteReplica]:
    session, target, replica = FollowerSession(2), FollowerTarget(), RemoteReplica(2, NEVER)
    target.follower = session
    target.link(partition, replica)
    return session, target, replica


def test_an_append_marks_the_target_and_wakes_the_fetch_that_waits(partition: Partition) -> None:
    session, target, replica = linked(partition)
    waiter = session.parked = Waiter(10)
    session.last_fetch_s = 7.0
    partition.on_written(4)
    assert (list(session.dirty), waiter.wakes) == ([target], 0)
    assert replica.caught_up_s == 7.0, "until the append it had everything"
    session.last_fetch_s = 8.0
    partition.on_written(6)
    assert (list(session.dirty), waiter.wakes) == ([target], 1)
    assert replica.caught_up_s == 7.0


def test_a_mark_wakes_nobody(partition: Partition) -> None:
    session, target, _ = linked(partition)
    waiter = session.parked = Waiter(1)
    target.mark()
    assert (list(session.dirty), waiter.wakes, session.grown) == ([target], 0, False)


def test_a_new_role_wakes_it(partition: Partition) -> None:
    session, target, _ = linked(partition)
    waiter = session.parked = Waiter(1)
    partition.update_leader_and_isr(1, 4, (1,), (1, 2))
    assert (list(session.dirty), waiter.wakes) == ([target], 1)


def test_a_target_that_leaves_hears_of_nothing(partition: Partition) -> None:
    session, target, _ = linked(partition)
    target.mark()
    target.leave()
    partition.on_written(4)
    assert partition.followers == []
    assert not session.dirty
    assert not target.dirty


def test_a_target_follows_the_partition_that_has_its_name_now(partition: Partition) -> None:
    _, target, replica = linked(partition)
    target.link(partition, replica)
    assert partition.followers == [target]
    again = Partition("orders", 0, b"j" * 16, 1, partition.meter)
    target.link(again, replica)
    assert (partition.followers, again.followers) == ([], [target])


def test_a_session_that_begins_overrules_those_of_the_same_follower(partition: Partition) -> None:
    session, target, replica = linked(partition)
    linked(partition)
    assert not target.overruled, "of another replica"
    begun = FollowerTarget()
    begun.follower = FollowerSession(2)
    begun.link(partition, replica)
    begun.link(partition, replica)
    assert (target.overruled, list(session.dirty)) == (True, [target])
    assert not begun.overruled


def test_who_was_served_goes_last(partition: Partition) -> None:
    session, first, replica = linked(partition)
    second = FollowerTarget()
    second.follower = session
    second.link(partition, replica)
    partition.on_written(1)
    session.served(first)
    assert list(session.dirty) == [second, first]
    first.leave()
    session.served(first)
    assert list(session.dirty) == [second]
