"""Tokens and sessions: how they look, how they are hashed, who they are."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection

from proctor.server.auth.caller import SCOPES, Caller
from proctor.server.problem import Problem
from proctor.store.service.accounts import Token
from proctor.store.store import Store

PREFIX = "pt_"
COOKIE = "proctor_session"
SESSION_S = 30 * 86_400.0
"""How long a session lasts."""
ADMIN = "admin"


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


def first_admin(store: Store) -> str | None:
    """The first start of a server that needs tokens: the secret of its first token; None when it has some."""
    if store.service.accounts.tokens(limit=1):
        return None
    secret, _ = make_token(
        store, name="first admin", user=ADMIN, scopes=[ADMIN], project=None, expires_at=None
    )
    return secret
