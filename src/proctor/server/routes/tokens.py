"""`/api/tokens` and `/api/users`: who may use the server. For admins."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.server.audit import audit
from proctor.server.auth.caller import Admin, Shared
from proctor.server.auth.tokens import make_token
from proctor.server.idempotency import Keyed
from proctor.server.listing import Paged, listed
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.text import Line
from proctor.store.service.accounts import Token
from proctor.store.store import Store

router = APIRouter(prefix="/api", tags=["people"], route_class=Route)

Id = Annotated[str, Path(max_length=100)]
UserName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$")]


class TokenBody(BaseModel):
    """What a token may do."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "nightly", "user": "ada", "project": "default", "scopes": ["read", "run"]}]
        },
    )

    name: Line = Field(min_length=1, max_length=100)
    user: UserName
    scopes: list[str] = Field(min_length=1, max_length=5)
    project: str | None = Field(default=None, max_length=64)
    expires_at: float | None = Field(default=None, gt=0, lt=1e11, description="UNIX seconds; none: never.")


class UserBody(BaseModel):
    """Whether a user's tokens work."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"disabled": True}]})

    disabled: bool


@router.get("/tokens", summary="List tokens")
async def list_tokens(caller: Admin, shared: Shared, page: Paged) -> Response:  # noqa: ARG001 - the scope
    """Without the tokens themselves: only their hashes are kept."""

    def read(store: Store) -> dict[str, Any]:
        found = store.service.accounts.tokens(after=str(page.after or ""), limit=page.limit + 1)
        shown = found[: page.limit]
        return listed(
            [_shown(each) for each in shown], after=shown[-1].id if len(found) > page.limit else None
        )

    return answer(await shared.store(read))


@router.post("/tokens", status_code=201, summary="Make a token")
async def add_token(body: TokenBody, caller: Admin, shared: Shared) -> Response:
    """The token is in the answer, once. An idempotency key is not honoured here: it would keep the token."""

    def make(store: Store) -> dict[str, Any]:
        secret, token = make_token(
            store,
            name=body.name,
            user=body.user,
            scopes=body.scopes,
            project=body.project,
            expires_at=body.expires_at,
        )
        about = {"user": token.user, "scopes": list(token.scopes)}
        audit(store, caller, "token.make", token.id, project=token.project, **about)
        return {"token": secret, **_shown(token)}

    return answer(await shared.store(make), 201, **{"cache-control": "no-store"})


@router.delete("/tokens/{token}", status_code=204, summary="Revoke a token")
async def revoke_token(token: Id, caller: Admin, shared: Shared, _: Keyed) -> Response:
    """It and its sessions end within seconds."""

    def revoke(store: Store) -> bool:
        known = store.service.accounts.token(token)
        revoked = store.service.accounts.revoke(token)
        if known and revoked:
            audit(store, caller, "token.revoke", token, project=known.project)
        return revoked

    if not await shared.store(revoke):
        raise Problem("not_found", f"There is no token '{token}', or it is revoked already")
    shared.known.forget()
    return Response(status_code=204)


@router.get("/users", summary="List users")
async def list_users(caller: Admin, shared: Shared, page: Paged) -> Response:  # noqa: ARG001 - the scope
    """A user is made with the first token for them."""

    def read(store: Store) -> dict[str, Any]:
        found = store.service.accounts.users(after=str(page.after or ""), limit=page.limit + 1)
        shown = [
            {"id": user, "created_at": since, "disabled": disabled}
            for user, since, disabled in found[: page.limit]
        ]
        return listed(shown, after=shown[-1]["id"] if len(found) > page.limit else None)

    return answer(await shared.store(read))


@router.patch("/users/{user}", summary="Disable or enable a user")
async def change_user(user: Id, body: UserBody, caller: Admin, shared: Shared) -> Response:
    """The tokens of a disabled user do not work."""

    def change(store: Store) -> bool:
        found = store.service.accounts.disable(user, disabled=body.disabled)
        if found:
            audit(store, caller, "user.disable" if body.disabled else "user.enable", user, project=None)
        return found

    if not await shared.store(change):
        raise Problem("not_found", f"There is no user '{user}'")
    shared.known.forget()
    return answer({"id": user, "disabled": body.disabled})


def _shown(token: Token) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(token)
    return found
