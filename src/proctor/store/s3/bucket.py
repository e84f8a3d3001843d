"""One bucket through obstore: each call is repeated while the store does not answer, for a stated time.

A call that waits says so once, with what it waits for. What the store refuses is not tried again.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from proctor.errors import MissingExtraError, StoreError
from proctor.store.s3.address import Place

T = TypeVar("T")
_log = logging.getLogger("proctor.store")
PIECE_BYTES = 8 << 20
"""What is sent or fetched at a time of a large object."""
_AT_ONCE = 3
"""Pieces of one upload that are on their way at the same time."""
_MOST_PIECES = 9_000
"""An upload has 10,000 at most."""
_PAGE = 1000
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_STATUS = re.compile(r"status code: (\d{3})")
_TRY_AGAIN = {408, 425, 429}
_NO_ANSWER_S = 60.0
_user_pid = 0
"""The process that uses obstore: its threads do not survive a fork."""


@dataclass(frozen=True, slots=True)
class Object:
    """One object as the store lists it."""

    key: str
    size_bytes: int
    modified_at: float
    """By the store's own clock."""


class Bucket:
    """The objects below a prefix. Safe between threads."""

    def __init__(self, place: Place, ca_bundle: str = "") -> None:
        self.place = place
        self.where = place.where
        try:
            import obstore
        except ImportError as error:
            raise MissingExtraError("obstore", "s3", "blobs on S3") from error
        self._api: Any = obstore
        self._store: Any = _open(place, ca_bundle)

    def put(self, key: str, data: bytes) -> None:
        """Write an object; it appears whole or not at all."""
        self._write(lambda: self._api.put(self._store, key, data, use_multipart=False), key)

    def put_file(self, key: str, path: Path, size_bytes: int) -> None:
        """Write a file as an object, a large one in parts: what is held in memory is bounded."""
        if size_bytes <= PIECE_BYTES:
            self.put(key, path.read_bytes())
            return
        piece = max(PIECE_BYTES, -(-size_bytes // _MOST_PIECES))
        self._write(
            lambda: self._api.put(self._store, key, path, chunk_size=piece, max_concurrency=_AT_ONCE), key
        )

    def copy(self, source: str, target: str) -> bool:
        """Copy inside the store; False when there is no source."""
        return self._patiently(f"copy {source}", lambda: self._copied(source, target))

    def read(self, key: str) -> bytes | None:
        """A whole object; None when there is no such object.

        Some stores answer whole to who asks for the part that is all of it, which the library refuses.
        """
        return self._got(key, lambda: self._api.get(self._store, key).bytes())

    def fetch(self, key: str, offset: int, length: int) -> bytes | None:
        """A part of an object; None when there is no such object."""
        return self._got(key, lambda: self._api.get_range(self._store, key, start=offset, length=length))

    def modified_at(self, key: str) -> float | None:
        """When an object was written, by the store's own clock; None when there is no such object."""

        def ask() -> float | None:
            try:
                return float(self._api.head(self._store, key)["last_modified"].timestamp())
            except FileNotFoundError:
                return None

        return self._patiently(f"look at {key}", ask)

    def _got(self, key: str, get: Callable[[], Any]) -> bytes | None:
        def got() -> bytes | None:
            try:
                return bytes(get())
            except FileNotFoundError:
                return None

        return self._patiently(f"read {key}", got)

    def list(self, prefix: str = "") -> Iterator[Object]:
        """Every object below a prefix, in the order of keys."""
        last: str | None = None
        while True:
            page = self._patiently("list objects", partial(self._page, prefix, last))
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1].key

    def remove(self, key: str) -> None:
        """Remove an object; one that is gone already is no error."""

        def delete() -> None:
            try:
                self._api.delete(self._store, key)
            except FileNotFoundError:
                return

        self._patiently(f"remove {key}", delete)

    def _page(self, prefix: str, after: str | None) -> Sequence[Object]:
        stream = self._api.list(self._store, prefix or None, offset=after, chunk_size=_PAGE)
        page: Sequence[Any] = next(iter(stream), ())
        return [Object(each["path"], each["size"], each["last_modified"].timestamp()) for each in page]

    def _copied(self, source: str, target: str) -> bool:
        try:
            self._api.copy(self._store, source, target)
        except FileNotFoundError:
            return False
        return True

    def _write(self, call: Callable[[], object], key: str) -> None:
        try:
            self._patiently(f"write {key}", call)
        except FileNotFoundError as error:
            raise StoreError(f"{self.where}: there is no such bucket; create it first") from error

    def _patiently(self, what: str, call: Callable[[], T]) -> T:
        """Call until the store answers, `wait_s` at most. A call may be made twice: each can be."""
        self._claim()
        from obstore.exceptions import BaseError

        began, pause_s = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return call()
            except BaseError as error:
                if reason := _final(error):
                    raise StoreError(f"{self.where}: cannot {what}: {reason}") from error
                waited_s = time.monotonic() - began
                if waited_s + pause_s > self.place.wait_s:
                    raise StoreError(
                        f"{self.where}: cannot {what}: the store has not answered for {waited_s:.0f} s "
                        f"({_short(error)}); check that it runs and can be reached. Nothing was lost"
                    ) from error
                if pause_s == _FIRST_PAUSE_S:
                    _log.warning(
                        "%s does not answer (%s): waiting up to %.0f s to %s",
                        self.where, _short(error), self.place.wait_s, what,
                    )  # fmt: skip
            time.sleep(pause_s * random.uniform(0.7, 1.0))  # noqa: S311 - so that callers do not come at once
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _claim(self) -> None:
        global _user_pid  # noqa: PLW0603 - of the process, as the library's threads are
        _user_pid = _user_pid or os.getpid()
        if _user_pid != os.getpid():
            raise StoreError(
                f"{self.where}: blobs on S3 cannot be used in a process forked from one that uses them"
            )


def _open(place: Place, ca_bundle: str) -> Any:
    from obstore.store import S3Store

    asked = place.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    options: dict[str, Any] = {
        "endpoint": place.endpoint.rstrip("/"),
        "region": place.region,
        "aws_server_side_encryption": place.sse,
        "aws_sse_kms_key_id": place.kms_key,
        "prefix": place.prefix,
    }
    trust: dict[str, Any] = (
        {"root_certificate": Path(ca_bundle).expanduser().read_bytes()} if ca_bundle else {}
    )
    return S3Store(
        place.bucket,
        client_options={  # type: ignore[arg-type,unused-ignore]
            "allow_http": asked.startswith("http://"),
            "connect_timeout": timedelta(seconds=10),
            "timeout": timedelta(seconds=_NO_ANSWER_S),
            **trust,
        },
        # Only what passes by itself: longer waits are ours, because we say that we wait.
        retry_config={
            "max_retries": 2,
            "retry_timeout": timedelta(seconds=10),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(milliseconds=500),
                "base": 2,
            },
        },
        **{name: value for name, value in options.items() if value},
    )


