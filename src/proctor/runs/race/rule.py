"""The rule that ends a race: the sequential test over the complete pairs in planned order."""

from __future__ import annotations

from proctor.model.plan import Plan
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.verdicts.race.design import design_of, pairs_of
from proctor.verdicts.race.prefix import prefix_for


class RaceRule:
    """Hears results in whatever order they come; the coordinator cancels the rest when it is satisfied."""

    def __init__(self, info: RunInfo, plan: Plan) -> None:
        design = design_of(info)
        self._prefix = prefix_for(pairs_of(plan.trials, design), design)

    def answered(self, record: AttemptRecord) -> bool:
        """Whether the race is decided."""
        return self._prefix.tell(record)
