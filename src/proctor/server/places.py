"""Paths of the server's machine, taken out of what is told to callers who may not run code there.

Messages of the store, of sandboxes and images, warnings of plans and errors of trials name files where they
are. They come from everywhere, so they are looked for where answers leave, not where they are made.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from starlette.responses import Response

from proctor.settings import Settings

_TEXTS = ("application/json", "application/problem+json", "text/html", "text/markdown")
_FEWEST_PARTS = 3
"""A folder such as `/root` is inside sandboxes too, where it says nothing of this machine."""


class Places:
    """The folders of a server."""

    def __init__(self, settings: Settings) -> None:
        roots = sorted(set(_roots(settings)), key=len, reverse=True)
        names = b"|".join(re.escape(root.encode("utf-8", "surrogateescape")) for root in roots)
        self._pattern = re.compile(rb"(?:" + names + rb")(?:/+|(?![\w.-]))")

    def hide(self, text: bytes) -> bytes:
        """The text without them: of a file below one, where it is in there."""
        return self._pattern.sub(b"", text)

    def hidden_in(self, answer: Response) -> Response:
        """The answer without them. Files and logs of attempts are as their authors wrote them."""
        kind = answer.headers.get("content-type", "").partition(";")[0]
        body = getattr(answer, "body", None)
        if kind not in _TEXTS or not isinstance(body, bytes):
            return answer
        shown = self.hide(body)
        if shown == body:
            return answer
        kept = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return Response(shown, answer.status_code, headers=kept, background=answer.background)


def _roots(settings: Settings) -> Iterator[str]:
    own = (settings.home, settings.output_dir, settings.rollouts_dir, settings.baselines.parent)
    for folder in (*own, Path.cwd(), Path(sys.prefix), Path(__file__).parents[2]):
        for path in (folder.expanduser().absolute(), folder.expanduser().resolve()):
            if len(path.parts) >= _FEWEST_PARTS or folder == settings.home != Path("/"):
                yield str(path)