def _final(error: Exception) -> str:
    """Why the same call would fail again; empty when it may not."""
    text = str(error)
    if "169.254.169.254" in text or "credential" in text.lower():
        return (
            "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or give the machine a role"
        )
    status = _STATUS.search(text)
    if not status and "HttpError" in text:
        return _not_encrypted(text)
    if not status or int(status[1]) >= 500 or int(status[1]) in _TRY_AGAIN:
        return ""
    code = re.search(r"<Code>(\w+)</Code>", text)
    said = f"the store refused with {status[1]}{f' {code[1]}' if code else ''}"
    if code and code[1] == "RequestTimeTooSkewed":
        return f"{said}; this machine's clock is wrong: set it"
    if int(status[1]) in {401, 403}:
        return f"{said}; check the credentials and what they may do with the bucket"
    return f"{said}; check the name of the bucket, the region and the endpoint"


def _not_encrypted(text: str) -> str:
    """Why no line with TLS can be made; empty when it may be made later."""
    if untrusted := re.search(r"InvalidCertificate\(\s*(\w+)", text):
        return (
            f"the store's certificate is not trusted ({untrusted[1]}); set PROCTOR_CA_BUNDLE to a file with "
            "the certificate of its authority"
        )
    if "InvalidContentType" in text:
        return "the store does not speak TLS there; check whether its endpoint begins with http://"
    return ""


def _short(error: Exception) -> str:
    first, _, rest = str(error).partition("\n")
    line = first.partition("<?xml")[0]
    cause = re.search(r'message: "([^"]+)"', rest)  # the system's own words
    return cause[1] if cause else (line.rpartition(" - ")[2] or line).strip().rstrip(":")[:200]
