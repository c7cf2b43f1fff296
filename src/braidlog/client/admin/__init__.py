"""Administration of a cluster: `Admin`, one module for each family of its calls; no records are read or written."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin, ElectionType
    from braidlog.client.admin.cluster_description import ApiVersionRange, BrokerDescription, ClusterDescription
    from braidlog.client.admin.configs import (
        Alter,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        ConfigType,
        ResourceType,
    )
    from braidlog.client.admin.delegation_tokens import DelegationToken
    from braidlog.client.admin.features import Features, FeatureUpdate, Levels, UpgradeType
    from braidlog.client.admin.groups import GroupDescription, GroupMember, GroupState, GroupType, ListedGroup
    from braidlog.client.admin.log_dirs import LogDir, Replica, ReplicaInfo
    from braidlog.client.admin.quotas import ANYBODY, DEFAULT, QuotaEntity, QuotaFilter, QuotaKey
    from braidlog.client.admin.reassignments import Reassignment
    from braidlog.client.admin.records import ALL_RECORDS
    from braidlog.client.admin.results import Results
    from braidlog.client.admin.scram import ScramCredential, ScramDeletion, ScramMechanism, ScramUpsertion
    from braidlog.client.admin.topics import (
        CreatedTopic,
        ListedTopic,
        NewPartitions,
        NewTopic,
        PartitionDescription,
        TopicDescription,
        TopicId,
    )
    from braidlog.client.admin.transactions import (
        ActiveProducer,
        FencedProducer,
        ListedTransaction,
        TransactionDescription,
        TransactionState,
    )
    from braidlog.client.requests.list_offsets import IsolationLevel, ListedOffset, OffsetSpec
    from braidlog.core.principal import Principal
    from braidlog.security.acls import (
        CLUSTER_NAME,
        Acl,
        AclFilter,
        AclOperation,
        AclResourceType,
        PatternType,
        Permission,
    )

# Where each public name lives: a command that needs one family does not pay for the others.
_NAMES: Final = {
    "acls": ("CLUSTER_NAME", "Acl", "AclFilter", "AclOperation", "AclResourceType", "PatternType", "Permission"),
    "admin": ("Admin", "ElectionType"),
    "cluster_description": ("ApiVersionRange", "BrokerDescription", "ClusterDescription"),
    "configs": (
        "Alter",
        "ConfigChange",
        "ConfigEntry",
        "ConfigResource",
        "ConfigSource",
        "ConfigType",
        "ResourceType",
    ),
    "delegation_tokens": ("DelegationToken", "Principal"),
    "features": ("Features", "FeatureUpdate", "Levels", "UpgradeType"),
    "groups": ("GroupDescription", "GroupMember", "GroupState", "GroupType", "ListedGroup"),
    "log_dirs": ("LogDir", "Replica", "ReplicaInfo"),
    "quotas": ("ANYBODY", "DEFAULT", "QuotaEntity", "QuotaFilter", "QuotaKey"),
    "reassignments": ("Reassignment",),
    "records": ("ALL_RECORDS", "IsolationLevel", "ListedOffset", "OffsetSpec"),
    "results": ("Results",),
    "scram": ("ScramCredential", "ScramDeletion", "ScramMechanism", "ScramUpsertion"),
    "topics": (
        "CreatedTopic",
        "ListedTopic",
        "NewPartitions",
        "NewTopic",
        "PartitionDescription",
        "TopicDescription",
        "TopicId",
    ),
    "transactions": (
        "ActiveProducer",
        "FencedProducer",
        "ListedTransaction",
        "TransactionDescription",
        "TransactionState",
    ),
}
_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "ALL_RECORDS", "ANYBODY", "Acl", "AclFilter", "AclOperation", "AclResourceType", "ActiveProducer", "Admin", "Alter",
    "ApiVersionRange", "BrokerDescription", "CLUSTER_NAME", "ClusterDescription", "ConfigChange", "ConfigEntry",
    "ConfigResource", "ConfigSource", "ConfigType", "CreatedTopic", "DEFAULT", "DelegationToken", "ElectionType",
    "FeatureUpdate", "Features", "FencedProducer", "GroupDescription", "GroupMember", "GroupState", "GroupType",
    "IsolationLevel", "Levels", "ListedGroup", "ListedOffset", "ListedTopic", "ListedTransaction", "LogDir",
    "NewPartitions", "NewTopic", "OffsetSpec", "PartitionDescription", "PatternType", "Permission", "Principal",
    "QuotaEntity", "QuotaFilter", "QuotaKey", "Reassignment", "Replica", "ReplicaInfo", "ResourceType", "Results",
    "ScramCredential", "ScramDeletion", "ScramMechanism", "ScramUpsertion", "TopicDescription", "TopicId",
    "TransactionDescription", "TransactionState", "UpgradeType",
]  # fmt: skip

# A type checker reads the imports above: to it, any other name is a mistake.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
