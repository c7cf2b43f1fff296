"""braidlog: a distributed, replicated commit log that speaks the Kafka wire protocol."""

import os

__version__ = "0.1.0"

if os.environ.get("BRAIDLOG_PURE") == "1":
    from braidlog._pure import prefer_source

    prefer_source()
