"""Whether a batch was written before a restart by tasks that it does not have any more.

No task knows how many there are; the driver does when all are done. It can say then that rows are there twice, but
cannot help it: docs/adr/spark-sink.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from braidlog import TopicPartition
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.errors import UserError
from pyspark_braidlog.client_settings import admin_settings
from pyspark_braidlog.sink.clients import ADMINS
from pyspark_braidlog.sink.markers import newest
from pyspark_braidlog.sink.options import Delivery, Recomputed, WriteOptions
from pyspark_braidlog.sink.task_identity import names_begin
from pyspark_braidlog.sink.write_task import TaskCommitMessage

Markers = Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]


def check_task_count(
    options: WriteOptions,
    messages: Sequence[TaskCommitMessage | None],
    find: Callable[[WriteOptions, str], Markers] | None = None,
) -> None:
    """On the driver, after every task of a batch has succeeded."""
    if options.delivery is Delivery.AT_LEAST_ONCE or options.recomputed is Recomputed.KEEP:
        return
    written = [each for each in messages if each is not None and each.task is not None]
    # Only the first batch of a run can be one that an earlier run began; one task that wrote in this run before says
    # that it is not the first (others may never have had rows).
    if not written or any(each.continues_run for each in written):
        return
    task = written[0].task
    assert task is not None
    beginning = names_begin(task.query, options.sink_name)
    extra: list[int] = []
    for group, offsets in (find or _find)(options, beginning).items():
        number = group.removeprefix(beginning)
        if not number.isdigit() or int(number) < len(messages):
            continue
        found = newest(group, offsets, options.topic)
        if found is not None and found.marker.batch == task.batch and found.marker.written.rows > 0:
            extra.append(int(number))
    if extra:
        raise UserError(
            f"batch {task.batch} was written by {max(extra) + 1} or more tasks before the query was started again, and "
            f"by {len(messages)} now: the rows that task {', '.join(map(str, sorted(extra)))} wrote then are in the "
            "topic twice. Exactly once needs the same number of tasks again (cores, shuffle partitions, repartition). "
            "To go on nevertheless, set the option recomputed to keep for one run"
        )


def _find(options: WriteOptions, beginning: str) -> Markers:
    with ADMINS.use(admin_settings(options.client)) as admin:
        names = [each.group_id for each in admin.list_groups() if each.group_id.startswith(beginning)]
        # A marker that cannot be read may be the one that tells; after a restart the batch is looked at again.
        return admin.list_group_offsets(names, require_stable=True).raise_for_errors() if names else {}
