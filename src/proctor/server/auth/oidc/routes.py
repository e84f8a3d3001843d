"""`/api/oidc`: sign in through the issuer that the settings name, and come back with a session.

Between leaving and coming back, what must match is in a cookie that only this server can read: it is
encrypted, lasts ten minutes, and is of no use without the code that the issuer gives.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from proctor.errors import StoreError
from proctor.server.auth.caller import Open, Shared
from proctor.server.auth.oidc.id_token import refused
from proctor.server.auth.oidc.issuer import Issuer, configured
from proctor.server.auth.oidc.membership import ALL_PROJECTS, Grant, allowed, user_of
from proctor.server.auth.tokens import COOKIE, SIGN_IN, hashed, new_secret, put_cookie
from proctor.server.problem import Problem
from proctor.server.route import Route, answer
from proctor.server.state import Mode, State
from proctor.store.store import Store

router = APIRouter(prefix="/api/oidc", tags=["session"], route_class=Route)

LEFT = "proctor_sign_in"
"""The cookie of somebody who is at the issuer."""
LEFT_S = 600
SESSION_S = 12 * 3600.0
"""How long a session lasts: what the issuer says is asked again after that."""
_PLACE = "/api/oidc"

Ignored = Annotated[str | None, Query(max_length=4096, include_in_schema=False)]


class Leaving(msgspec.Struct, frozen=True):
    """What must match when somebody comes back."""

    state: str
    nonce: str
    verifier: str
    next: str
    project: str | None
    redirect: str
    at: float


@router.get("", summary="Whether people may sign in through an issuer")
async def show_oidc(_: Open, shared: Shared) -> Response:
    """`login` is where to go; null where a token is needed."""
    works = shared.mode is Mode.TOKENS and configured(shared.settings)
    return answer({"login": f"{_PLACE}/login" if works else None})


@router.get("/login", summary="Sign in through the issuer", response_class=RedirectResponse, status_code=303)
async def begin_login(
    request: Request,
    _: Open,
    shared: Shared,
    then: Annotated[str, Query(alias="next", max_length=2000, description="A page of this server.")] = "/",
    project: Annotated[str | None, Query(max_length=64, description="For members of several.")] = None,
) -> Response:
    """Sends the browser to the issuer."""
    leaving = Leaving(
        state=secrets.token_urlsafe(32),
        nonce=secrets.token_urlsafe(32),
        verifier=secrets.token_urlsafe(48),
        next=own_page(then),
        project=project,
        redirect=_redirect(request, shared),
        at=shared.clock(),
    )
    challenge = hashlib.sha256(leaving.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": shared.settings.oidc_client_id,
        "redirect_uri": leaving.redirect,
        "scope": " ".join(shared.settings.oidc_scopes),
        "state": leaving.state,
        "nonce": leaving.nonce,
        "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    found = RedirectResponse(await _issuer(shared).sends_to(query, leaving.at), 303)
    sealed = shared.vault.seal(msgspec.json.encode(leaving).decode()).decode()
    # Lax: coming back from the issuer is a visit from another site.
    put_cookie(found, request, LEFT, sealed, LEFT_S, path=_PLACE, same_site="lax")
    return found


@router.get(
    "/callback", summary="Come back from the issuer", response_class=RedirectResponse, status_code=303
)
async def end_login(
    request: Request,
    _: Open,
    shared: Shared,
    code: Annotated[str, Query(max_length=4096)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
    iss: Annotated[str | None, Query(max_length=2000)] = None,
    error: Annotated[str | None, Query(max_length=200)] = None,
    error_description: Ignored = None,  # noqa: ARG001 - other people's words
    error_uri: Ignored = None,  # noqa: ARG001
    session_state: Ignored = None,  # noqa: ARG001 - some issuers send these
    scope: Ignored = None,  # noqa: ARG001
    authuser: Ignored = None,  # noqa: ARG001
    hd: Ignored = None,  # noqa: ARG001
    prompt: Ignored = None,  # noqa: ARG001
) -> Response:
    """Takes the issuer's code for an ID token, and begins a session."""
    issuer, left, now = _issuer(shared), _left(request, shared), shared.clock()
    if not hmac.compare_digest(state.encode(), left.state.encode()):
        raise refused("it belongs to another sign-in; sign in again")
    if iss is not None and iss != shared.settings.oidc_issuer:
        raise refused("it is of another issuer")
    if error or not code:
        raise refused("it did not let you in; sign in again")
    claims = await issuer.claims(code, left.verifier, left.redirect, left.nonce, now)
    session = await shared.store(_begin, shared, claims, left.project, now)
    found = RedirectResponse(left.next, 303)
    put_cookie(found, request, COOKIE, session, int(SESSION_S))
    found.delete_cookie(LEFT, path=_PLACE)
    return found


def _begin(store: Store, state: State, claims: dict[str, Any], project: str | None, now: float) -> str:
    """A session for whoever the claims name; behind it is a token that nobody has, which can be revoked."""
    grant: Grant = allowed(claims, state.settings, store, project)
    user, session = user_of(claims, state.settings), new_secret()
    home = None if grant.project == ALL_PROJECTS else grant.project
    accounts, token_id = store.service.accounts, f"{SIGN_IN}{secrets.token_hex(6)}"
    accounts.forget_sign_ins()
    accounts.add_token(
        token_id,
        hashed(new_secret()),
        name="signed in",
        user=user,
        project=home,
        scopes=grant.scopes,
        expires_at=now + SESSION_S,
        member=False,  # groups change at the issuer, and whoever leaves one is out
    )
    accounts.add_session(hashed(session), token_id, SESSION_S)
    if accounts.token_by_session(hashed(session)) is None:
        raise Problem("forbidden", f"The user '{user}' is disabled")
    store.service.audit.add(user, "session.begin", token_id, token=token_id, project=home or "", by="oidc")
    return session


def own_page(then: str) -> str:
    """A page of this server; anything that a browser could take for another place is the first page."""
    plain = then.startswith("/") and not then.startswith(("//", "/api/")) and "\\" not in then
    return then if plain and then.isascii() and then.isprintable() else "/"


def _issuer(state: State) -> Issuer:
    if state.mode is not Mode.TOKENS or not configured(state.settings):
        raise Problem("not_found", "This server knows no issuer; sign in with a token")
    if state.issuer is None:
        state.issuer = Issuer(state.settings)
    return state.issuer


def _left(request: Request, state: State) -> Leaving:
    sealed = request.cookies.get(LEFT, "")
    try:
        left = msgspec.json.decode(state.vault.open(sealed.encode()), type=Leaving)
    except (StoreError, msgspec.MsgspecError):
        raise refused("this browser has not begun to sign in; sign in again") from None
    if not 0 <= state.clock() - left.at < LEFT_S:
        raise refused("it came too late; sign in again")
    return left


def _redirect(request: Request, state: State) -> str:
    own = state.settings.serve_url.rstrip("/") or f"{request.url.scheme}://{request.url.netloc}"
    return f"{own}{_PLACE}/callback"
