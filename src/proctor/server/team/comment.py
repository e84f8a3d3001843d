"""The verdict of a gate as a comment of a pull request: written once, replaced by the next verdict.

For servers with GitHub's API of comments (GitHub, Gitea, Forgejo). The address of the webhook is that of the
comments, with `{pr}` where the number belongs; a run says its number with the tag `pr:12`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.render.ci import MARKER
from proctor.server.engine.judging import COMMENT
from proctor.server.team.outside import Answer, Outside

NUMBER = "{pr}"
_TAG = re.compile(r"pr:(\d{1,9})")
_MOST_BYTES = 1 << 18
_PAGE = 100


async def post_comment(outside: Outside, url: str, secret: str, about: Mapping[str, Any]) -> Answer:
    """Write or replace the comment of a run's verdict."""
    run = about["run"]
    tags = [tag[1] for each in run["tags"] if (tag := _TAG.fullmatch(each))]
    if NUMBER in url and not tags:
        return Answer(200, f"run {run['id']} has no tag pr:NUMBER; nothing was written")
    text = _text(run)
    if not text:
        return Answer(200, f"run {run['id']} has no verdict; nothing was written")
    address = url.replace(NUMBER, tags[0] if tags else "")
    headers = {
        "Authorization": f"Bearer {secret}",
        "Accept": "application/json",
        "Content-Type": "application/json",
    }
    found = await outside.send("GET", f"{address}?per_page={_PAGE}&limit={_PAGE}", None, headers)
    if not found.good:
        return found
    body = json.dumps({"body": text}).encode()
    mine = _mine(found.body)
    if mine is None:
        return await outside.send("POST", address, body, headers)
    return await outside.send("PATCH", f"{_comments(address)}/{mine}", body, headers)


def _comments(address: str) -> str:
    """Where comments are changed: `…/issues/12/comments` → `…/issues/comments`."""
    head, _, last = address.rstrip("/").rpartition("/")
    return f"{head.rpartition('/')[0]}/{last}"


def _mine(body: bytes) -> int | None:
    """The comment that was written before."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and str(each.get("body", "")).startswith(MARKER):
            number = each.get("id")
            return number if isinstance(number, int) else None
    return None


def _text(run: Mapping[str, Any]) -> str:
    if not run["folder"]:
        return ""
    try:
        text = read_small(Path(run["folder"], COMMENT), _MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    link = f"\n\n[All trials of run {run['id']}]({run['url']})\n" if run["url"] else ""
    return f"{text.rstrip()}{link}"
