"""One browser and one server for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser import store
from tests.server.conftest import Serving, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process has one browser: the whole folder goes to one worker."""
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with runs of every kind."""
    home = tmp_path_factory.mktemp("page")
    store.fill(home / ".proctor", many_trials=2_000, many_steps=1_500)
    with running(home) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium. Its driver keeps an event loop in this thread, so it ends with the module."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(
            executable_path="/usr/bin/chromium" if Path("/usr/bin/chromium").exists() else None,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield found
        found.close()


@pytest.fixture
def page(site: Serving, browser: Browser) -> Iterator[Page]:
    """A tab of its own. Whatever the page complains about fails the test."""
    context = browser.new_context(base_url=site.address, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(15_000)
    found = context.new_page()
    complaints: list[str] = []
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    found.on("requestfailed", lambda asked: None)
    hosts: set[str] = set()
    found.on("request", lambda asked: hosts.add(asked.url.split("/")[2]))
    yield found
    context.close()
    answers = ("ERR_", "status of 403", "status of 404")
    assert not [each for each in complaints if not any(known in each for known in answers)], complaints
    assert hosts <= {site.address.split("/")[2]}, "no request goes to another host"
