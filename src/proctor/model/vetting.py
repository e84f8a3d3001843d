"""What a task is tried against before it is trusted: who solves it, and under which disturbance."""

from __future__ import annotations

from enum import StrEnum

from proctor.model.plan import MARKER, PlannedTrial


class Check(StrEnum):
    """One way to try a task. All but `nop` are solved by the author's own solution."""

    ORACLE = "oracle"
    NOP = "nop"
    ONE_CPU = "one_cpu"
    NETWORK_OFF = "network_off"
    CLOCK = "clock"
    """The date is 400 days later."""
    TIME_ZONE = "time_zone"
    LOADED = "loaded"
    """Every CPU of the machine is busy with other work."""

    @property
    def disturbed(self) -> bool:
        """Whether the surroundings differ from those that agents get."""
        return self not in {Check.ORACLE, Check.NOP}


def check_of(trial: PlannedTrial) -> Check:
    """Which check a planned trial belongs to."""
    variables = trial.overrides.get("environment_variables")
    marked = variables.get(MARKER) if isinstance(variables, dict) else None
    if marked is not None:
        return Check(str(marked))
    return Check.NOP if trial.agent == Check.NOP else Check.ORACLE
