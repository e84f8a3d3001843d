"""Root file systems for sandboxes: from Dockerfiles, images and the host's own system, kept as layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.sandbox.image.images import Images

__all__ = ["Images"]


def __getattr__(name: str) -> Any:
    """Load late: who only lists images must not wait for what makes them."""
    if name != "Images":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from proctor.sandbox.image.images import Images

    return Images
