"""What a principal may do to a thing, as access control and descriptions number it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        """A number that a later version of the protocol added."""
        return cls.UNKNOWN


# What a description carries when it was not asked for operations, or the broker has no authorizer.
_NOT_TOLD: Final = -(2**31)


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """The operations of a bit field (KIP-430); none where the broker did not say."""
    if bits == _NOT_TOLD:
        return None
    return frozenset(each for each in AclOperation if each > AclOperation.ANY and bits >> each & 1)
