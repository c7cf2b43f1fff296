"""The driver notices tasks that wrote a batch before a restart and are no more."""

from __future__ import annotations

import pytest

from braidlog import TopicPartition
from braidlog.client.admin.groups import GroupType, ListedGroup
from braidlog.client.admin.results import Results
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import CoordinatorNotAvailableError
from pyspark_braidlog.client_pool import ClientPool
from pyspark_braidlog.sink import writers
from pyspark_braidlog.sink.fingerprint import Fingerprint
from pyspark_braidlog.sink.markers import Marker
from pyspark_braidlog.sink.options import Delivery, WriteOptions
from pyspark_braidlog.sink.task_identity import TaskIdentity
from pyspark_braidlog.sink.write_task import TaskCommitMessage
from pyspark_braidlog.sink.writers import Markers, check_task_count

PLACE = TopicPartition("out", 0)


def options(**more: str) -> WriteOptions:
    return WriteOptions.checked({"kafka.bootstrap.servers": "h:1", **more}, Delivery.EXACTLY_ONCE)


def messages(count: int, *, batch: int = 7, continues_run: bool = False) -> list[TaskCommitMessage | None]:
    return [
        TaskCommitMessage(1, TaskIdentity("q", batch, each, "r"), continues_run=continues_run) for each in range(count)
    ]


def markers(batches: dict[int, int], name: str = "braidlog-spark-sink.q.", rows: int = 5) -> Markers:
    """By task the batch that it wrote last."""
    return {
        f"{name}{task}": {PLACE: Marker(batch, Fingerprint(rows), "before").committed()}
        for task, batch in batches.items()
    }


def test_tasks_that_are_no_more_have_doubled_rows() -> None:
    with pytest.raises(UserError, match=r"by 4 or more tasks .* and by 2 now: the rows that task 2, 3 wrote then"):
        check_task_count(options(), messages(2), lambda *_: markers({0: 7, 2: 7, 3: 7}))


@pytest.mark.parametrize(
    "found",
    [
        markers({0: 7, 1: 7}),
        markers({0: 7, 2: 6}),
        # Those of another sink of the same query, and of a task that had no rows.
        markers({5: 7}, "braidlog-spark-sink.q.audit."),
        markers({5: 7}, rows=0),
        {},
    ],
)
def test_other_markers_do_not_matter(found: Markers) -> None:
    check_task_count(options(), messages(2), lambda *_: found)


def test_nobody_is_asked_where_it_cannot_be() -> None:
    def unasked(*_: object) -> Markers:
        raise AssertionError

    check_task_count(options(), messages(2, continues_run=True), unasked)
    # A task that never had rows cannot tell, but one of them that can is enough.
    check_task_count(options(), messages(1, continues_run=True) + messages(1), unasked)
    check_task_count(options(), [], unasked)
    check_task_count(options(delivery="at-least-once"), [TaskCommitMessage(3)], unasked)
    check_task_count(options(recomputed="keep"), messages(2), unasked)


class Groups:
    """An admin of a cluster where one of the coordinators does not answer."""

    def list_groups(self) -> list[ListedGroup]:
        names = ("braidlog-spark-sink.q.0", "braidlog-spark-sink.q.2", "braidlog-spark-sink.other.5")
        return [ListedGroup(name, GroupType.CLASSIC, "", None, 0) for name in names]

    def list_group_offsets(self, names: list[str], *, require_stable: bool) -> Results[str, object]:
        assert require_stable
        assert names == ["braidlog-spark-sink.q.0", "braidlog-spark-sink.q.2"]
        return Results({names[0]: markers({0: 7})[names[0]], names[1]: CoordinatorNotAvailableError("away")})

    def close(self) -> None:
        pass


def test_a_marker_that_cannot_be_read_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "ADMINS", ClientPool(lambda settings: Groups()))
    with pytest.raises(CoordinatorNotAvailableError):
        check_task_count(options(), messages(2))
