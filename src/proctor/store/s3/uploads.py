"""Uploads in parts that a killed process left unfinished: they are not listed as objects, and are paid for.

The library cannot list them, so two requests of the API are signed here.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from proctor.errors import StoreError, UsageError
from proctor.outgoing import trusted
from proctor.store.s3.address import Place

_TIMEOUT_S = 30.0
_HAS_NONE = {"NotImplemented", "NoSuchUpload"}
"""What stores say that keep no list of unfinished uploads."""
_UPLOAD = re.compile(r"<Upload>(.*?)</Upload>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An upload that has begun and not ended."""

    key: str
    upload_id: str
    age_s: float
    """By the store's own clock."""


def unfinished(place: Place, ca_bundle: str = "") -> Iterator[Unfinished]:
    """Every unfinished upload below the place."""
    prefix = f"{place.prefix}/" if place.prefix else ""
    marks = {"key-marker": "", "upload-id-marker": ""}
    while True:
        query = {"prefix": prefix, "uploads": "", **{name: mark for name, mark in marks.items() if mark}}
        text, now = _ask(place, "GET", "", query, ca_bundle)
        for found in _UPLOAD.findall(text):
            began = datetime.fromisoformat(_field(found, "Initiated"))
            yield Unfinished(_field(found, "Key"), _field(found, "UploadId"), (now - began).total_seconds())
        if _field(text, "IsTruncated") != "true":
            return
        marks = {
            "key-marker": _field(text, "NextKeyMarker"),
            "upload-id-marker": _field(text, "NextUploadIdMarker"),
        }


def abort(place: Place, upload: Unfinished, ca_bundle: str = "") -> None:
    """Give up an upload; its parts are removed."""
    _ask(place, "DELETE", upload.key, {"uploadId": upload.upload_id}, ca_bundle)


def _field(text: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return unescape(found[1]) if found else ""


def _ask(place: Place, method: str, key: str, query: dict[str, str], ca_bundle: str) -> tuple[str, datetime]:
    endpoint = place.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    endpoint = (endpoint or f"https://s3.{_region(place)}.amazonaws.com").rstrip("/")
    path = quote(f"/{place.bucket}/{key}" if key else f"/{place.bucket}", safe="/-_.~")
    sent = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
    headers = _signed(place, method, urlsplit(endpoint).netloc, path, sent)
    request = Request(f"{endpoint}{path}?{sent}", method=method, headers=headers)  # noqa: S310 - http(s) only
    context = trusted(ca_bundle) if endpoint.startswith("https") else None
    try:
        with urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310 - same
            now = parsedate_to_datetime(answer.headers["Date"]) if "Date" in answer.headers else _utc()
            return answer.read().decode(), now
    except HTTPError as error:
        with error:
            code = _field(error.read().decode(errors="replace"), "Code")
        if method == "GET" and code in _HAS_NONE:
            return "", _utc()
        raise StoreError(
            f"{place.where}: unfinished uploads: the store refused with {error.code} {code}"
        ) from None
    except URLError as error:
        raise StoreError(
            f"{place.where}: unfinished uploads: the store does not answer ({error.reason})"
        ) from None


def _signed(place: Place, method: str, host: str, path: str, query: str) -> dict[str, str]:
    """The headers of a request with AWS's signature, version 4."""
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise UsageError(
            "unfinished uploads can be listed with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only; "
            "with the role of a machine let a rule of the bucket end them"
        )
    moment = _utc().strftime("%Y%m%dT%H%M%SZ")
    nothing = hashlib.sha256().hexdigest()
    headers = {"host": host, "x-amz-content-sha256": nothing, "x-amz-date": moment}
    if token := os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    asked = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{nothing}"
    scope = f"{moment[:8]}/{_region(place)}/s3/aws4_request"
    to_sign = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(asked.encode()).hexdigest()))
    signing = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), to_sign):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    shown = f"Credential={key}/{scope}, SignedHeaders={names}, Signature={signing.hex()}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {shown}"}


def _region(place: Place) -> str:
    return place.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _utc() -> datetime:
    return datetime.now(UTC)
