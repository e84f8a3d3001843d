"""Signing in through an issuer: who gets in, to which project, and everything that is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from tests.server.oidc.fake_issuer import CLIENT, SECRET, FakeIssuer, fake_issuer

from proctor.errors import UsageError
from proctor.server.app import create_app
from proctor.server.auth.oidc.routes import LEFT, own_page
from proctor.server.auth.tokens import COOKIE, first_admin
from proctor.server.state import Mode
from proctor.settings import Settings
from proctor.store.open import open_store
from proctor.store.service.accounts import Project

GRANTS = ("engineers=red", "readers=blue:read", "ops=*:admin", "lost=nowhere")


@pytest.fixture(scope="module")
def made() -> Iterator[FakeIssuer]:
    with fake_issuer() as found:
        yield found


@pytest.fixture
def issuer(made: FakeIssuer) -> FakeIssuer:
    made.claims, made.header, made.about, made.algorithm = {}, {}, {}, "RS256"
    made.asked.clear()
    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("oidc")
    with open_store(str(folder / "proctor.db")) as store:
        first_admin(store)
        for each in ("red", "blue", "green"):
            store.service.accounts.put_project(Project(each, each))
        store.service.accounts.add_member("green", "erin@example.org")
        store.service.accounts.add_member("green", "gone@example.org")
        store.service.accounts.disable("gone@example.org", disabled=True)
    return folder


@pytest.fixture
def client(issuer: FakeIssuer, home: Any) -> Iterator[TestClient]:
    settings = Settings(
        home=home,
        oidc_issuer=issuer.address,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        oidc_projects=GRANTS,
    )
    app = create_app(settings, Mode.TOKENS)
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as found:
        yield found


def sign_in(client: TestClient, issuer: FakeIssuer, query: str = "") -> httpx.Response:
    left = client.get(f"/api/oidc/login{query}")
    assert left.status_code == 303, left.text
    assert left.headers["location"].startswith(f"{issuer.address}/authorize?")
    return client.get(f"/api/oidc/callback?{issuer.authorize(left.headers['location'])}")


def session(client: TestClient) -> dict[str, Any]:
    return client.get("/api/session").json()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_somebody_signs_in_and_is_in_the_project_of_their_group(client, issuer, algorithm):
    issuer.algorithm = algorithm
    assert client.get("/api/oidc").json() == {"login": "/api/oidc/login"}
    back = sign_in(client, issuer, "?next=/runs/latest%3Fx=1")
    assert (back.status_code, back.headers["location"]) == (303, "/runs/latest?x=1")
    kept = next(each for each in back.headers.get_list("set-cookie") if each.startswith(COOKIE))
    assert "HttpOnly" in kept
    assert "samesite=strict" in kept.lower()
    found = session(client)
    assert (found["user"], found["project"], found["scopes"]) == ("ada@example.org", "red", ["read", "run"])
    assert client.delete("/api/session", headers={"X-Proctor-Request": "1"}).status_code == 204
    assert client.get("/api/session").status_code == 401


@pytest.mark.parametrize(
    ("claims", "query", "project", "scopes"),
    [
        ({"groups": ["readers"]}, "", "blue", ["read"]),
        ({"groups": "readers"}, "", "blue", ["read"]),
        ({"groups": ["ops"]}, "", None, ["admin"]),
        ({"groups": ["engineers", "readers"]}, "?project=blue", "blue", ["read"]),
        ({"groups": None, "email": "erin@example.org"}, "", "green", ["read", "run"]),
    ],
)
def test_claims_and_members_say_what_somebody_may_do(client, issuer, claims, query, project, scopes):
    issuer.claims = claims
    assert sign_in(client, issuer, query).status_code == 303
    found = session(client)
    assert (found["project"], found["scopes"]) == (project, scopes)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example.org"},
        {"aud": "another"},
        {"aud": [CLIENT, "another"]},
        {"azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"exp": True},
        {"iat": 9e12},
        {"sub": ""},
        {"email_verified": False},
        {"email_verified": None},
        {"email": "<script>"},
    ],
)
def test_an_id_token_that_does_not_fit_is_refused(client, issuer, claims):
    issuer.claims = claims
    answer = sign_in(client, issuer)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")
    assert COOKIE not in client.cookies


@pytest.mark.parametrize(
    "header", [{"alg": "none"}, {"alg": "HS256"}, {"alg": "ES256"}, {"kid": "unknown"}, {"crit": ["x"]}]
)
def test_a_signature_that_is_not_the_issuers_is_refused(client, issuer, header):
    issuer.header = header
    answer = sign_in(client, issuer)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")


@pytest.mark.parametrize("claims", [{"groups": []}, {"groups": ["lost"]}, {"email": "gone@example.org"}])
def test_whoever_is_in_no_project_or_disabled_stays_out(client, issuer, claims):
    issuer.claims = claims
    assert sign_in(client, issuer).status_code == 403
    assert client.get("/api/session").status_code == 401


def test_coming_back_needs_the_browser_that_left_and_its_own_state(client, issuer):
    left = client.get("/api/oidc/login")
    query = issuer.authorize(left.headers["location"])
    other = query.replace("state=", "state=x")
    assert client.get(f"/api/oidc/callback?{other}").status_code == 401
    assert client.get(f"/api/oidc/callback?{query}&iss=https://other.example.org").status_code == 401
    kept = client.cookies.get(LEFT)
    client.cookies.clear()
    assert client.get(f"/api/oidc/callback?{query}").status_code == 401
    client.cookies.set(LEFT, "x" + (kept or ""), path="/api/oidc")
    assert client.get(f"/api/oidc/callback?{query}").status_code == 401
    assert "/token" not in issuer.asked


def test_a_code_is_good_once_and_an_error_of_the_issuer_is_a_sentence(client, issuer):
    left = client.get("/api/oidc/login").headers["location"]
    query = issuer.authorize(left)
    kept = client.cookies.get(LEFT)
    assert client.get(f"/api/oidc/callback?{query}").status_code == 303
    client.cookies.set(LEFT, kept or "", path="/api/oidc")
    assert client.get(f"/api/oidc/callback?{query}").status_code == 401
    state = query.split("state=")[1].split("&")[0]
    answer = client.get(f"/api/oidc/callback?error=access_denied&state={state}")
    assert "did not let you in" in answer.json()["detail"]


def test_an_issuer_with_another_name_or_unsafe_addresses_is_refused(client, issuer):
    issuer.about = {"issuer": "https://other.example.org"}
    assert client.get("/api/oidc/login").json()["code"] == "upstream"
    issuer.about = {"authorization_endpoint": "javascript:alert(1)"}
    assert client.get("/api/oidc/login").json()["code"] == "upstream"
    issuer.about = {"token_endpoint": "http://example.org/token"}
    assert client.get("/api/oidc/login").json()["code"] == "upstream"
    issuer.about = {}
    assert sign_in(client, issuer).status_code == 303


@pytest.mark.parametrize(
    "page",
    ["//evil.example", "https://evil.example", "/\\evil.example", "/a\nb", "runs", "", "/api/oidc/login"],
)
def test_nobody_is_sent_to_another_place(page):
    assert own_page(page) == "/"
    assert own_page("/trials/a/1?attempt=2#x") == "/trials/a/1?attempt=2#x"


@pytest.mark.parametrize(
    "wrong",
    [
        {"oidc_client_id": ""},
        {"oidc_issuer": "http://example.org"},
        {"oidc_projects": ("engineers",)},
        {"oidc_projects": ("engineers=red:fly",)},
        {"oidc_projects": ("ops=red:admin",)},
        {"oidc_projects": ("ops=*:read",)},
    ],
)
def test_settings_that_cannot_work_are_told_at_the_start(wrong):
    with pytest.raises(UsageError, match="oidc_"):
        create_app(Settings(**{"oidc_issuer": "https://id.example.org", "oidc_client_id": "x", **wrong}))


def test_a_server_without_an_issuer_says_so(tmp_path):
    with open_store(str(tmp_path / "proctor.db")) as store:
        first_admin(store)
    app = create_app(Settings(home=tmp_path), Mode.TOKENS)
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        assert client.get("/api/oidc").json() == {"login": None}
        assert client.get("/api/oidc/login").status_code == 404
