"""What every page must be: closed, without anything that runs or is fetched, linked within its folder."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from proctor.render.document.html import html
from proctor.render.results.run import run_document

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
_VOID = {"meta", "br", "hr", "img", "input", "link"}


class Checker(HTMLParser):
    """Fails on what no page may have; keeps tags, text and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert tag not in {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert name not in {"src", "srcset", "action", "xlink:href"}
            if name == "href":
                assert not value.startswith(("/", "..")), value
                assert ":" not in value, value
                assert not re.search(r"/$|^trials/[^/]+/\d+(\.attempt-\d+)?$", value), f"{value} is a folder"
                self.links.append(value)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def checked(page: str) -> Checker:
    """What the page holds, once it is sound."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def render(data) -> str:
    """The page of a run."""
    data.memo.clear()
    return html(run_document(data))
