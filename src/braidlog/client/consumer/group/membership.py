"""What a consumer and its commits need of a membership, whichever protocol it speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.identity import GroupIdentity
from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata

if TYPE_CHECKING:
    from concurrent.futures import Future


class AutoCommit(Protocol):
    """The commits' side that a rebalance needs."""

    def begin_auto_commit(self) -> Future[None] | None:
        """Commit what was returned so far, if that is to be done without being asked; does not wait."""
        ...

    def auto_commit_before_rebalance(self, deadline: float) -> None: ...

    def restart_auto_commit(self) -> None:
        """The next one is due a whole interval from now."""
        ...

    def next_due(self) -> float | None: ...


class Membership(Protocol):
    """Methods are for the program's thread where nothing else is said."""

    coordinator: CoordinatorClient
    commits: AutoCommit | None

    @property
    def is_settled(self) -> bool:
        """No join under way, and nothing to call back."""
        ...

    def advance(self, deadline: float) -> None:
        """From every poll: says that the program polls, and does what has to be done in its thread. Never waits."""
        ...

    def next_due(self) -> float | None:
        """When `advance` has to be called again though nothing notifies, on the monotonic clock."""
        ...

    def enforce_rebalance(self, reason: str) -> None: ...

    def leave(self, deadline: float, reason: str = "the consumer unsubscribed") -> None: ...

    def close(self, deadline: float) -> None: ...

    async def abandon(self) -> None:
        """On the engine's thread, since nobody has the consumer any more: warn, leave, and do nothing from then on."""
        ...

    def group_metadata(self) -> ConsumerGroupMetadata: ...

    def metrics(self) -> dict[str, float]: ...

    def commit_identity(self) -> GroupIdentity:
        """As whom to commit, from any thread; raises where the group would not take it."""
        ...

    def fetch_identity(self) -> GroupIdentity:
        """As whom to ask for committed offsets, from any thread."""
        ...

    def on_commit_refused(self, sent: GroupIdentity, code: int) -> Exception | None:
        """A commit was refused for who sent it; what the program is to be told, none to try again. Engine's thread."""
        ...
