"""`Idempotency-Key`: a request that is sent again has the answer of the first one, and is not done twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any, BinaryIO

from fastapi import Depends, Header, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from proctor.server.auth.caller import Caller
from proctor.server.problem import Problem
from proctor.server.state import State
from proctor.store.service.answers import Answer, Asked
from proctor.store.store import Store

HEADER = "idempotency-key"
_MOST = 200


async def idempotency_key(
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=_MOST,
            description="Any text of yours. For 24 hours the same request with the same key has the same "
            "answer and is not done again; another request with it is 422.",
        ),
    ] = None,
) -> str | None:
    """The header, for the documentation; `once` reads it."""
    return idempotency_key


Keyed = Annotated[str | None, Depends(idempotency_key)]
"""For routes that change something and honour the header."""


async def own_key(request: Request) -> Asked | None:
    """The key of a request, where there is one."""
    found: Asked | None = getattr(request.state, "asked", None)
    return found


OwnKey = Annotated[Asked | None, Depends(own_key)]
"""For such a route that keeps its answer itself, in the transaction of the change."""


async def once(
    request: Request,
    state: State,
    caller: Caller,
    handler: Callable[[Request], Coroutine[Any, Any, Response]],
    *,
    itself: bool,
) -> Response:
    """Handle a request, or answer as it was answered before; unless the handler does that `itself`."""
    key = request.headers.get(HEADER, "")
    if not key:
        return await handler(request)
    if len(key) > _MOST:
        raise Problem("bad_request", f"An Idempotency-Key has at most {_MOST} characters")
    owner = caller.token or caller.user
    fingerprint = await _fingerprint(request)
    if itself:
        request.state.asked = Asked(owner, key, fingerprint)
        return await handler(request)
    known = await state.store(_claim, owner, key, fingerprint)
    if known is not None:
        if known.status and known.fingerprint == fingerprint:
            known = replace(known, body=state.vault.open(known.body).encode())
        return again(known, fingerprint)
    try:
        answer = await handler(request)
    except BaseException:
        await state.store(_drop, owner, key)
        raise
    # Sealed: an answer may show a secret that is shown once, and who repeats the request needs it.
    body = state.vault.seal(bytes(getattr(answer, "body", b"")).decode())
    await state.store(_keep, owner, key, answer.status_code, answer.headers.get("content-type", ""), body)
    return answer


def again(known: Answer, fingerprint: str) -> Response:
    """What was answered before; a Problem when that was to something else, or nothing yet."""
    if known.fingerprint != fingerprint:
        raise Problem("idempotency_mismatch", "This Idempotency-Key was used for another request")
    if not known.status:
        raise Problem("conflict", "The same request is being worked on", headers={"Retry-After": "1"})
    kind = {"content-type": known.kind} if known.kind else {}
    return Response(known.body, known.status, headers={**kind, "idempotency-replayed": "true"})


async def _fingerprint(request: Request) -> str:
    """What a request is: its address and its content. Of a form its fields and the digests of its files."""
    digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    if not request.headers.get("content-type", "").startswith("multipart/"):
        digest.update(await request.body())
        return digest.hexdigest()
    # Not of the bytes as they came: whoever sends the same form again separates its parts by another text.
    # The handler gets the same form, which Starlette remembers.
    for name, value in (await request.form()).multi_items():
        if isinstance(value, UploadFile):
            part = [name, value.filename, value.content_type, await asyncio.to_thread(_digest, value.file)]
        else:
            part = [name, value]
        digest.update(json.dumps(part).encode())
    return digest.hexdigest()


def _digest(file: BinaryIO) -> str:
    """The digest of a file's content; it can be read from its beginning afterwards."""
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest()


def _claim(store: Store, owner: str, key: str, fingerprint: str) -> Answer | None:
    return store.service.answers.claim(owner, key, fingerprint)


def _keep(store: Store, owner: str, key: str, status: int, kind: str, body: bytes) -> None:
    store.service.answers.keep(owner, key, status=status, kind=kind, body=body)


def _drop(store: Store, owner: str, key: str) -> None:
    store.service.answers.drop(owner, key)
