"""From the files a verifier left to one reward. The agent's reach ended before they were written."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 20
_MAX_VALUE = 1e12


class RewardInvalid(Exception):  # noqa: N818 - becomes the outcome of the same name
    """There is a reward file, and it says nothing usable."""


class RewardMissing(Exception):  # noqa: N818 - becomes `verifier_error`
    """The verifier ended without a reward file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """What the verifier said."""

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    source: str = "reward.json"


def read_reward(folder: Path) -> Reward:
    """`reward.json` wins over `reward.txt`. Links were dropped on the way out; nothing else is followed."""
    for name in ("reward.json", "reward.txt"):
        with suppress(OSError):
            fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode):
                    return parse_reward(name, os.read(fd, min(status.st_size, MAX_BYTES + 1)))
            finally:
                os.close(fd)
    raise RewardMissing("the tests ended without writing reward.json or reward.txt")


def parse_reward(name: str, data: bytes) -> Reward:
    """What the bytes of a `reward.json` or `reward.txt` say."""
    if len(data) > MAX_BYTES:
        raise RewardInvalid(f"{name} has more than {MAX_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise RewardInvalid(f"{name} is not UTF-8 text") from error
    return _from_json(text) if name == "reward.json" else _from_text(text)


def _from_text(text: str) -> Reward:
    words = text.split()
    if len(words) != 1:
        raise RewardInvalid(
            "reward.txt is empty" if not words else f"reward.txt says {text[:80]!r}, not one number"
        )
    try:
        value = float(words[0])
    except ValueError as error:
        raise RewardInvalid(f"reward.txt says {words[0][:80]!r}, not a number") from error
    return Reward(value=_bounded("reward.txt", value), parts={"reward": value}, source="reward.txt")


def _from_json(text: str) -> Reward:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RewardInvalid(f"reward.json is not valid JSON: {error}") from error
    if isinstance(data, int | float) and not isinstance(data, bool):
        data = {"reward": data}
    if not isinstance(data, dict) or not data:
        raise RewardInvalid("reward.json must be a mapping of names to numbers, with at least one")
    parts: dict[str, float] = {}
    for name, value in data.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RewardInvalid(f"reward.json: '{name[:80]}' is not a number")
        if not math.isfinite(value) or abs(value) > _MAX_VALUE:
            raise RewardInvalid(f"reward.json: '{name[:80]}' is {value}")
        parts[name] = float(value)
    value = parts["reward"] if "reward" in parts else math.fsum(parts.values()) / len(parts)
    return Reward(value=_bounded("reward.json", value), parts=parts)


def _bounded(file: str, value: float) -> float:
    """A reward is a fraction; tests that score in points report them under other names."""
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise RewardInvalid(f"{file}: the reward {value} is not between 0 and 1")
    return value
