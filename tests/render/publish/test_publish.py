"""A published site: every link leads to a page of it, nothing is fetched, only changes are written."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.made_rollouts import planned, record

from proctor.cli.main import main
from proctor.errors import Exit
from proctor.model.document import Cell, Document, Section, Table, Text
from proctor.model.plan import Plan
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.render.publish.relink import Links, relinked
from proctor.settings import load_settings
from proctor.store.open import open_store

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.scripts = 0
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert tag not in {"img", "iframe", "link", "object", "base", "form"}
        assert not any(name.startswith("on") or name == "src" for name in found)
        self.scripts += tag == "script"
        self.links += [found["href"]] if found.get("href") else []
        self.names |= {found["id"]} if found.get("id") else set()


def stored(number: int, name: str = "suite", *, failed: int = 0, folder: Path | None = None) -> str:
    """A run of six rollouts in the store."""
    info = RunInfo(
        id=f"2026110{number}T120000-00000{number}", name=name, kind="task", status=RunStatus.PENDING,
        created_at=1_760_000_000.0 + 86_400 * number, started_at=1_760_000_000.0 + 86_400 * number, seed=0,
        total=6, resolved={}, folder=str(folder or ""),
    )  # fmt: skip
    trials = [planned(at, f"task-{at % 3}", rollout=at // 3) for at in range(6)]
    with open_store(load_settings().store_url) as store:
        store.create_run(info, Plan(trials=tuple(trials)))
        for lease, trial in store.take(info.id, worker="w", lease_s=60, limit=6).begun:
            ended = "failed" if trial.index < failed else "passed"
            store.finish(lease, record(trial, ended), counts=True)
        store.set_status(info.id, RunStatus.DONE)
    return info.id


def published(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


def check_links(site: Path) -> None:
    pages = published(site)
    for name, page in pages.items():
        assert page.scripts == (name == "index.html")
        for href in page.links:
            path, _, anchor = unquote(href).partition("#")
            assert ":" not in path
            target = (site / name).parent / path if path else site / name
            found = target.resolve().relative_to(site.resolve()).as_posix()
            assert found in pages, f"{name} leads to {href}"
            assert not anchor or anchor in pages[found].names, f"{name} leads to {href}"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_link_leads_to_a_page_of_the_site(tmp_path: Path):
    for number in range(1, 4):
        stored(number, failed=number)
    stored(4, EVIL)
    assert main(["publish", "site", "--title", EVIL]) == Exit.OK
    site = tmp_path / "site"
    check_links(site)
    names = published(site)
    assert sum(name.startswith("runs/") for name in names) == 8
    assert "series/suite.html" in names
    assert sum(name.startswith("compare/") for name in names) == 1
    index = (site / "index.html").read_text()
    assert "<img" not in index
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]+'", index.replace("&#x27;", "'"))
    assert "4 runs in 2 series" in index


def test_a_second_time_only_what_changed_is_written(capsys: pytest.CaptureFixture[str]):
    for number in (1, 2):
        stored(number)
    other = stored(3, "other")
    assert main(["publish", "site"]) == Exit.OK
    capsys.readouterr()
    assert main(["publish", "site", "--json"]) == Exit.OK
    again = json.loads(capsys.readouterr().out)
    assert (again["written"], again["removed"]) == ([], [])
    new = stored(4)
    assert main(["publish", "site", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)["written"]
    assert {f"runs/{new}/index.html", f"runs/{new}/trials.html", "series/suite.html", "index.html"} <= set(
        found
    )
    assert not any(other in name or "other" in name for name in found)
    assert main(["publish", "site", "--series", "suite", "--last", "2", "--json"]) == Exit.OK
    removed = json.loads(capsys.readouterr().out)["removed"]
    assert f"runs/{other}/index.html" in removed
    check_links(Path("site"))


def test_only_chosen_runs_are_named_anywhere(capsys: pytest.CaptureFixture[str]):
    hidden, first, second = stored(1), stored(2), stored(3)
    assert main(["publish", "site", first, second, "--compare", first, second]) == Exit.OK
    assert not any(hidden in path.read_text() for path in Path("site").rglob("*.html"))
    assert main(["publish", "site", first, "--compare", hidden, first]) == Exit.USAGE
    assert "not among the runs" in capsys.readouterr().err
    assert main(["publish", "site", "--series", "nothing"]) == Exit.USAGE


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    stored(1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    assert main(["publish", "mine"]) == Exit.USAGE
    assert "not a site of 'proctor publish'" in capsys.readouterr().err
    assert (tmp_path / "mine" / "index.html").read_text() == "mine"
    assert main(["publish", "site"]) == Exit.OK
    pages = {"../../escape.html": {"mark": "x", "facts": {}}}
    (tmp_path / "site" / "site.json").write_text(json.dumps({"pages": pages}))
    assert main(["publish", "site"]) == Exit.USAGE
    assert "not a list of pages" in capsys.readouterr().err


def test_failed_trials_show_the_end_of_their_log(tmp_path: Path):
    folder = tmp_path / "data" / "run"
    run_id = stored(1, failed=1, folder=folder)
    logs = folder / "trials" / "task-0" / "0" / "logs"
    logs.mkdir(parents=True)
    (logs / "eval.log").write_bytes(b"earlier\n" * 100 + b"\x1b[31mwanted <3>\x00 got 2\xff\n")
    assert main(["publish", "site"]) == Exit.OK
    page = (tmp_path / "site" / "runs" / run_id / "trials.html").read_text()
    assert "\nwanted &lt;3&gt; got 2" in page
    assert page.count("earlier") == 39
    assert str(tmp_path) not in "".join(Page(tmp_path / "site" / "runs" / run_id / "trials.html").links)
    check_links(tmp_path / "site")


def test_a_saved_comparison_is_shown(tmp_path: Path):
    import gzip

    recorded = Path(__file__).parents[2] / "data" / "lockstep" / "slower-5-json.json.gz"
    (tmp_path / "change.json").write_bytes(gzip.decompress(recorded.read_bytes()))
    stored(1)
    assert main(["publish", "site", "--ab", "change.json"]) == Exit.OK
    assert "slower" in (tmp_path / "site" / "ab" / "change.html").read_text()
    assert "ab/change.html" in (tmp_path / "site" / "index.html").read_text()
    check_links(tmp_path / "site")


def test_addresses_outside_the_site_become_text():
    links = Links(folders={"/data/r1": "r1"})
    cells = (
        Cell(text="report", href="report.html"),
        Cell(text="trial", href="trials/a/7.attempt-2/logs/x.log"),
        Cell(text="away", href="https://example.com/"),
        Cell(text="up", href="../../etc/passwd"),
        Cell(text="r1"),
        Cell(text="here", href="#part"),
    )
    table = Table(columns=(), rows=(cells,))
    document = Document(
        kind="k", title="t", headline="h", folder="/data/r1",
        sections=(Section(blocks=(table, Text(text="x"))),), links=(Cell(text="a", href="b"),),
    )  # fmt: skip
    found = relinked(document, links, "series/s.html")
    assert found.links == ()
    (shown,) = found.sections[0].blocks[0].rows
    assert [cell.href for cell in shown] == [
        "../runs/r1/index.html", "../runs/r1/trials.html#t7", "", "", "../runs/r1/index.html", "#part",
    ]  # fmt: skip
