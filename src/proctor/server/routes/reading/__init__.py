"""Routes that read: runs, trials, logs, events, verdicts, and who works on what."""

from __future__ import annotations

from proctor.server.routes.reading import (
    beside,
    events,
    fleet,
    judged,
    logs,
    records,
    run_parts,
    runs,
    timings,
    trials,
    verdicts,
)

READING = (
    runs.router,
    run_parts.router,
    judged.router,
    records.router,
    trials.router,
    beside.router,
    logs.router,
    events.router,
    verdicts.router,
    timings.router,
    fleet.router,
)
"""Their routers, in the order of the documentation."""
