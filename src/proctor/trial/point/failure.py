"""Put an exception into words, within bounds: neither its message nor its traceback may be of any size."""

from __future__ import annotations

import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 16_000
_MAX_FRAMES = 40
_MAX_CAUSES = 4


def describe_failure(phase: str, error: BaseException) -> dict[str, Any]:
    """Phase, type, message and traceback: the fields of `model.record.Failure`."""
    return {
        "phase": phase,
        "type": type(error).__name__,
        "message": message_of(error),
        "traceback": traceback_of(error),
    }


def message_of(error: BaseException) -> str:
    """What the error says; its own `__str__` may fail, be endless or hold what no file can."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the error is foreign code, and this is where it is recorded
        text = "(its message could not be created)"
    return _clean(text, MAX_MESSAGE)


def traceback_of(error: BaseException) -> str:
    """The chain of causes, oldest first, as Python prints it; the harness's own frames are left out."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < _MAX_CAUSES:
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    parts = []
    for each in reversed(chain):
        frames = [
            frame
            for frame in traceback.extract_tb(each.__traceback__, limit=-_MAX_FRAMES)
            if "/proctor/trial/" not in frame.filename
        ]
        lines = "".join(traceback.format_list(frames))
        parts.append(
            f"Traceback (most recent call last):\n{lines}{type(each).__name__}: {message_of(each)}\n"
        )
    return _clean("\nwhich led to:\n\n".join(parts), MAX_TRACEBACK)


def _clean(text: str, limit: int) -> str:
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()
