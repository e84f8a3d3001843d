"""Which changed files a package manager explains: apt, pip and npm write down what they installed.

These records are the agent's to forge, so they never excuse a change of what every verifier runs on.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proctor.sandbox.lower import Lower
from proctor.trial.task.state import Entry

STATUS = "var/lib/dpkg/status"
INFO = "var/lib/dpkg/info"
SITE = re.compile(r"(?P<site>(?:.*/)?(?:lib|lib64)/python\d(?:\.\d+)?/(?:site|dist)-packages)/(?P<rest>.+)")
_DIST = re.compile(r"(?P<name>[^/]+?)-[^/-]*\.(?:dist|egg)-info")
_NODE = re.compile(r"(?:.*/)?node_modules/(?:@[^/]+/)?[^/@.][^/]*")
_TOOLS = re.compile(
    r"(bash|dash|coreutils|busybox|bsdutils|debianutils|util-linux|grep|sed|diffutils|findutils|[mg]awk|"
    r"libc6|libc-bin|libtinfo6|libselinux1|libpcre2-8-0|libacl1|libattr1|libgcc-s1|zlib1g|libexpat1|perl-base|"
    r"(lib)?python3(\.\d+)?(-minimal|-stdlib)?|python3-(pytest|pluggy|iniconfig)|curl|wget|git)"
)
"""Packages of what nearly every verifier runs on."""


@dataclass(slots=True)
class Packages:
    """What was installed, upgraded or removed since the image."""

    paths: dict[str, str] = field(default_factory=dict)
    """Path → the Debian package that now has it."""
    units: dict[str, str] = field(default_factory=dict)
    """Path of a folder or file in a folder of Python packages → its distribution."""
    nodes: set[str] = field(default_factory=set)
    """Folders of node packages."""
    upgraded: set[str] = field(default_factory=set)
    """Debian packages whose version differs from the image's, or that the image has and are gone."""

    def explains(self, path: str) -> bool:
        """Whether a package other than those of every verifier's tools has this path."""
        name = self.paths.get(path)
        if name is not None:
            return not _TOOLS.fullmatch(name)
        return self.distribution(path) is not None or self._of_node(path)

    def distribution(self, path: str) -> str | None:
        """The Python distribution that now has a path."""
        found = SITE.fullmatch(path)
        if not found:
            return self.units.get(path)
        top = found["rest"].partition("/")[0]
        return self.units.get(f"{found['site']}/{top}")

    def _of_node(self, path: str) -> bool:
        found = _NODE.match(path)
        return found is not None and found[0] in self.nodes


def is_record(path: str) -> bool:
    """Whether a file says what was installed, and must be read for `packages_of`."""
    if path == STATUS or (path.startswith(f"{INFO}/") and path.endswith(".list")):
        return True
    return path.endswith("-info/RECORD")


def packages_of(found: Iterable[Entry], texts: Mapping[str, bytes], image: Lower) -> Packages:
    """What changed by way of a package manager. `texts` has the content of every `is_record`."""
    packages = Packages()
    if STATUS in texts:
        _debian(packages, texts, image)
    for entry in found:
        site = SITE.fullmatch(entry.path)
        if site:
            _python(packages, entry, site["site"], site["rest"], texts, image)
        elif entry.path.endswith("/package.json") and "node_modules/" in entry.path:
            packages.nodes.add(posixpath.dirname(entry.path))
    return packages


def versions(status: bytes) -> dict[str, str]:
    """Package → version of what is installed, from dpkg's status file."""
    found = {}
    for stanza in status.decode(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed") and "Package" in fields:
            found[fields["Package"]] = fields.get("Version", "")
    return found


def without(status: bytes, names: Iterable[str]) -> bytes:
    """The status file as if these packages had never been installed."""
    gone = set(names)
    stanzas = status.decode(errors="surrogateescape").split("\n\n")
    kept = [
        each
        for each in stanzas
        if not (m := re.search(r"^Package: (.*)$", each, re.MULTILINE)) or m[1] not in gone
    ]
    return "\n\n".join(kept).encode(errors="surrogateescape")


def _debian(packages: Packages, texts: Mapping[str, bytes], image: Lower) -> None:
    before, after = versions(image.read(STATUS) or b""), versions(texts[STATUS])
    packages.upgraded = {name for name in before if before[name] != after.get(name)}
    for name in {*after, *before}:
        if before.get(name) == after.get(name):
            continue
        for listing in _lists(name, texts, image):
            for line in listing.decode(errors="surrogateescape").splitlines():
                packages.paths[image.real(line)] = name


def _lists(name: str, texts: Mapping[str, bytes], image: Lower) -> list[bytes]:
    found = [
        text for path, text in texts.items() if re.fullmatch(rf"{INFO}/{re.escape(name)}(:\w+)?\.list", path)
    ]
    before = (image.read(f"{INFO}/{name}{suffix}.list") for suffix in ("", ":amd64", ":arm64", ":all"))
    return [*found, *(text for text in before if text is not None)]


def _python(
    packages: Packages, entry: Entry, site: str, rest: str, texts: Mapping[str, bytes], image: Lower
) -> None:
    """A distribution whose RECORD was written, or whose folder went, has its files by that RECORD."""
    top, _, name = rest.partition("/")
    dist = _DIST.fullmatch(top)
    if not dist or not (name == "RECORD" or (entry.kind == "gone" and not name)):
        return
    record = texts.get(entry.path) if name else image.read(f"{entry.path}/RECORD")
    known = dist["name"].lower().replace("-", "_")
    packages.units[f"{site}/{top}"] = known
    for row in csv.reader((record or b"").decode(errors="surrogateescape").splitlines()):
        if not row:
            continue
        if row[0].startswith(".."):
            packages.units[posixpath.normpath(f"{site}/{row[0]}")] = known
        elif not row[0].startswith(("/", "__pycache__")):
            packages.units[f"{site}/{row[0].partition('/')[0]}"] = known
