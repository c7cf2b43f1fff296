"""A coordinator of the consumer protocol that a test scripts."""

from __future__ import annotations

from braidlog.wire.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from support.membership_harness import (
    NEWER_BEAT,
    MembershipHarness,
    topic_id,
)

Target = dict[str, list[int]]


class Coordinator:
    """Wants our member to have `target`, and says so until the member says that it has it."""

    def __init__(self, here: MembershipHarness, target: Target) -> None:
        self.epoch = 1
        self.target = target
        self.has: Target | None = None
        self.script = here.script
        self.script.always(NEWER_BEAT, self._beat)
        self._names = {topic_id(name): name for name in ("t", "u", "t1", "t2")}

    def _beat(self, request: ConsumerGroupHeartbeatRequest, version: int) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.topic_partitions is not None:
            self.has = {self._names[each.topic_id]: each.partitions for each in request.topic_partitions}
        reported = None
        if self.has != self.target or request.member_epoch == 0:
            reported = Assignment(
                topic_partitions=[
                    ResponseTopicPartitions(topic_id=topic_id(name), partitions=list(numbers))
                    for name, numbers in self.target.items()
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id or "given",
            member_epoch=self.epoch,
            heartbeat_interval_ms=5,
            assignment=reported,
        )

    def want(self, target: Target) -> None:
        self.epoch += 1
        self.target = target

    @property
    def is_content(self) -> bool:
        return self.has == self.target

    def asked(self) -> list[ConsumerGroupHeartbeatRequest]:
        return self.script.asked(NEWER_BEAT, ConsumerGroupHeartbeatRequest)
