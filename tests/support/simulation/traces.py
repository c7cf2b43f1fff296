"""The whole trace of a workload and seed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from braidlog.storage.log import local_log
from braidlog.testing.simulated.simulation import Simulation
from support.simulation import coordinator_workload, settings
from support.simulation.shop import run_shop
from support.simulation.workload import Workload

STEPS: Final = 12
Run = Callable[[Simulation], Coroutine[Any, Any, None]]


def _coordinators(simulation: Simulation) -> Coroutine[Any, Any, None]:
    synced = coordinator_workload.is_synced(simulation.seed)
    return coordinator_workload.CoordinatorWorkload(simulation, STEPS, synced).run()


# By name: settings for a seed, and what runs.
WORKLOADS: Final[dict[str, tuple[Callable[[int], dict[str, str]], Run]]] = {
    "clients": (lambda seed: {}, run_shop),
    "one-broker": (settings.settings_for, lambda simulation: Workload(simulation, STEPS).run()),
    "coordinators": (coordinator_workload.settings_for, _coordinators),
}


def trace_of(workload: str, seed: int) -> list[str]:
    settings_for, run = WORKLOADS[workload]
    # What a process warns of once it warns of once a life here.
    local_log._warned_not_preallocated.clear()
    with Simulation(seed, settings_for(seed)) as simulation:
        simulation.trace.keep_all()
        simulation.run(run(simulation))
        return simulation.trace.last
