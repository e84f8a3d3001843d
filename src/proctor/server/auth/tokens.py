"""Tokens and sessions: how they look, how they are hashed, who they are."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import replace
from typing import Literal
from urllib.parse import urlsplit

from fastapi import Request
from starlette.responses import Response

from proctor.server.auth.caller import SCOPES, Caller
from proctor.server.problem import Problem
from proctor.server.state import state_of
from proctor.store.service.accounts import Token
from proctor.store.store import Store

PREFIX = "pt_"
COOKIE = "proctor_session"
SESSION_S = 30 * 86_400.0
"""How long a session lasts."""
ADMIN = "admin"
SIGN_IN = "oidc_"
"""How the ids of tokens begin that stand behind a sign-in through an issuer."""
MEMBER = ("read", "run")
"""What a member of a project may do who signs in."""


def new_secret() -> str:
    """A token or session: 32 random bytes, so that a plain hash of it is enough."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """What is kept of it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def make_token(
    store: Store,
    *,
    name: str,
    user: str,
    scopes: Collection[str],
    project: str | None,
    expires_at: float | None,
) -> tuple[str, Token]:
    """A new token: the secret, which is shown once, and what is kept."""
    unknown = set(scopes) - SCOPES.keys()
    if unknown or not scopes:
        raise Problem("invalid", f"scopes: choose among {', '.join(SCOPES)}")
    if project is None and ADMIN not in scopes and not set(scopes) <= {"read", "worker"}:
        raise Problem("invalid", "project: a token that may run something belongs to one project")
    if project is not None and not store.service.accounts.has_project(project):
        raise Problem("not_found", f"There is no project '{project}'")
    secret, token_id = new_secret(), f"tok_{secrets.token_hex(6)}"
    store.service.accounts.add_token(
        token_id, hashed(secret), name=name, user=user, project=project, scopes=scopes, expires_at=expires_at
    )
    found = store.service.accounts.token(token_id)
    assert found is not None
    return secret, found


def caller_of(token: Token, *, by_cookie: bool = False) -> Caller:
    """Who a token is. An admin's sees every project."""
    project = None if ADMIN in token.scopes else token.project
    return Caller(token.user, frozenset(token.scopes), project, token.id, by_cookie)


def present_caller(store: Store, user: str, project: str, token_id: str) -> Caller:
    """Who asked for something earlier, with what they may do in its project now; a Problem for nothing.

    That is what their token still allows. A sign-in lasts for hours only: after it a member has what members
    have, and whoever was let in by a group of the issuer has nothing until they sign in again.
    """
    accounts = store.service.accounts
    if not accounts.works(user):
        raise Problem("forbidden", f"The owner '{user}' has been disabled")
    if token := accounts.valid_token(token_id):
        present = caller_of(token)
        if present.sees(project):
            return replace(present, project=project)
    elif token_id.startswith(SIGN_IN):
        known = accounts.token(token_id)
        if accounts.is_member(project, user) and not (known and known.revoked_at):
            return Caller(user, frozenset(MEMBER), project, token_id)
        raise Problem(
            "forbidden",
            f"The sign-in of the owner '{user}' has ended, and they are no member of '{project}'; they sign "
            "in and change the schedule, or an administrator adds them to the project",
        )
    raise Problem(
        "forbidden",
        f"The token with which '{user}' made it was revoked or has expired ('{token_id}'); they change the "
        "schedule with another token of theirs, or remove it",
    )


def put_cookie(
    answer: Response,
    request: Request,
    name: str,
    value: str,
    lasts_s: int,
    *,
    path: str = "/",
    same_site: Literal["lax", "strict"] = "strict",
) -> None:
    """Set a cookie that scripts cannot read; only for TLS where people reach the server by that.

    Behind a proxy that ends TLS the request itself says nothing of it: `serve_url` does.
    """
    served = urlsplit(state_of(request).settings.serve_url).scheme
    answer.set_cookie(
        name,
        value,
        max_age=lasts_s,
        httponly=True,
        samesite=same_site,
        secure="https" in {request.url.scheme, served},
        path=path,
    )


def first_admin(store: Store) -> str | None:
    """The first start of a server that needs tokens: the secret of its first token; None when it has some."""
    if store.service.accounts.tokens(limit=1):
        return None
    secret, _ = make_token(
        store, name="first admin", user=ADMIN, scopes=[ADMIN], project=None, expires_at=None
    )
    return secret
