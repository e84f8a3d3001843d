"""The address of blobs in a bucket: `s3://BUCKET/PREFIX?endpoint=…&region=…`. It never holds a secret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from proctor.errors import UsageError

WAIT_S = 120.0
"""How long a call waits for a store that does not answer, unless the address says otherwise."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", re.IGNORECASE)
_OPTIONS = ("endpoint", "region", "sse", "kms_key", "wait_s")
_ENCRYPTIONS = ("AES256", "aws:kms")
_CREDENTIALS = (
    "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the role of the machine, "
    "and never from the address"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where blobs are, and how they are to be kept there."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    """Of a store that is not Amazon's; empty: that of the region."""
    region: str = ""
    sse: str = ""
    """Encryption by the server: `AES256` or `aws:kms`; empty: as the bucket is set."""
    kms_key: str = ""
    wait_s: float = WAIT_S

    @property
    def where(self) -> str:
        """The address without its options, for messages."""
        path = f"/{quote(self.prefix)}" if self.prefix else ""
        return f"s3://{self.bucket}{path}"


def parse(url: str) -> Place:
    """The place behind an address; UsageError when it is wrong, or holds a secret (which is not repeated)."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise UsageError("the address of the blobs is not one of S3: s3://BUCKET/PREFIX?region=…") from None
    if "@" in parts.netloc or "@" in urlsplit(options.get("endpoint", "")).netloc:
        raise UsageError(f"the address of the blobs has a user or a password in it: {_CREDENTIALS}")
    for name in options:
        if re.search(r"secret|token|password|credential|access|signature", name, re.IGNORECASE):
            raise UsageError(f"the address of the blobs has '{name}' in it: {_CREDENTIALS}")
        if name not in _OPTIONS:
            raise UsageError(
                f"'{name}' is not an option of an s3:// address; options are {', '.join(_OPTIONS)}"
            )
    if not _BUCKET.fullmatch(parts.netloc):
        raise UsageError(f"'{parts.netloc}' is not the name of a bucket: s3://BUCKET/PREFIX")
    place = Place(
        bucket=parts.netloc,
        prefix=unquote(parts.path).strip("/"),
        wait_s=_seconds(options.pop("wait_s", "")),
        **options,
    )
    _check(place)
    return place


def _seconds(text: str) -> float:
    try:
        found = float(text or WAIT_S)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86_400:
        raise UsageError(f"wait_s={text}: not a number of seconds from 0 to 86400")
    return found


def _check(place: Place) -> None:
    if place.endpoint and not re.fullmatch(r"https?://[^/?#]+/?", place.endpoint):
        raise UsageError(f"endpoint={place.endpoint}: not the address of a server: https://HOST:PORT")
    if place.sse and place.sse not in _ENCRYPTIONS:
        raise UsageError(f"sse={place.sse}: the server's encryption is {' or '.join(_ENCRYPTIONS)}")
    if place.kms_key and place.sse != "aws:kms":
        raise UsageError("kms_key needs sse=aws:kms")
    if any(part in {"", ".", ".."} for part in place.prefix.split("/")) and place.prefix:
        raise UsageError(f"'{place.prefix}' is not a prefix of keys: s3://BUCKET/PREFIX")
