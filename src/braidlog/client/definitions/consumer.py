"""The consumer's settings."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import NON_EMPTY, at_least, one_of
from braidlog.config.setting import BOOLEAN, CLASS, HIGH, INT, LIST, LOW, MEDIUM, STRING, Setting

SETTINGS: Final = (
    Setting("key.deserializer", CLASS, None, HIGH, doc="Turns the bytes of keys into objects; none leaves them bytes."),
    Setting("value.deserializer", CLASS, None, HIGH,
        doc="Turns the bytes of values into objects; none leaves them bytes.",
    ),
    Setting("group.id", STRING, None, HIGH, doc="The group that shares the topics' partitions and keeps the offsets."),
    Setting("group.instance.id", STRING, None, MEDIUM, rule=NON_EMPTY,
        doc="A name of this member that outlives restarts: they then move no partition.",
    ),
    Setting("group.protocol", STRING, "classic", HIGH, rule=one_of("classic", "consumer", any_case=True),
        doc="`consumer` is the newer protocol (KIP-848).",
    ),
    Setting("group.remote.assignor", STRING, None, MEDIUM, doc="The broker's assignor to use with the newer protocol."),
    Setting("session.timeout.ms", INT, 45_000, HIGH, rule=at_least(1),
        doc="A member that is not heard of for so long is out.",
    ),
    Setting("heartbeat.interval.ms", INT, 3_000, HIGH, rule=at_least(1), doc="How often a member is heard of."),
    Setting("max.poll.interval.ms", INT, 300_000, MEDIUM, rule=at_least(1),
        doc="A member that does not poll for so long leaves its group.",
    ),
    Setting("max.poll.records", INT, 500, MEDIUM, rule=at_least(1), doc="The most records of one poll."),
    Setting("partition.assignment.strategy", LIST, "range,cooperative-sticky", MEDIUM,
        doc="How the leader shares partitions, best first.",
    ),
    Setting("enable.auto.commit", BOOLEAN, True, MEDIUM,
        doc="Whether `poll` commits what the polls before it returned.",
    ),
    Setting("auto.commit.interval.ms", INT, 5_000, LOW, rule=at_least(0), doc="How often it does."),
    Setting("auto.offset.reset", STRING, "latest", MEDIUM,
        doc="Where to start without an offset: earliest, latest, by_duration:PT1H, or none to raise an error.",
    ),
    Setting("allow.auto.create.topics", BOOLEAN, True, MEDIUM,
        doc="Whether a topic that is subscribed to may come into being by that.",
    ),
    Setting("exclude.internal.topics", BOOLEAN, True, MEDIUM,
        doc="Whether patterns pass over the cluster's own topics.",
    ),
    Setting("isolation.level", STRING, "read_uncommitted", MEDIUM,
        rule=one_of("read_uncommitted", "read_committed", any_case=True),
        doc="Whether records of open and aborted transactions are shown.",
    ),
    Setting("fetch.min.bytes", INT, 1, HIGH, rule=at_least(0), doc="A broker waits for so much before it answers."),
    Setting("fetch.max.wait.ms", INT, 500, LOW, rule=at_least(0), doc="But not for longer than this."),
    Setting("fetch.max.bytes", INT, 52_428_800, MEDIUM, rule=at_least(0),
        doc="The most bytes of one answer; also the bound of what is fetched ahead.",
    ),
    Setting("max.partition.fetch.bytes", INT, 1_048_576, HIGH, rule=at_least(0),
        doc="The most bytes of one partition in an answer.",
    ),
    Setting("check.crcs", BOOLEAN, True, LOW, doc="Whether the checksum of each batch is verified."),
    Setting("interceptor.classes", LIST, "", LOW, doc="Objects that see records before the program does, and commits."),
)  # fmt: skip

LEGACY: Final = {
    "zookeeper.connect": None,
    "auto.commit.enable": "enable.auto.commit",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "consumer.id": "client.id",
}
