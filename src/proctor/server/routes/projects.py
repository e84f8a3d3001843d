"""`/api/projects`, `/api/secrets` and `/api/audit`: what belongs together, its keys, and who did what."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.server.audit import audit
from proctor.server.auth.caller import Admin, Reader, Shared
from proctor.server.idempotency import Keyed
from proctor.server.listing import Paged, listed
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.submit.making import project_for
from proctor.server.text import Line
from proctor.settings import SECRET_FIELDS
from proctor.store.service.accounts import Project
from proctor.store.store import Store
from proctor.tasks.address import redacted

router = APIRouter(prefix="/api", tags=["projects"], route_class=Route)

ProjectId = Annotated[str, InPath(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
MemberName = Annotated[str, InPath(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$")]
KeyName = Annotated[str, InPath(pattern=r"^[A-Z][A-Z0-9_]{2,63}$")]
OfProject = Annotated[str | None, Query(max_length=64, description="For callers of all projects.")]


class ProjectBody(BaseModel):
    """What a project may use; what is null has no limit."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"title": "Nightly suites", "max_runs": 4, "day_usd": 50.0}]},
    )

    title: Line = Field(min_length=1, max_length=200)
    max_runs: int | None = Field(default=None, ge=1, le=100_000, description="Runs at a time.")
    day_usd: float | None = Field(default=None, ge=0, le=1e9, description="Dollars a day (UTC) for models.")
    keep_days: int | None = Field(
        default=None, ge=1, le=36_500, description="Days to keep runs after their end."
    )


class KeyBody(BaseModel):
    """The key of a provider."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"value": "sk-…"}]})

    value: str = Field(min_length=8, max_length=10_000)


@router.get("/projects", summary="List projects")
async def list_projects(caller: Reader, shared: Shared, page: Paged) -> Response:
    """Those that the caller sees, with their quotas."""

    def read(store: Store) -> dict[str, Any]:
        accounts = store.service.accounts
        found = accounts.projects(caller.project, after=str(page.after or ""), limit=page.limit + 1)
        shown = found[: page.limit]
        items = [
            {
                **msgspec.to_builtins(each),
                "open_runs": store.service.queue.open_runs(each.id),
                "spent_today_usd": accounts.spent_today_usd(each.id),
            }
            for each in shown
        ]
        return listed(items, after=shown[-1].id if len(found) > page.limit else None)

    return answer(await shared.store(read))


@router.put("/projects/{project}", summary="Make a project, or change what it may use")
async def put_project(project: ProjectId, body: ProjectBody, caller: Admin, shared: Shared) -> Response:
    """Its id is made of small letters, digits and hyphens."""

    def write(store: Store) -> dict[str, Any]:
        store.service.accounts.put_project(Project(project, **body.model_dump()))
        audit(store, caller, "project.put", project, project=project, **body.model_dump())
        found: dict[str, Any] = msgspec.to_builtins(store.service.accounts.project(project))
        return found

    return answer(await shared.store(write))


@router.delete("/projects/{project}", status_code=204, summary="Remove a project without runs")
async def delete_project(project: ProjectId, caller: Admin, shared: Shared, _: Keyed) -> Response:
    """Its tokens and keys are removed with it; one with runs is refused."""

    def remove(store: Store) -> bool:
        done = store.service.accounts.delete_project(project)
        if done:
            audit(store, caller, "project.delete", project, project=project)
        return done

    if not await shared.store(remove):
        raise Problem("conflict", f"The project '{project}' has runs, is the default, or does not exist")
    shared.known.forget()
    return Response(status_code=204)


@router.get("/projects/{project}/members", summary="List the members of a project")
async def list_members(project: ProjectId, caller: Reader, shared: Shared) -> Response:
    """Users who have a token of the project, or may sign in to it."""

    def read(store: Store) -> dict[str, Any]:
        home = project_for(store, caller, project)
        return listed([{"user": each} for each in store.service.accounts.members(home)])

    return answer(await shared.store(read))


@router.put("/projects/{project}/members/{user}", status_code=204, summary="Put a user into a project")
async def add_member(project: ProjectId, user: MemberName, caller: Admin, shared: Shared) -> Response:
    """They may sign in to it where the server knows an issuer; a token makes its user a member as well."""

    def write(store: Store) -> None:
        home = project_for(store, caller, project)
        store.service.accounts.add_member(home, user)
        audit(store, caller, "member.add", user, project=home)

    await shared.store(write)
    return Response(status_code=204)


@router.delete("/projects/{project}/members/{user}", status_code=204, summary="Take a user out of a project")
async def remove_member(
    project: ProjectId, user: MemberName, caller: Admin, shared: Shared, _: Keyed
) -> Response:
    """Their tokens of the project and the sessions of these end within seconds."""

    def write(store: Store) -> bool:
        home = project_for(store, caller, project)
        done = store.service.accounts.remove_member(home, user)
        if done:
            audit(store, caller, "member.remove", user, project=home)
        return done

    if not await shared.store(write):
        raise Problem("not_found", f"'{user}' is not a member of the project '{project}'")
    shared.known.forget()
    return Response(status_code=204)


@router.get("/secrets", summary="List keys of providers, masked")
async def list_keys(caller: Admin, shared: Shared, project: OfProject = None) -> Response:
    """Names and the last characters; the values are never shown."""

    def read(store: Store) -> dict[str, Any]:
        home = project_for(store, caller, project)
        return listed([msgspec.to_builtins(each) for each in store.service.keys.listed(home)])

    return answer(await shared.store(read))


@router.put("/secrets/{name}", status_code=204, summary="Store the key of a provider")
async def put_key(
    name: KeyName, body: KeyBody, caller: Admin, shared: Shared, project: OfProject = None
) -> Response:
    """Encrypted at rest. `name` is the variable that the provider's key has, such as OPENAI_API_KEY."""
    if name.startswith("PROCTOR_"):
        raise Problem("invalid", f"{name} is a setting of the server itself")

    def write(store: Store) -> None:
        home = project_for(store, caller, project)
        sealed = shared.vault.seal(body.value)
        store.service.keys.put(home, name, sealed, hint=f"…{body.value[-4:]}", by=caller.user)
        audit(store, caller, "secret.put", name, project=home)

    await shared.store(write)
    return Response(status_code=204)


