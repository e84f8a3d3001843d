"""Requests to a server: repeated where that is safe, and refusals as errors of Proctor.

What changes something carries an idempotency key, so a request whose answer was lost can be sent again. A
redirection is never followed: it would carry the token to somewhere else.
"""

from __future__ import annotations

import http.client
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from proctor.errors import (
    NotFoundError,
    ProctorError,
    RunHeldError,
    SpecError,
    StoreError,
    TaskError,
    UsageError,
)
from proctor.outgoing import is_loopback, trusted

TRIES = 6
"""How often a request is sent when the server does not answer; the pauses grow to two seconds."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 2.0
_AGAIN = frozenset({429, 502, 503, 504})
_TIMEOUT_S = 60.0
_ERRORS: Mapping[str, type[ProctorError]] = {
    "not_found": NotFoundError,
    "spec_invalid": SpecError,
    "spec_forbidden": SpecError,
    "task_invalid": TaskError,
    "run_held": RunHeldError,
}
Params = Mapping[str, Any]


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(slots=True)
class Connection:
    """One server, and whom it knows us as."""

    url: str
    token: str = field(default="", repr=False)
    ca_bundle: str = ""
    tries: int = TRIES
    _opener: OpenerDirector | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.url = checked_url(self.url)

    def get(self, path: str, /, **params: Any) -> Any:
        """The answer to a question, as data."""
        with self.open("GET", path, params=params) as answer:
            return json.load(answer)

    def get_bytes(self, path: str, /, **params: Any) -> tuple[bytes, Mapping[str, str]]:
        """An answer that is no JSON, and its headers."""
        with self.open("GET", path, params=params) as answer:
            return answer.read(), answer.headers

    def send(self, method: str, path: str, body: Any = None, /, **params: Any) -> Any:
        """Change something, once; the answer as data, None where there is none."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        with self.open(method, path, params=params, data=data, headers=headers) as answer:
            read = answer.read()
        return json.loads(read) if read else None

    def send_file(self, path: str, file: Path, name: str, fields: Mapping[str, str]) -> Any:
        """Upload a file as a form, once."""
        mark = uuid.uuid4().hex
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
            for key, value in fields.items()
        ]
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        parts += [head.encode(), b"Content-Type: application/zip\r\n\r\n", file.read_bytes()]
        parts.append(f"\r\n--{mark}--\r\n".encode())
        headers = {
            "Idempotency-Key": uuid.uuid4().hex,
            "Content-Type": f"multipart/form-data; boundary={mark}",
        }
        with self.open("POST", path, data=b"".join(parts), headers=headers) as answer:
            return json.load(answer)

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> Iterator[Any]:
        """An answer, open for reading; a ProctorError when the server refuses or cannot be reached."""
        given = [(key, value) for key, value in (params or {}).items() if value is not None]
        asked = f"?{urlencode(given, doseq=True)}" if given else ""
        request = Request(  # noqa: S310 - the scheme was checked
            f"{self.url}{path}{asked}",
            data=data,
            headers={**self._headers(), **(headers or {})},
            method=method,
        )
        try:
            with self._answer(request, timeout_s) as answer:
                yield answer
        except (http.client.HTTPException, OSError) as error:
            raise self._unreachable(error) from error

    def _headers(self) -> dict[str, str]:
        found = {"Accept": "application/json, */*", "X-Proctor-Request": "1", "User-Agent": "proctor"}
        return found | ({"Authorization": f"Bearer {self.token}"} if self.token else {})

    def _answer(self, request: Request, timeout_s: float) -> IO[bytes]:
        pause_s = _FIRST_PAUSE_S
        for left in reversed(range(self.tries)):
            try:
                return self._open(request, timeout_s)
            except HTTPError as error:
                problem = _problem(error)
                if error.code not in _AGAIN or not left or problem.get("code") == "quota":
                    raise refusal(problem, error.code) from None
                pause_s = max(pause_s, _seconds(error.headers.get("Retry-After")))
            except (http.client.HTTPException, OSError) as error:
                if not left or (isinstance(error, URLError) and "CERTIFICATE" in str(error.reason)):
                    raise self._unreachable(error) from error
            time.sleep(min(pause_s, 30.0))
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)
        raise AssertionError

    def _open(self, request: Request, timeout_s: float) -> IO[bytes]:
        if self._opener is None:
            host = urlsplit(self.url).netloc
            proxies = ProxyHandler({} if is_loopback(host) else None)
            try:
                trust = HTTPSHandler(context=trusted(self.ca_bundle)) if self.url[:5] == "https" else None
            except OSError as error:
                raise UsageError(f"{self.ca_bundle}: not a file of certificates: {error}") from error
            self._opener = build_opener(proxies, _NoRedirect, *([trust] if trust else []))
        found: IO[bytes] = self._opener.open(request, timeout=timeout_s)
        return found

    def _unreachable(self, error: Exception) -> StoreError:
        why = getattr(error, "reason", None) or error
        return StoreError(
            f"{self.url}: the server does not answer: {why}; is 'proctor serve' running there, and is the "
            "address right?"
        )


def checked_url(url: str) -> str:
    """An address without its last slash; UsageError when it is none, or holds a password."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"'{url}' is not the address of a server, such as http://127.0.0.1:8640")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("the address of a server holds no name, password or parameters; use a token")
    return url.rstrip("/")


def refusal(problem: Mapping[str, Any], status: int) -> ProctorError:
    """What a refusal of the server is here."""
    code = str(problem.get("code", ""))
    said = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
    errors: Sequence[Any] = problem.get("errors") or ()
    more = [f"  {each['where']}: {each['message']}" for each in errors if isinstance(each, Mapping)]
    text = "\n".join([said, *more[1:]])
    if code == "not_signed_in":
        return UsageError(f"{said}; sign in with 'proctor login URL', or set PROCTOR_TOKEN")
    if code in _ERRORS:
        return _ERRORS[code](text)
    return UsageError(text) if status < 500 else StoreError(f"{said} (HTTP {status})")


def _problem(error: HTTPError) -> Mapping[str, Any]:
    with error:
        try:
            found = json.loads(error.read(1 << 20))
        except (ValueError, OSError, http.client.HTTPException):
            return {}
    return found if isinstance(found, Mapping) else {}


def _seconds(value: str | None) -> float:
    try:
        return float(value or 0)
    except ValueError:
        return 0.0
