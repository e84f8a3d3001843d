from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from proctor.server import pages, problem


@pytest.fixture
def built(tmp_path: Path, monkeypatch) -> Path:
    (tmp_path / "index.html").write_text("<!doctype html><title>Proctor</title>" + " " * 900)
    (tmp_path / "main-ABC.js").write_text("1;" * 900)
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / ".stamp").write_text("secret")
    monkeypatch.setattr(pages, "STATIC", tmp_path)
    return tmp_path


@pytest.fixture
def client() -> httpx.AsyncClient:
    app = FastAPI()
    problem.install(app)
    pages.install(app)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@pytest.mark.anyio
@pytest.mark.parametrize("address", ["/", "/runs", "/trials/RUN/3/files", "/anything"])
async def test_every_address_of_a_person_has_the_frame(built, client, address):
    answer = await client.get(address)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.anyio
@pytest.mark.parametrize("address", ["/api/none", "/static/none.js", "/static/.stamp", "/static/index.html"])
async def test_what_programs_ask_for_is_a_problem_and_no_page(built, client, address):
    answer = await client.get(address)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.anyio
async def test_files_are_kept_for_ever_and_sent_compressed_to_who_can_read_that(built, client):
    answer = await client.get("/static/main-ABC.js")
    assert answer.headers["cache-control"].endswith("immutable")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    plain = await client.get("/static/main-ABC.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == answer.content
    assert (await client.get("/static/icon.svg")).headers["cache-control"] == "no-cache"


@pytest.mark.anyio
async def test_no_name_leads_out_of_the_folder(built, client):
    (built.parent / "outside.txt").write_text("no")
    for name in ("../outside.txt", "%2e%2e/outside.txt", "..%2foutside.txt", "%2e%2e%2foutside.txt"):
        answer = await client.get(f"/static/{name}")
        assert answer.text != "no"
        assert answer.status_code in {200, 404}


@pytest.mark.anyio
async def test_a_page_that_is_not_built_says_how_to_build_it(tmp_path, client, monkeypatch):
    monkeypatch.setattr(pages, "STATIC", tmp_path / "none")
    answer = await client.get("/runs")
    assert answer.status_code == 503
    assert "make ui" in answer.text
    assert "<script" not in answer.text


@pytest.mark.needs("web-page")
def test_the_built_page_is_small_and_names_no_other_host():
    found = [each for each in pages.STATIC.iterdir() if each.suffix in {".html", ".js", ".css", ".svg"}]
    assert sum(len(gzip.compress(each.read_bytes(), 6)) for each in found) <= 120_000
    page = (pages.STATIC / "index.html").read_text()
    assert "http" not in page
    assert "style=" not in page
    for each in found:
        if each.suffix == ".css":
            assert "data:" not in each.read_text()
