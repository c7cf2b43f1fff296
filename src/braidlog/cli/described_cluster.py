"""What a running cluster tells any administrator of itself, for `braidlog cluster dump --bootstrap`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from braidlog.broker.authorization.acl_records import acl_path, encode_acls
from braidlog.client.admin.configs import ConfigEntry, ConfigResource, ConfigSource
from braidlog.client.admin.quotas import Default, QuotaEntity
from braidlog.cluster.backup.described_cluster import DescribedCluster, DescribedPartition, DescribedTopic
from braidlog.cluster.image import DEFAULT_ENTITY, sanitized
from braidlog.cluster.quota_entities import QuotaEntity as StoredQuotaEntity
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import SecurityDisabledError
from braidlog.core.types import TopicPartition
from braidlog.security.acls import Acl

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin


class Told(NamedTuple):
    cluster: DescribedCluster
    # Passwords among settings and credentials of users: nobody is told these.
    secrets: int


def ask_cluster(admin: Admin) -> Told:
    described = admin.describe_cluster()
    topics = sorted(admin.describe_topics().values(), key=lambda topic: topic.name)
    without_id = next((topic.name for topic in topics if topic.topic_id is None), None)
    if without_id is not None:
        raise UserError(f"the brokers tell no id of topic {without_id}: they are older than 2.8; use --zookeeper")
    configs = admin.describe_configs([ConfigResource.topic(topic.name) for topic in topics])
    brokers = [each.broker_id for each in described.brokers]
    of_brokers = admin.describe_configs([ConfigResource.broker(each) for each in brokers])
    overrides: dict[str, dict[str, str]] = {}
    secrets = 0
    for broker_id in brokers:
        for source, entity in (
            (ConfigSource.DYNAMIC_BROKER, str(broker_id)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, DEFAULT_ENTITY),
        ):
            found, hidden = _set_by(of_brokers[ConfigResource.broker(broker_id)], source)
            secrets += hidden
            if found:
                overrides[f"brokers/{entity}"] = found
    for quota, values in admin.describe_client_quotas().items():
        overrides[_path(quota)] = {name: repr(value) for name, value in values.items()}
    secrets += sum(len(each) for each in admin.describe_scram_users().values())
    found_topics = [
        DescribedTopic(
            topic.name,
            bytes(topic.topic_id or b""),
            [
                DescribedPartition(each.leader, each.leader_epoch, each.replicas, each.in_sync)
                for each in sorted(topic.partitions, key=lambda each: each.partition)
            ],
            _set_by(configs[ConfigResource.topic(topic.name)], ConfigSource.DYNAMIC_TOPIC)[0],
        )
        for topic in topics
    ]
    places = [TopicPartition(topic.name, index) for topic in found_topics for index in range(len(topic.partitions))]
    known = [each.producer_id for producers in admin.describe_producers(places).values() for each in producers]
    known += [each.producer_id for each in admin.list_transactions()]
    cluster = DescribedCluster(described.cluster_id, found_topics, overrides, _acls(admin), max(known, default=-1))
    return Told(cluster, secrets)


def _set_by(settings: Mapping[str, ConfigEntry], source: ConfigSource) -> tuple[dict[str, str], int]:
    """What was set there, and how much of that is secret. Of several layers each is a synonym of the strongest."""
    found: dict[str, str] = {}
    hidden = 0
    for entry in settings.values():
        for synonym in entry.synonyms:
            if synonym.source != source or synonym.name != entry.name:
                continue
            if entry.is_sensitive or synonym.value is None:
                hidden += 1
            else:
                found[entry.name] = synonym.value
    return found, hidden


def _path(quota: QuotaEntity) -> str:
    def name(of: str | Default | None) -> str | None:
        return None if of is None else DEFAULT_ENTITY if isinstance(of, Default) else sanitized(of)

    return StoredQuotaEntity(name(quota.user), name(quota.client_id), name(quota.ip)).path


def _acls(admin: Admin) -> dict[str, bytes]:
    """None where no broker has an authorizer."""
    rules: dict[str, list[Acl]] = {}
    try:
        for rule in admin.describe_acls():
            rules.setdefault(acl_path(rule.pattern), []).append(rule)
    except SecurityDisabledError:
        return {}
    return {path: encode_acls(sorted(some)) for path, some in rules.items()}
