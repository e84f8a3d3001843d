from __future__ import annotations

import subprocess
import sys

import pytest

from proctor.errors import UsageError
from proctor.model.secret import (
    credentials_in,
    filled,
    holds_credential,
    looks_secret,
    names_of,
    references_in,
    resolved,
    shown,
    token_in,
    without_values,
    wrong_reference,
)


@pytest.mark.parametrize(
    "name",
    ["api_key", "apiKey", "API_KEY", "OPENAI_API_KEY", "token", "authToken", "GH_TOKEN", "GH_TOKEN_2",
     "password", "db-password", "SECRET_KEY_BASE", "client_secret", "credentials", "Authorization",
     "accessKey", "passphrase"],
)  # fmt: skip
def test_these_names_look_secret(name):
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "tokens", "tokenizer", "stop_token", "sort_key", "primary_key", "keyboard", "monkey", "n",
     "token_limit", "secret_name", "api_key_file", "password_policy", "author", "", "123", "key", "auth"],
)  # fmt: skip
def test_these_names_do_not(name):
    assert not looks_secret(name)


def test_key_and_auth_alone_are_secret_only_with_a_value_like_a_token():
    assert looks_secret("auth", "a1b2c3d4e5")
    assert looks_secret("key", "abcdefghijklmnopqrstuv")
    assert not looks_secret("key", "customer_id")
    assert not looks_secret("auth", "disabled")


def test_tokens_and_addresses_with_a_password_are_credentials():
    assert holds_credential("postgres://u:hunter22@h/db")
    assert holds_credential("x ghp_0123456789abcdefghij0123")
    assert not holds_credential("https://example.org/a")
    assert credentials_in("https://u:hunter22@h https://onlytoken@h ssh://me@h") == ["hunter22", "onlytoken"]
    assert credentials_in("git+https://onlytoken@h") == ["onlytoken"]
    assert credentials_in("postgresql://proctor@db/runs redis://worker@h amqp://worker@h") == []
    assert token_in("ab -----BEGIN RSA PRIVATE KEY-----") == 3
    assert token_in("nothing") is None


def test_a_reference_is_filled_in_wherever_it_is():
    data = {"a": [{"secret": "ONE"}, 2], "b": {"c": {"secret": "Bearer ${TWO} $${x} ${THREE:-three}"}}}
    assert resolved(data, {"ONE": "1", "TWO": "2"}) == {"a": ["1", 2], "b": {"c": "Bearer 2 ${x} three"}}
    assert without_values(data)["a"] == ["secret:ONE", 2]
    needed = [each for reference in references_in(data) for each in names_of(reference)]
    assert needed == [("ONE", False), ("TWO", False), ("THREE", True)]
    assert shown({"secret": "ONE"}) == "secret:ONE"
    assert shown(5) == 5


def test_a_secret_that_is_not_set_is_named():
    with pytest.raises(UsageError, match=r"\$\{ONE\} is not set: set the environment variable ONE"):
        resolved({"secret": "ONE"}, {})
    with pytest.raises(UsageError, match="the spec held this value itself, under 'api_key'"):
        filled("${SPEC_API_KEY}", {})


def test_a_reference_needs_a_name():
    assert wrong_reference("NAME") == ""
    assert wrong_reference("Bearer ${NAME}") == ""
    assert "takes the name" in wrong_reference("Bearer x")


@pytest.mark.parametrize("text", ["z", "a://", "a://b:", "${a:-", "-----BEGIN ", "sk-", "${", "h://u:"])
def test_a_megabyte_of_a_strangers_text_is_searched_in_one_pass(text):
    """In a process of its own: such a search holds every thread, the test's own time limit too."""
    program = (
        "import sys; from proctor.model import secret; text = sys.argv[1] * (1_000_000 // len(sys.argv[1]))\n"
        "secret.holds_credential(text); secret.credentials_in(text); secret.VARIABLE.search(text)"
    )
    subprocess.run([sys.executable, "-c", program, text], check=True, timeout=60)


def test_logins_are_seen_behind_every_scheme():
    assert credentials_in("git+https://token-of-mine@host redis://name@host HTTP://u:password@h") == [
        "token-of-mine",
        "password",
    ]
    assert holds_credential("1https://user:password@host")
    assert not holds_credential("see https://host/a:b@c")