@router.delete("/secrets/{name}", status_code=204, summary="Forget the key of a provider")
async def delete_key(
    name: KeyName, caller: Admin, shared: Shared, _: Keyed, project: OfProject = None
) -> Response:
    """Runs that have begun keep using it until they end."""

    def remove(store: Store) -> bool:
        home = project_for(store, caller, project)
        done = store.service.keys.delete(home, name)
        if done:
            audit(store, caller, "secret.delete", name, project=home)
        return done

    if not await shared.store(remove):
        raise Problem("not_found", f"There is no key '{name}'")
    return Response(status_code=204)


@router.get("/audit", summary="List who did what, newest first")
async def list_audit(caller: Admin, shared: Shared, page: Paged, project: OfProject = None) -> Response:
    """Every change that was made through this API."""

    def read(store: Store) -> dict[str, Any]:
        before = page.after if isinstance(page.after, int) else None
        only = project or caller.project
        found = store.service.audit.page(only, before=before, limit=page.limit + 1)
        shown = found[: page.limit]
        items = [msgspec.to_builtins(each) for each in shown]
        return listed(items, after=shown[-1].id if len(found) > page.limit else None)

    return answer(await shared.store(read))


@router.get("/settings", summary="Show the server's settings")
async def read_settings(caller: Admin, shared: Shared) -> Response:  # noqa: ARG001 - the scope
    """As they were when it started; those that are secret only say whether they are set."""
    found: dict[str, Any] = {}
    for each in fields(shared.settings):
        value = getattr(shared.settings, each.name)
        if each.name in SECRET_FIELDS:
            value = "set" if value else ""
        elif each.name == "providers":
            value = sorted(value)
        elif isinstance(value, tuple):
            value = [redacted(str(part)) for part in value]
        elif isinstance(value, str | Path):
            value = redacted(str(value))
        found[each.name] = value
    return answer({"mode": shared.mode, "settings": found})
