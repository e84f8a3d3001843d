"""Change what people say about a run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from proctor.server.problem import Problem
from proctor.spec.grammar import wrong_name
from proctor.store.store import Store


def describe(
    store: Store,
    run_id: str,
    *,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
) -> None:
    """Change what people say about a run."""
    if name is not None and (problem := wrong_name(name)):
        raise Problem("invalid", f"name: {problem}")
    given = {"name": name, "notes": notes, "tags": None if tags is None else tuple(tags)}
    changed = {key: value for key, value in given.items() if value is not None}
    if changed:
        store.set_words(structs.replace(store.run(run_id), **changed))
