from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.gateway.key_filter import KeyFilter

KEY = "sk-aab-aab-aabc/x"
TEXT = f"before {KEY} between sk-aab-aab-aab and {KEY}{KEY} after sk-a"
CLEAN = "before [redacted] between sk-aab-aab-aab and [redacted][redacted] after sk-a"


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_a_key_is_taken_out_wherever_a_stream_is_cut(cuts):
    keys = KeyFilter([KEY])
    ends = [0, *sorted(cuts), len(TEXT)]
    passed = b"".join(keys.feed(TEXT[a:b].encode()) for a, b in pairwise(ends))
    assert passed + keys.rest() == CLEAN.encode()


def test_what_cannot_begin_a_key_passes_at_once():
    keys = KeyFilter([KEY])
    assert keys.feed(b"data: sk-aab\n\n") == b"data: sk-aab\n\n"
    assert keys.feed(b"data: s") == b"data: "
    assert keys.feed(b"o\n\n") == b"so\n\n"


@pytest.mark.parametrize("word", ["", "none", "EMPTY"])
def test_a_word_that_stands_for_no_key_stays_in_answers(word):
    assert KeyFilter([word]).whole(b"there is none, EMPTY") == b"there is none, EMPTY"


def test_keys_are_found_as_json_may_write_them_and_in_headers():
    keys = KeyFilter([KEY])
    assert keys.whole(KEY.replace("/", "\\/").encode()) == b"[redacted]"
    assert keys.headers({"A": f"x{KEY}", "B": "y"}) == {"A": "x[redacted]", "B": "y"}
