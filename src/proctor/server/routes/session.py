"""`/api/session`: who you are, and signing in and out with a cookie."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.server.auth.authenticate import refused
from proctor.server.auth.caller import Caller, Open, Reader, Shared
from proctor.server.auth.tokens import COOKIE, SESSION_S, caller_of, hashed, new_secret, put_cookie
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.state import Mode, State
from proctor.store.service.accounts import Token
from proctor.store.store import Store

router = APIRouter(prefix="/api/session", tags=["session"], route_class=Route)


class SignInBody(BaseModel):
    """A token."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"token": "pt_…"}]})

    token: str = Field(max_length=200)


def _shown(state: State, caller: Caller) -> dict[str, Any]:
    return {
        "mode": state.mode,
        "read_only": not caller.may("run"),
        "user": caller.user,
        "project": caller.project,
        "scopes": sorted(caller.scopes),
    }


@router.get("", summary="Say who you are")
async def read_session(caller: Reader, shared: Shared) -> Response:
    """The mode of the server, and what the caller may do."""
    return answer(_shown(shared, caller))


@router.post("", status_code=201, summary="Sign in with a token")
async def sign_in(body: SignInBody, request: Request, shared: Shared, _: Open) -> Response:
    """Sets a session cookie that scripts cannot read."""
    if shared.mode is not Mode.TOKENS:
        raise Problem("conflict", "This server needs no token")
    session = new_secret()
    token = await shared.store(_begin, hashed(body.token.strip()), hashed(session))
    if token is None:
        raise refused("The token is unknown, has expired or was revoked")
    found = answer(_shown(shared, caller_of(token)), 201)
    put_cookie(found, request, COOKIE, session, int(SESSION_S))
    return found


def _begin(store: Store, key: str, session: str) -> Token | None:
    token = store.service.accounts.token_by_hash(key)
    if token:
        store.service.accounts.add_session(session, token.id, SESSION_S)
        store.service.audit.add(
            token.user, "session.begin", token.id, token=token.id, project=token.project or ""
        )
    return token


@router.delete("", status_code=204, summary="Sign out")
async def sign_out(request: Request, shared: Shared, _: Open) -> Response:
    """Ends the session of the cookie."""
    if session := request.cookies.get(COOKIE):
        await shared.store(lambda store: store.service.accounts.end_session(hashed(session)))
        shared.known.forget()
    found = Response(status_code=204)
    found.delete_cookie(COOKIE, path="/")
    return found
