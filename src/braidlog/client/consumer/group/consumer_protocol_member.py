"""The consumer protocol (KIP-848) as one member sees it: answers in, the next heartbeat out; no I/O, no clock.

    UNJOINED → JOINING → STABLE ⇄ RECONCILING → ACKNOWLEDGING → STABLE …   and from anywhere FENCED or STALE → JOINING

One request has everything: who the member is, what it subscribes to, what it has. What has not changed since the last
heartbeat that was answered is left out. The answer says what the coordinator wants the member to have; it only ever
contains partitions that no other member has any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from braidlog.client.consumer.group.member import (
    NO_GENERATION,
    GroupIdentity,
    MemberStateMachine,
    fenced_instance_error,
    group_error,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import NONE, name_of
from braidlog.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

log = logging.getLogger("braidlog.client.group")

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
# A static member that will be back: its partitions wait for it until its session is over.
STATIC_LEAVE_EPOCH: Final = -2
# The first version in which members choose their id, and patterns may be left to the broker.
_CLIENT_MEMBER_IDS: Final = 1

_RETRIABLE_CODES: Final = (
    errors.CoordinatorLoadInProgressError.code,
    errors.CoordinatorNotAvailableError.code,
    errors.NotCoordinatorError.code,
)
_FENCED_CODES: Final = (
    errors.FencedMemberEpochError.code,
    errors.UnknownMemberIdError.code,
    errors.GroupIdNotFoundError.code,
)

# Partition numbers by topic id.
Owned = Mapping[bytes, frozenset[int]]
NOTHING: Final[dict[bytes, frozenset[int]]] = {}


class ConsumerMemberState(Enum):
    # No heartbeats are sent.
    UNJOINED = "out of the group"
    # The first heartbeat, with epoch 0, is to be sent or under way.
    JOINING = "joining"
    # Has an epoch, and what the coordinator wants us to have is what we said we have.
    STABLE = "stable"
    # The coordinator wants us to have something else: the program's thread has to revoke and take.
    RECONCILING = "reconciling"
    # That is done; the next heartbeat says so.
    ACKNOWLEDGING = "acknowledging"
    # The coordinator does not know us any more: the program's thread loses everything, then we join again.
    FENCED = "fenced"
    # As FENCED, but we left ourselves because the program did not poll.
    STALE = "left for not polling"


_TRANSITIONS: Final[dict[ConsumerMemberState, tuple[ConsumerMemberState, ...]]] = {
    ConsumerMemberState.UNJOINED: (ConsumerMemberState.JOINING, ConsumerMemberState.UNJOINED),
    ConsumerMemberState.JOINING: (
        ConsumerMemberState.STABLE,
        ConsumerMemberState.RECONCILING,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.STABLE: (
        ConsumerMemberState.RECONCILING,
        ConsumerMemberState.ACKNOWLEDGING,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.RECONCILING: (
        ConsumerMemberState.ACKNOWLEDGING,
        ConsumerMemberState.STABLE,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.ACKNOWLEDGING: (
        ConsumerMemberState.STABLE,
        ConsumerMemberState.RECONCILING,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.FENCED: (ConsumerMemberState.JOINING, ConsumerMemberState.UNJOINED),
    ConsumerMemberState.STALE: (ConsumerMemberState.JOINING, ConsumerMemberState.UNJOINED),
}


class HeartbeatResult(Enum):
    DONE = "nothing to do"
    CHANGED = "the program's thread has to revoke, take or lose partitions"
    RETRY = "send it again at once"
    RETRY_LATER = "send it again after a pause, perhaps to another coordinator"


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    topics: tuple[str, ...] = ()
    # For the broker to match, where it can; `topics` is what matches here.
    regex: str | None = None


class ConsumerProtocolMember:
    def __init__(
        self,
        group_id: str,
        instance_id: str | None,
        rack: str | None,
        rebalance_ms: int,
        server_assignor: str | None,
        *,
        new_member_id: Callable[[], str],
    ) -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = JOIN_EPOCH
        # Rises with every join: answers to requests of an earlier one do not count.
        self.incarnation = 0
        self.subscribed = TopicSubscription()
        # What the coordinator wants us to have; none until it has said so since the join.
        self.target: Owned | None = None
        # What we have, as far as the program's thread has taken it.
        self.owned: Owned = NOTHING
        self._rack = rack
        self._rebalance_ms = rebalance_ms
        self._server_assignor = server_assignor
        self._new_member_id = new_member_id
        self._machine = MemberStateMachine(f"member of group {group_id}", _TRANSITIONS, ConsumerMemberState.UNJOINED)
        # What the coordinator has answered: nothing of it is repeated.
        self._sent_subscription: TopicSubscription | None = None
        self._sent_owned: Owned | None = None
        self._regex_refused = False

    @property
    def state(self) -> ConsumerMemberState:
        return self._machine.state

    def is_in(self, *states: ConsumerMemberState) -> bool:
        return self._machine.state in states

    @property
    def is_active(self) -> bool:
        """Whether heartbeats are sent."""
        return not self.is_in(ConsumerMemberState.UNJOINED, ConsumerMemberState.FENCED, ConsumerMemberState.STALE)

    @property
    def is_joined(self) -> bool:
        return self.epoch > JOIN_EPOCH and self.is_active

    @property
    def sends_leave(self) -> bool:
        """Also while its first heartbeat is under way: else the group would wait a whole session for it."""
        return self.is_active and self.member_id != ""

    @property
    def identity(self) -> GroupIdentity:
        generation = self.epoch if self.is_joined else NO_GENERATION
        return GroupIdentity(generation, self.member_id, self.instance_id, uses_consumer_protocol=True)

    # From the program's thread

    def join(self, subscribed: TopicSubscription) -> None:
        """Begin anew: everything is sent again, and nothing is owned."""
        self._machine.move(ConsumerMemberState.JOINING)
        self.incarnation += 1
        self.epoch = JOIN_EPOCH
        self.target = None
        self.owned = NOTHING
        self.subscribed = subscribed
        self.send_everything()

    def subscribe(self, subscribed: TopicSubscription) -> None:
        self.subscribed = subscribed

    def took(self, target: Owned, owned: Owned, *, whole: bool) -> None:
        """What was wanted as `target` is done, as far as topics are known by name: `whole` says whether all are."""
        self.owned = owned
        if self.is_in(ConsumerMemberState.RECONCILING) and whole and self.target is target:
            self._machine.move(
                ConsumerMemberState.ACKNOWLEDGING if owned != self._sent_owned else ConsumerMemberState.STABLE
            )

    def fence(self) -> None:
        """It cannot go on as it is: what it has is lost."""
        if self.is_active:
            self._machine.move(ConsumerMemberState.FENCED)

    def out(self) -> None:
        self._machine.move(ConsumerMemberState.UNJOINED)
        self.epoch = JOIN_EPOCH
        self.target = None

    # Requests

    def send_everything(self) -> None:
        """The next heartbeat leaves nothing out: the coordinator may not have got the last one."""
        self._sent_subscription = None
        self._sent_owned = None

    @property
    def has_changes(self) -> bool:
        return self.is_active and (self.owned != self._sent_owned or self._sent_subscription != self.subscribed)

    def request(self, version: int) -> ConsumerGroupHeartbeatRequest:
        if not self.member_id and version >= _CLIENT_MEMBER_IDS:
            self.member_id = self._new_member_id()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        before = self._sent_subscription
        if before is None:
            request.rebalance_timeout_ms = self._rebalance_ms
            request.rack_id = self._rack
            request.server_assignor = self._server_assignor
        if before != self.subscribed:
            self._put_subscription(request, version, before)
        if self._sent_owned != self.owned:
            request.topic_partitions = [
                RequestTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in sorted(self.owned.items())
            ]
        self._sent_subscription = self.subscribed
        self._sent_owned = self.owned
        return request

    def _put_subscription(
        self, request: ConsumerGroupHeartbeatRequest, version: int, before: TopicSubscription | None
    ) -> None:
        had_regex = before is not None and before.regex is not None
        if self.subscribed.regex is not None and version >= _CLIENT_MEMBER_IDS and not self._regex_refused:
            request.subscribed_topic_regex = self.subscribed.regex
            request.subscribed_topic_names = []
            return
        request.subscribed_topic_names = list(self.subscribed.topics)
        if had_regex and version >= _CLIENT_MEMBER_IDS:
            # An empty one takes the last back.
            request.subscribed_topic_regex = ""

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH,
            instance_id=self.instance_id,
        )

    def stop_for_not_polling(self) -> None:
        self._machine.move(ConsumerMemberState.STALE)

    # Answers

    def no_answer(self) -> None:
        self.send_everything()

    def on_answer(self, answer: ConsumerGroupHeartbeatResponse) -> HeartbeatResult:
        if not self.is_active:
            # It is about an earlier join.
            return HeartbeatResult.DONE
        if answer.error_code != NONE:
            return self._on_refusal(answer)
        if answer.member_id:
            self.member_id = answer.member_id
        self.epoch = answer.member_epoch
        if self.is_in(ConsumerMemberState.JOINING):
            log.info("group %s: member %s is in epoch %d", self.group_id, self.member_id, self.epoch)
            self._machine.move(ConsumerMemberState.STABLE)
        elif self.is_in(ConsumerMemberState.ACKNOWLEDGING) and self._sent_owned == self.owned:
            self._machine.move(ConsumerMemberState.STABLE)
        if answer.assignment is None:
            return HeartbeatResult.DONE
        first = self.target is None
        self.target = {each.topic_id: frozenset(each.partitions) for each in answer.assignment.topic_partitions}
        if self.target == self.owned and not first:
            if self.is_in(ConsumerMemberState.RECONCILING):
                self._machine.move(ConsumerMemberState.STABLE)
            return HeartbeatResult.DONE
        if not self.is_in(ConsumerMemberState.RECONCILING):
            self._machine.move(ConsumerMemberState.RECONCILING)
        return HeartbeatResult.CHANGED

    def _on_refusal(self, answer: ConsumerGroupHeartbeatResponse) -> HeartbeatResult:
        code = answer.error_code
        self.send_everything()
        if code in _RETRIABLE_CODES:
            return HeartbeatResult.RETRY_LATER
        if code in _FENCED_CODES:
            if self.is_in(ConsumerMemberState.JOINING):
                # Known under this id no more, and nothing is lost by it: join as a new member.
                self.member_id = ""
                return HeartbeatResult.RETRY_LATER
            log.info("group %s: member %s is out of it: %s", self.group_id, self.member_id, name_of(code))
            self._machine.move(ConsumerMemberState.FENCED)
            return HeartbeatResult.CHANGED
        if code == errors.InvalidRegularExpressionError.code and self.subscribed.regex and not self._regex_refused:
            log.warning(
                "group %s: the broker does not understand the pattern %r (%s); topics are matched here instead",
                self.group_id, self.subscribed.regex, answer.error_message,
            )  # fmt: skip
            self._regex_refused = True
            return HeartbeatResult.RETRY
        self._machine.move(ConsumerMemberState.FENCED)
        if code == errors.FencedInstanceIdError.code:
            raise fenced_instance_error(self.group_id, self.instance_id)
        raise group_error(code, self.group_id, answer.error_message)
