from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord, Failure
from proctor.trial.redact import NOTHING_SECRET, Redactor, secrets_in

SECRET = 'hunter2/é"x+=% planted-secret_value'
RAW = SECRET.encode()


def wrapped(text: bytes, width: int, end: bytes = b"\n") -> bytes:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


SHAPES = {
    "plain": RAW,
    "hex": RAW.hex().encode(),
    "HEX": RAW.hex().upper().encode(),
    "hex with colons": RAW.hex(":").encode(),
    "hex in lines": wrapped(RAW.hex().encode(), 10),
    "hex with escapes": "".join(f"\\x{each:02x}" for each in RAW).encode(),
    "URL": quote(SECRET, safe="").encode(),
    "URL with slashes": quote(SECRET).encode(),
    "URL form": quote_plus(SECRET).encode(),
    "URL in part": SECRET.replace("/", "%2f").encode(),
    "URL twice": quote(quote(SECRET)).encode(),
    "URL thrice": quote(quote(quote(SECRET))).encode(),
    "every byte": "".join(f"%{each:02X}" for each in RAW).encode(),
    "JSON": json.dumps(SECRET).encode(),
    "JSON twice": json.dumps(json.dumps(SECRET)).encode(),
    "JSON as UTF-8": json.dumps(SECRET, ensure_ascii=False).encode(),
    "JSON with slashes": json.dumps(SECRET).replace("/", "\\/").encode(),
    "Python": repr(SECRET).encode(),
    "Python bytes": repr(RAW).encode(),
    "base64 in a URL": quote(base64.b64encode(RAW).decode(), safe="").encode(),
    "base64 in JSON": json.dumps(base64.encodebytes(RAW * 4).decode()).encode(),
    **{
        f"base64 after {before}, {encode.__name__}": encode(b"x" * before + RAW + b"tail")
        for before in range(3)
        for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes)
    },
    **{
        f"base64 after {before} in lines of {width}": wrapped(
            base64.b64encode(b"u" * before + RAW), width, b"\r\n  "
        )
        for before in range(3)
        for width in (1, 4, 20)
    },
}


@pytest.mark.parametrize("data", SHAPES.values(), ids=SHAPES.keys())
def test_a_secret_is_found_in_every_shape_and_in_every_cut_of_a_stream(data):
    redactor = Redactor({"S": SECRET})
    whole = redactor.whole(b"before " + data + b" after")
    assert b"[redacted:S]" in whole
    assert not [
        left
        for left in (b"planted", b"706c616e", b"cGxhbnRl", b"bGFudG")
        if left in whole or left in whole.lower()
    ]
    for size in (1, 7, 64):
        stream = redactor.stream()
        parts = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert b"".join([*parts, stream.end()]) == redactor.whole(data)


@given(st.binary(max_size=300), st.integers(1, 50))
def test_a_stream_gives_the_same_as_the_whole(data, size):
    redactor = Redactor({"S": "secret-value"})
    stream = redactor.stream()
    parts = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join([*parts, stream.end()]) == redactor.whole(data) == data


def test_what_cannot_be_the_beginning_of_a_secret_is_passed_on_soon():
    stream = Redactor({"S": "secret-value" * 200}).stream()
    assert len(stream.feed(b"an ordinary line of output\n" * 10)) > 200
    rest = [stream.feed(b"secr"), stream.feed(b"et-value" + b"secret-value" * 199), stream.end()]
    assert b"".join(rest).endswith(b"output\n[redacted:S]")


def test_lines_of_a_long_secret_are_found_one_by_one():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nshort\n"
    assert (
        Redactor({"K": key}).whole(b"+MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n+short\n")
        == b"+[redacted:K]\n+short\n"
    )


def test_a_secret_that_contains_another_is_replaced_as_one():
    redactor = Redactor({"A": "abcdefgh", "B": "xx-abcdefgh-yy"})
    assert redactor.text("xx-abcdefgh-yy abcdefgh") == "[redacted:B] [redacted:A]"


def test_a_secret_that_begins_with_another_is_replaced_as_one_in_a_stream_too():
    redactor = Redactor({"A": "abcdefgh", "B": "abcdefgh-and-more"})
    stream = redactor.stream()
    parts = [stream.feed(bytes([each])) for each in b"x abcdefgh-and-more" + b" " * 200]
    assert b"".join([*parts, stream.end()]).strip() == b"x [redacted:B]"


def test_the_token_of_a_header_is_a_secret_without_its_scheme():
    assert Redactor({"H": "Bearer abcdef123"}).text("got abcdef123") == "got [redacted:H]"


def test_short_values_are_left_and_nothing_is_looked_at_without_secrets():
    data = b"abc"
    assert Redactor({"A": "abc"}).whole(data) is data
    assert NOTHING_SECRET.value({"a": ["b"]}) == {"a": ["b"]}
    assert not NOTHING_SECRET.found_in([b"x"])
    assert NOTHING_SECRET.stream().feed(data) is data


def test_hostile_runs_of_backslashes_take_no_time():
    redactor = Redactor({"S": "secret-value"})
    found = redactor.whole(
        base64.b64encode(b"secret-value") + b" c\\" + b"\\" * 100_000 + b" %" + b"25" * 50_000
    )
    assert found.startswith(b"[redacted:S]")


def test_secrets_of_an_environment_are_those_with_secret_names_and_passwords_in_addresses():
    environ = {"A_KEY": "long-enough", "B_KEY": "short", "URL": "http://u:password1@h", "HOME": "/home/me"}
    assert secrets_in(environ) == {"A_KEY": "long-enough", "URL": "password1"}


def test_a_record_and_its_nested_values_are_cleaned():
    record = AttemptRecord(
        key="k", number=1, outcome=Outcome.FAILED, started_at=0.0, ended_at=1.0,
        failure=Failure(phase="p", type="T", message="m secret-value", traceback="t secret-value"),
        metrics={"secret-value": ["secret-value", {"a": ("secret-value", 1.5)}]},
        notes=("secret-value",), iterations=({"x": 1.0},), suspect=True,
        system_changes={"count": 1, "first": ["added /usr/bin/secret-value"]},
    )  # fmt: skip
    clean = Redactor({"S": "secret-value"}).record(record)
    assert "secret-value" not in str(clean)
    assert (clean.outcome, clean.suspect) == (Outcome.FAILED, True)
    assert clean.iterations == ({"x": 1.0},)
    assert NOTHING_SECRET.record(record) is record
