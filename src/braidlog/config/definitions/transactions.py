"""Idempotent and transactional producers."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import at_least
from braidlog.config.setting import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT, Setting

DEADLINES: Final = "every transaction and every id has a deadline of its own"

SETTINGS: Final = (
    Setting("transaction.state.log.min.isr", INT, 2, HIGH, rule=at_least(1),
        doc="In-sync replicas that the transaction topic needs to take a write.",
    ),
    Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, HIGH, rule=at_least(1),
        doc="Bytes read at a time when transaction states are loaded.",
    ),
    Setting("transaction.state.log.replication.factor", SHORT, 3, HIGH, rule=at_least(1),
        doc="Copies of the transaction topic.",
    ),
    Setting("transaction.state.log.num.partitions", INT, 50, HIGH, rule=at_least(1),
        doc="Partitions of the transaction topic; must not change once it exists.",
    ),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600, HIGH, rule=at_least(1),
        doc="Segment size of the transaction topic; small ones load faster.",
    ),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, LOW, mode=CLUSTER_WIDE,
        doc="Check with the coordinator that a partition belongs to the transaction that writes to it.",
    ),
    Setting("producer.id.expiration.ms", INT, 86_400_000, LOW, rule=at_least(1), mode=CLUSTER_WIDE,
        doc="How long the last sequence numbers of an idle producer are kept for de-duplication.",
    ),
    Setting("producer.id.expiration.check.interval.ms", INT, 600_000, LOW, rule=at_least(1), internal=True,
        doc="How often expired producers are looked for.",
    ),
    Setting("transactional.id.expiration.ms", INT, 604_800_000, HIGH, rule=at_least(1),
        doc="How long an unused transactional id is remembered.",
    ),
    Setting("transaction.max.timeout.ms", INT, 900_000, HIGH, rule=at_least(1),
        doc="Longest transaction timeout a producer may ask for.",
    ),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, LOW,
        rule=at_least(1), no_effect=DEADLINES,
        doc="How often transactions past their timeout are looked for and aborted.",
    ),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, LOW,
        rule=at_least(1), no_effect=DEADLINES,
        doc="How often expired transactional ids are looked for.",
    ),
)
