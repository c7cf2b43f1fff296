"""What tests are run with: a real broker for anybody's tests, and a simulated world for braidlog's own.

    with braidlog.testing.Broker() as broker:
        topic = broker.create_topic(partitions=3)
        ...  # any client, at broker.bootstrap_servers

The pytest plugin (`braidlog.testing.plugin`) registers itself; nothing is imported here before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from braidlog.testing.running_broker import Broker, BrokerFailed, Kind

__all__ = ["Broker", "BrokerFailed", "Kind"]

# A type checker reads the imports above: to it, any other name is a mistake.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from braidlog.testing import running_broker

        return getattr(running_broker, name)
