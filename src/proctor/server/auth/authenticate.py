"""Find out who asks: from the mode of the server, a token or a session cookie."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import Depends, Request

from proctor.errors import StoreError
from proctor.server.auth.caller import EVERYTHING, Caller
from proctor.server.auth.tokens import COOKIE, PREFIX, caller_of, hashed
from proctor.server.problem import Problem
from proctor.server.state import Mode, State, state_of
from proctor.store.service.accounts import Token
from proctor.store.store import Store

LOCAL = Caller("local", EVERYTHING)
VIEWER = Caller("local", frozenset({"read"}))
_REMEMBER_S = 2.0
"""How long a token is known to be valid without a look into the store: how soon a revocation is felt."""
_CHECK_S = 1.0
"""How often at most a stream looks whether its reader still may; with the above, how soon it ends."""
_USED_S = 60.0
"""How often at most it is written down that a token was used."""
_MOST_REMEMBERED = 10_000


class Known:
    """Tokens that were looked up a moment ago. Losing it costs a look."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, Token]] = {}
        self._used: dict[str, float] = {}

    def get(self, key: str, now: float) -> Token | None:
        """The token, if it was valid a moment ago."""
        at, token = self._found.get(key, (0.0, None))
        return token if token and now - at < _REMEMBER_S else None

    def put(self, key: str, token: Token, now: float) -> None:
        """Remember a token."""
        if len(self._found) >= _MOST_REMEMBERED:
            self._found.clear()
        self._found[key] = now, token

    def to_write(self, token: Token, now: float) -> bool:
        """Whether it is time to write down that it was used."""
        if now - self._used.get(token.id, token.used_at or 0.0) < _USED_S:
            return False
        self._used[token.id] = now
        return True

    def forget(self) -> None:
        """Look again: something was revoked."""
        self._found.clear()


async def authenticate(request: Request, state: State) -> Caller:
    """The caller; a Problem when nobody may ask like this."""
    if state.mode is Mode.VIEW:
        return VIEWER
    if state.mode is Mode.LOCAL:
        return LOCAL
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if given:
        if scheme.lower() != "bearer" or not given.strip().startswith(PREFIX):
            raise refused("The Authorization header is not 'Bearer pt_…'")
        return caller_of(await _look_up(state, given.strip(), cookie=False))
    if session := request.cookies.get(COOKIE):
        return caller_of(await _look_up(state, session, cookie=True), by_cookie=True)
    raise refused("Send a token as 'Authorization: Bearer pt_…', or sign in")


class Access:
    """The right to read a stream, which may end while the stream is open."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._state = state_of(request)
        self._caller: Caller = request.state.caller
        self._checked = time.monotonic()

    async def lasts(self) -> bool:
        """Whether the caller is still who they were, with the same scopes in the same project.

        While the store does not answer nobody can tell: it is asked again, and meanwhile nothing is sent.
        """
        if time.monotonic() - self._checked < _CHECK_S:
            return True
        while not self._state.stopping.is_set():
            try:
                present = await authenticate(self._request, self._state)
            except Problem:
                return False
            except StoreError:
                await asyncio.sleep(_CHECK_S)
                continue
            self._checked = time.monotonic()
            return present == self._caller
        return False


async def _access(request: Request) -> Access:
    return Access(request)


StreamAccess = Annotated[Access, Depends(_access)]
"""For routes whose answer is a stream: they ask it before they send anything."""


def refused(why: str) -> Problem:
    """Not signed in."""
    return Problem("not_signed_in", why, headers={"WWW-Authenticate": "Bearer"})


async def _look_up(state: State, secret: str, *, cookie: bool) -> Token:
    key, now = f"{int(cookie)}{hashed(secret)}", state.clock()
    token = state.known.get(key, now)
    if token is None:
        token = await state.store(_find, hashed(secret), cookie=cookie)
        if token is None:
            raise refused("The token or session is unknown, has expired or was revoked")
        state.known.put(key, token, now)
    if state.known.to_write(token, now):
        await state.store(_used, token.id)
    return token


def _find(store: Store, key: str, *, cookie: bool) -> Token | None:
    accounts = store.service.accounts
    return accounts.token_by_session(key) if cookie else accounts.token_by_hash(key)


def _used(store: Store, token_id: str) -> None:
    store.service.accounts.used([token_id])
