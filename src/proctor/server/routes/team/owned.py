"""What schedules and webhooks have in common: pages of a list, found in one's own project, noted, removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from proctor.server.audit import audit
from proctor.server.auth.caller import Caller
from proctor.server.listing import Page, listed
from proctor.server.problem import Problem
from proctor.store.store import Store


class Owned(Protocol):
    """A thing that belongs to a project."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def project(self) -> str:
        """Whose it is."""


_T = TypeVar("_T", bound=Owned)
_T_co = TypeVar("_T_co", bound=Owned, covariant=True)


class Kept(Protocol[_T_co]):
    """Where a store keeps them."""

    def page(self, project: str | None, *, after: str, limit: int) -> Sequence[_T_co]:
        """Some of them, by id."""

    def find(self, each: str, project: str | None, /) -> _T_co | None:
        """The one with an id, if the project has it."""

    def delete(self, each: str, /) -> None:
        """Remove one."""


@dataclass(frozen=True, slots=True)
class Things(Generic[_T]):
    """All of one kind."""

    word: str
    """What one is called: in sentences and in the audit log."""
    kept: Callable[[Store], Kept[_T]]
    shown: Callable[[_T], dict[str, Any]]

    def page(self, store: Store, caller: Caller, page: Page) -> dict[str, Any]:
        """A page of those that a caller sees."""
        after = page.after if isinstance(page.after, str) else ""
        found = self.kept(store).page(caller.project, after=after, limit=page.limit + 1)
        shown = found[: page.limit]
        last = shown[-1].id if len(found) > page.limit else None
        return listed([self.shown(each) for each in shown], after=last)

    def find(self, store: Store, each: str, caller: Caller) -> _T:
        """The one with an id; a Problem when the caller has no such thing."""
        found = self.kept(store).find(each, caller.project)
        if found is None:
            raise Problem("not_found", f"There is no {self.word} '{each}', or not in your project")
        return found

    def remove(self, store: Store, each: str, caller: Caller) -> None:
        """Remove one, and note who did."""
        found = self.find(store, each, caller)
        self.kept(store).delete(found.id)
        self.note(store, caller, "remove", found)

    def note(self, store: Store, caller: Caller, action: str, thing: _T, **detail: Any) -> None:
        """Write into the audit log what was done to one."""
        audit(store, caller, f"{self.word}.{action}", thing.id, project=thing.project, **detail)
