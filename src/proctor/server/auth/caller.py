"""Who asks: a dependency of every route, which says what the route needs.

    @router.get("/things")
    async def things(caller: Reader, shared: Shared) -> Response: ...

`Route` looks the need up before it reads the body, and an application refuses to start with a route that
names none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from proctor.server.problem import Problem
from proctor.server.state import Mode, State, state_of
from proctor.store.service.ownership import DEFAULT as DEFAULT_PROJECT
from proctor.store.store import Store

SCOPES = {
    "read": "Read runs, trials, files and costs.",
    "run": "Submit, cancel, pause and delete runs; upload tasks; write notes.",
    "code": "Submit experiments, which are code that runs on the server's machine.",
    "worker": "Execute trials.",
    "admin": "Everything, in every project: tokens, users, projects, settings.",
}
"""What a token may be allowed to do."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may do."""

    user: str
    scopes: frozenset[str]
    project: str | None = None
    """The one project that they see; None: all of them."""
    token: str = ""
    """The id of the token; empty where none is needed."""
    by_cookie: bool = False

    def may(self, scope: str) -> bool:
        """Whether the scope is theirs."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, project: str) -> bool:
        """Whether what is in a project is theirs to see."""
        return self.project is None or self.project == project

    @property
    def on_machine(self) -> bool:
        """Whether paths of the server's machine mean something to them: they are on it, or run code there."""
        return bool(self.scopes) and (not self.token or self.may("code"))

    @property
    def home(self) -> str:
        """The project of what they make."""
        return self.project or DEFAULT_PROJECT


EVERYTHING = frozenset(SCOPES)


class Needs:
    """A dependency: the caller, who must have a scope. `Route` has authenticated them already."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> Caller:
        """The caller. Not a plain function: FastAPI would ask a thread for it."""
        found: Caller = request.state.caller
        return found

    def check(self, caller: Caller, mode: Mode) -> None:
        """Refuse a caller without the scope."""
        if caller.may(self.scope):
            return
        if mode is Mode.VIEW:
            raise Problem("read_only", "This server only shows results; 'proctor serve' also runs specs")
        raise Problem("forbidden", f"This needs a token with the scope '{self.scope}'")


class Anybody(Needs):
    """A need that everybody meets: signing in, and whether the server lives."""

    def __init__(self) -> None:
        super().__init__("")

    async def __call__(self, request: Request) -> Caller:
        """Nobody in particular."""
        return getattr(request.state, "caller", NOBODY)

    def check(self, caller: Caller, mode: Mode) -> None:
        """Refuse nobody."""


NOBODY = Caller("", frozenset())
Open = Annotated[Caller, Depends(Anybody())]
Reader = Annotated[Caller, Depends(Needs("read"))]
Runner = Annotated[Caller, Depends(Needs("run"))]
Worker = Annotated[Caller, Depends(Needs("worker"))]
Admin = Annotated[Caller, Depends(Needs("admin"))]


async def shared_state(request: Request) -> State:
    """What every route shares."""
    return state_of(request)


Shared = Annotated[State, Depends(shared_state)]


async def visible_run(run: str, request: Request) -> str:
    """The id of the run that a path names, where the caller may see it; else 404."""
    caller: Caller = request.state.caller
    found = await state_of(request).store(_find_run, run, caller.project)
    if found is None:
        raise Problem("not_found", f"There is no run '{run}', or not in your project")
    return found


def _find_run(store: Store, ref: str, project: str | None) -> str | None:
    return store.service.ownership.find(ref, project)


VisibleRun = Annotated[str, Depends(visible_run)]
"""For routes with `{run}` in their path."""
