"""Failures that have no protocol code of their own: the user's, the disk's and the fatal ones."""

from __future__ import annotations

import errno


class BraidlogError(Exception):
    """Base of the failures that braidlog names itself."""


class UserError(BraidlogError):
    """Something a person asked for cannot be done; the message says what to do instead, a line for each thing."""


class NewerFormatError(UserError):
    """A file of a later format than this version reads: it is left as it is, and nothing starts on it."""

    def __init__(self, path: str, found: str, known: str, written_by: str | None = None) -> None:
        by = "a newer braidlog" if written_by is None else f"braidlog {written_by}"
        super().__init__(
            f"{path}: format {found} was written by {by}, and this one reads up to {known}; start that one again, or "
            "restore a backup from before the upgrade"
        )
        self.path = path


class StorageFault(BraidlogError):
    """A data directory failed: it goes offline, clients get KAFKA_STORAGE_ERROR, the rest keeps serving."""

    def __init__(self, directory: str, reason: str, cause: OSError | None = None) -> None:
        super().__init__(f"data directory {directory}: {reason}")
        self.directory = directory
        self.reason = reason
        # Kept here, since compiled code raises without noting the cause.
        self.cause = cause

    def __reduce__(self) -> tuple[type[StorageFault], tuple[str, str, OSError | None]]:
        return type(self), (self.directory, self.reason, self.cause)


def is_disk_full(fault: BaseException) -> bool:
    """Nothing is broken then: reading goes on, and so does writing once there is room."""
    cause = fault if isinstance(fault, OSError) else getattr(fault, "cause", None)
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


class CorruptLogError(BraidlogError):
    """Bytes on disk are not what was written; the message names the file and the lost range."""


class FatalError(BraidlogError):
    """Nothing can be served any more; the broker stops with this message and a non-zero exit code."""
