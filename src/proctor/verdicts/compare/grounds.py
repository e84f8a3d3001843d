"""What the sandboxes of two runs were made of, task by task: image, host or not, network, limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proctor.quantity import plural, show, some
from proctor.verdicts.rollouts.evidence import HOST, identity

if TYPE_CHECKING:
    from proctor.model.record import AttemptRecord

_SHOWN = 3
_NETWORK = ("network", "allowed_hosts", "network_allow")


@dataclass(frozen=True, slots=True)
class Ground:
    """What one task ran on. Empty text: the record does not say."""

    image: str
    digest: str
    root: str
    host: bool
    network: str
    limits: str


def ground_of(record: AttemptRecord) -> Ground | None:
    """What an attempt ran on; nothing when its record is of a version that did not tell."""
    if not record.image:
        return None
    name, digest, host, root = identity(record.image)
    asked = record.ledger.get("limits")
    asked = asked if isinstance(asked, Mapping) else {}
    network = " ".join(_text(name, asked[name]) for name in _NETWORK if asked.get(name))
    limits = ", ".join(
        f"{name} {_text(name, value)}" for name, value in asked.items() if name not in _NETWORK
    )
    return Ground(name, digest, root, host, network, limits)


def _text(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if name.endswith("_bytes") and isinstance(value, int | float):
        return show(name, value)
    return str(value)


def grounds(found: Iterable[tuple[str, AttemptRecord]]) -> dict[str, Ground]:
    """Task → what it ran on, by the first of its attempts that tells."""
    made: dict[str, Ground] = {}
    for task, record in found:
        if task not in made and (ground := ground_of(record)):
            made[task] = ground
    return made


def ground_differences(a: Mapping[str, Ground], b: Mapping[str, Ground]) -> list[str]:
    """One sentence for each thing in which tasks that both sides have ran on something else."""
    images, roots, networks, limits = [], [], [], []
    for task in [task for task in a if task in b]:
        one, two = a[task], b[task]
        if one.host != two.host:
            roots.append(f"{task} ({_root(one)} → {_root(two)})")
        elif _differ(one, two):
            images.append(f"{task} ({_image(one)} → {_image(two)})")
        if one.network != two.network:
            networks.append(f"{task} ({one.network or 'unknown'} → {two.network or 'unknown'})")
        if one.limits != two.limits:
            limits.append(f"{task} ({one.limits or 'none'} → {two.limits or 'none'})")
    return [
        _sentence(tasks, what)
        for tasks, what in (
            (roots, "on this machine's own system on one side and on an image on the other"),
            (images, "on different images"),
            (networks, "with different networks"),
            (limits, "with different limits"),
        )
        if tasks
    ]


def _sentence(tasks: list[str], what: str) -> str:
    return f"{plural(len(tasks), 'task')} ran {what}: {some(tasks, _SHOWN)}"


def _differ(one: Ground, two: Ground) -> bool:
    """By the digest of the image where both know it, else by that of the root."""
    if one.digest and two.digest:
        return one.digest != two.digest
    return bool(one.root and two.root) and one.root != two.root


def _image(ground: Ground) -> str:
    known = ground.digest or ground.root
    return " ".join(filter(None, (ground.image, known.removeprefix("sha256:")[:12])))


def _root(ground: Ground) -> str:
    return HOST if ground.host else _image(ground) or "an image"
