"""A CA bundle that sandboxes and builds trust, for machines behind a proxy that signs what it passes on.

It has a place of its own inside, so that the bundle of the image's distribution stays as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import UsageError

BUNDLE_PATH = "/etc/proctor-ca-bundle.pem"
_VARIABLES = (
    "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
    "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE",
)  # fmt: skip
_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class CaBundle:
    """Certificates in PEM form."""

    content: bytes

    @property
    def env(self) -> Mapping[str, str]:
        """What makes the usual programs use it."""
        return dict.fromkeys(_VARIABLES, BUNDLE_PATH)

    @property
    def digest(self) -> str:
        """`sha256:…`, for records."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    def file_in(self, folder: Path) -> Path:
        """A copy that every user of a container may read."""
        file = folder / f"ca-bundle-{self.digest[7:23]}.pem"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            writing = file.with_suffix(".new")
            writing.write_bytes(self.content)
            writing.chmod(0o644)
            writing.replace(file)
        return file


def read_ca_bundle(path: str) -> CaBundle | None:
    """The bundle that the setting names, None when it names none; UsageError when it cannot be one."""
    if not path:
        return None
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"setting 'ca_bundle': {file}: {error.strerror}") from error
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise UsageError(f"setting 'ca_bundle': {file} holds no certificate in PEM form")
    return CaBundle(content)
