"""The reading side of a server, by what it is about."""

from __future__ import annotations

from proctor.store.database import Database
from proctor.store.views.events import EventViews
from proctor.store.views.fleet import FleetViews
from proctor.store.views.runs import RunViews
from proctor.store.views.trials import TrialViews


class Views:
    """What a server reads."""

    def __init__(self, db: Database) -> None:
        self.runs = RunViews(db)
        """Runs, as lists show them."""
        self.trials = TrialViews(db)
        """Trials, as tables and matrices show them."""
        self.events = EventViews(db)
        """Events of all runs, as they are written."""
        self.fleet = FleetViews(db)
        """What waits and what works, what it cost, and what there is to run."""
