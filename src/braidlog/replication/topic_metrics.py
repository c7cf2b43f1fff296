"""What is counted per topic while records flow; plain numbers that the metrics page reads."""

from __future__ import annotations


class TopicMetrics:
    __slots__ = (
        "acks_all_produces",
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetch_conversions",
        "fetches",
        "messages_in",
        "produce_conversions",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        # Of these, those that wait for the in-sync replicas.
        self.acks_all_produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        # Records whose format was changed on their way in or out.
        self.produce_conversions = 0
        self.fetch_conversions = 0
