"""Routes of what a team needs around its runs: schedules, webhooks, labels and comments."""

from __future__ import annotations

from proctor.server.routes.team import remarks, schedules, webhooks

TEAM = (schedules.router, webhooks.router, remarks.router)
"""Their routers, in the order of the documentation."""
