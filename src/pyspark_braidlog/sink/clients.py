"""The clients of a task: made for it, or kept by its process for the next one.

Python workers are reused, so that a producer without transactions, and the connection that markers are read over, serve
many tasks. A transactional producer serves one attempt: taking its id over is what fences the attempt before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from braidlog import Admin, Producer, TopicPartition
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidTransactionTimeoutError, TopicAuthorizationFailedError
from pyspark_braidlog.client_pool import ClientPool
from pyspark_braidlog.client_settings import admin_settings
from pyspark_braidlog.sink.options import WriteOptions

# A task that failed does not wait long for brokers that may be the reason.
_CLOSE_S: Final = 5.0

PRODUCERS: Final[ClientPool[Producer]] = ClientPool(Producer, lambda producer: producer.close(_CLOSE_S))
ADMINS: Final[ClientPool[Admin]] = ClientPool(Admin)


def committed_offsets(options: WriteOptions, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group committed, waiting for transactions that are about to."""
    with ADMINS.use(admin_settings(options.client)) as admin:
        return admin.list_group_offsets([group], require_stable=True)[group]


@contextmanager
def transactional_producer(options: WriteOptions, name: str) -> Iterator[Producer]:
    """Closing it aborts what is not committed."""
    producer = Producer({**options.client, "transactional.id": name})
    try:
        yield producer
    except BaseException as problem:
        producer.close(_CLOSE_S)
        if isinstance(problem.__cause__, InvalidTransactionTimeoutError):
            raise UserError(
                f"the brokers allow no transactions of {options.client['transaction.timeout.ms']} ms: set the option "
                "kafka.transaction.timeout.ms to at most their transaction.max.timeout.ms, but more than a task takes"
            ) from problem
        if isinstance(problem.__cause__, TopicAuthorizationFailedError):
            raise UserError(
                "no permission for the topic: delivery=exactly-once takes READ on it besides WRITE, since the marker "
                "of what was written is an offset of that topic"
            ) from problem
        raise
    producer.close()
