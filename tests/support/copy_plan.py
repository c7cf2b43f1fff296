"""What a worker of an exactly-once copy is told, whichever client it uses."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

CONFLUENT: Final = "confluent"
BRAIDLOG: Final = "braidlog"
# The program `CopyWorker` with a Java client of that version.
JAVA_OLDER: Final = "java 3.9"
JAVA_NEWER: Final = "java 4.1"

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

# How a worker ends that cannot go on; any other end of its own is a failure.
GAVE_UP: Final = 3
# A static member's session outlasts every death, its heir takes its place; a dynamic one's ends soon after its own.
SESSIONS_MS: Final = {True: 30_000, False: 1_500}
TRANSACTION_TIMEOUT_MS: Final = 20_000


@dataclass(frozen=True)
class Plan:
    """`name` is the worker's transactional id and, where it is a static member, its group.instance.id."""

    name: str
    bootstrap: str
    static: bool
    client: str
    protocol: str
    source: str
    sink: str
    group: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        return Plan(**json.loads(text))

    def member_settings(self) -> dict[str, str | int]:
        """By the names that all clients know."""
        settings: dict[str, str | int] = {"group.id": self.group, "group.protocol": self.protocol}
        if self.static:
            settings["group.instance.id"] = self.name
        if self.protocol == CLASSIC:
            # In the newer protocol these are the broker's to say.
            settings["session.timeout.ms"] = SESSIONS_MS[self.static]
            settings["heartbeat.interval.ms"] = 200
        return settings
