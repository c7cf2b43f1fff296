"""Which partition of an internal topic a group or a transactional id belongs to."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, in 32 bits with sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def partition_for(name: str, partitions: int) -> int:
    """`abs(hash) % partitions`, where the absolute value of the smallest integer is 0."""
    value = java_hash(name)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions
