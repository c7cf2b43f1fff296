"""What producer and consumer interceptors share: how they are named in the settings, and that they break nothing.

An interceptor may look at what passes and change it, but it is a guest: what it raises is logged, and the record goes
its way as if it had not been asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from braidlog.client.errors import SettingError
from braidlog.client.settings import Settings

LOG: Final = logging.getLogger("braidlog.client.interceptors")


def interceptors_of(settings: Settings) -> list[Any]:
    """`interceptor.classes`: objects, classes, or `package.module.Class`; each may take the client's settings."""
    interceptors = [_made(each) for each in settings.items("interceptor.classes")]
    for interceptor in interceptors:
        configure = getattr(interceptor, "configure", None)
        if configure is not None:
            configure(settings)
    return interceptors


def methods(interceptors: Iterable[object], name: str) -> list[Any]:
    """The named method of each that has it."""
    return [getattr(each, name) for each in interceptors if hasattr(each, name)]


def close_all(interceptors: Iterable[object]) -> None:
    for close in methods(interceptors, "close"):
        try:
            close()
        except Exception:
            complain(close, "closing")


def complain(method: Any, doing: str) -> None:
    LOG.warning("interceptor %r failed while %s; going on without it", getattr(method, "__self__", method), doing,
                exc_info=True)  # fmt: skip


def _made(given: object) -> object:
    if isinstance(given, str):
        module, _, name = given.rpartition(".")
        try:
            given = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as problem:
            raise SettingError(
                f"interceptor.classes names {given}, which cannot be imported ({problem}); "
                "give it as package.module.Class, or give the object itself"
            ) from problem
    return given() if isinstance(given, type) else given
