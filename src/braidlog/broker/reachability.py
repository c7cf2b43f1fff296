"""Whether clients will reach the address that they are told: better a warning at start than a client that hangs."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from braidlog.core.types import Endpoint

log = logging.getLogger("braidlog.server")

_TIMEOUT_S: Final = 3.0


async def problem_with(endpoint: Endpoint) -> str | None:
    """Why a connection to the advertised address fails from here; None if it works."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.close()
            await writer.wait_closed()
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:g} s"
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


async def explain_unreachable(advertised: tuple[Endpoint, ...]) -> None:
    """Connect to each advertised address as a client would, and say what to do where that fails."""
    for endpoint in advertised:
        problem = await problem_with(endpoint)
        if problem is not None:
            log.warning(
                "advertised listener %s is not reachable from here (%s): unless clients reach it another way, "
                "set advertised.listeners to %s://<a name or address that they can reach>:<port>",
                endpoint,
                problem,
                endpoint.listener,
            )
