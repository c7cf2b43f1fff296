"""What a policy of the cluster is asked about: `create.topic.policy.class.name`, `alter.config.policy.class.name`.

A policy is a Python callable that takes one of these. It returns None where it agrees, and raises PolicyViolationError
where it does not; the message is what the client is told.

    from braidlog.policies import CreateTopicMetadata, PolicyViolationError

    def team_prefix(request: CreateTopicMetadata) -> None:
        if not request.topic.startswith("team."):
            raise PolicyViolationError("a topic's name begins with team.")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from braidlog.core.protocol_errors import PolicyViolationError as PolicyViolationError


@dataclass(frozen=True, slots=True)
class CreateTopicMetadata:
    """A topic that could be created: names, counts and configs are good, and the broker's defaults are filled in."""

    topic: str
    # Both are None where the client says which brokers have the replicas.
    num_partitions: int | None
    replication_factor: int | None
    # Partition -> brokers; None where the cluster chooses them.
    replicas_assignments: Mapping[int, tuple[int, ...]] | None
    # Only what the client sets.
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterConfigMetadata:
    """A change of configs that could be made."""

    # TOPIC, BROKER or GROUP.
    resource_type: str
    # A broker's is its id, empty for the defaults of all brokers.
    resource_name: str
    # What the client changes. None goes back to the default; other configs of an AlterConfigs request do so unnamed.
    # It is not shown where the request is printed: a broker's configs may be secrets.
    configs: Mapping[str, str | None] = field(repr=False)
