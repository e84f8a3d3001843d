"""Keys that a spec may hold and that nothing honours yet, or not for its kind: refused, never ignored.

The grammar reads them, because stored specs and other documents hold them; a run does not start with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from proctor.errors import SpecError
from proctor.model.spec import SandboxSpec, Spec

PLACES = ("budget_usd", "engine", "sandbox", "sources")
"""Keys whose places errors found after loading point at."""


def refuse_unhonoured(spec: Spec) -> None:
    """SpecError for the first key of a spec that would have no effect."""
    for key, reason in unhonoured(spec):
        place = spec.place(key)
        raise SpecError(f"{place}: {reason}" if place else reason)


def unhonoured(spec: Spec) -> Iterator[tuple[str, str]]:
    """Keys with no effect, each with a sentence for the person who wrote it."""
    if spec.budget_usd is not None:
        yield (
            "budget_usd",
            "'budget_usd' is not enforced yet; remove it, and bound the run by 'rollouts' and 'timeout_s'",
        )
    if spec.engine != "local":
        yield "engine", f"'engine: {spec.engine}' does not exist yet; remove it: runs execute on this machine"
    if spec.kind == "experiment" and spec.sandbox != SandboxSpec():
        yield "sandbox", "'sandbox' has no effect here: experiments run in processes of their own; remove it"
    if spec.kind == "task" and spec.sources:
        yield "sources", "'sources' and --experiments name experiments, and this spec has tasks; remove them"
