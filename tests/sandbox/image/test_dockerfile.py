from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import TaskError
from proctor.sandbox.image.dockerfile import parse
from proctor.sandbox.image.words import (
    UnknownExpansionError,
    UnsetVariableError,
    expand,
    expand_document,
    split,
)


def names(text: str) -> list[tuple[str, int]]:
    return [(each.name, each.line) for each in parse(text.encode(), "Dockerfile")]


def test_instructions_keep_their_lines_over_comments_and_continuations():
    text = "# syntax=x\n\nFROM a\n# note\nrun one \\\n  # between\n  two\nWORKDIR\t/b\n"
    found = parse(text.encode(), "Dockerfile")
    assert [(each.name, each.line, each.text) for each in found] == [
        ("FROM", 3, "a"),
        ("RUN", 5, "one   two"),
        ("WORKDIR", 8, "/b"),
    ]


def test_the_escape_character_can_be_changed_at_the_top():
    found = parse(b"# escape=`\nFROM a\nRUN dir c:\\ `\n && x\n", "Dockerfile")
    assert found[1].text == "dir c:\\  && x"


def test_flags_are_taken_off_the_front():
    found = parse(
        b"FROM a\nCOPY --chown=1:2 --link a /b\nRUN --mount=type=cache,target=/x pip\n", "Dockerfile"
    )
    assert found[1].flags == (("chown", "1:2"), ("link", ""))
    assert found[1].text == "a /b"
    assert found[2].flags == (("mount", "type=cache,target=/x"),)


def test_documents_are_read_to_their_mark():
    text = "FROM a\nRUN <<A cat <<-'B'\none\nA\n\ttwo\n\tB\nUSER x\n"
    found = parse(text.encode(), "Dockerfile")
    assert [(one.name, one.content, one.literal) for one in found[1].heredocs] == [
        ("A", "one\n", False),
        ("B", "two\n", True),
    ]
    assert found[2].name == "USER"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RUN x\n", "no FROM"),
        ("FROM a\nRUM x\n", "Dockerfile:2: 'RUM' is not an instruction; did you mean RUN?"),
        ("FROM a\nRUN\n", "Dockerfile:2: RUN needs an argument"),
        ("FROM a\nRUN <<EOF\nx\n", "Dockerfile:2: the document <<EOF never ends"),
        ("FROM a\0b\n", "NUL"),
        ("FROM a\n" + "#" * (1 << 20), "not a Dockerfile"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(text, said):
    with pytest.raises(TaskError, match=said.replace("?", r"\?")):
        parse(text.encode(), "Dockerfile")


def test_a_file_that_is_no_text_is_refused():
    with pytest.raises(TaskError, match="UTF-8"):
        parse(b"FROM \xff\xfe\n", "Dockerfile")


def test_the_exec_form_is_a_list_of_strings_and_nothing_else():
    found = parse(b'FROM a\nRUN ["a", "b c"]\nRUN [ -f x ]\nRUN [1]\n', "Dockerfile")
    assert [each.json_words() for each in found[1:]] == [["a", "b c"], None, None]


def test_long_instructions_are_shortened_in_messages():
    found = parse(f"FROM a\nRUN {'x' * 300}\n".encode(), "Dockerfile")
    assert len(str(found[1])) < 120


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"e", ["a b", "c de"]),
        ("$A ${A} ${B:-x} ${A:-x} ${A:+y}${B:+y}", ["1", "1", "x", "1", "y"]),
        ("${E-x}|${E:-x}|${N-$A}", ["|x|1"]),
        ("'$A' \"$A\" \\$A a\\ b", ["$A", "1", "$A", "a b"]),
        ('"a\\n" "q\\"q"', ["a\\n", 'q"q']),
        ('""', [""]),
        ("$ $1", ["$", "$1"]),
        ("${B:-${A}}", ["1"]),
    ],
)
def test_words_are_split_unquoted_and_filled_in(text, words):
    assert split(text, {"A": "1", "E": ""}) == words


@pytest.mark.parametrize("text", ["${A^}", "${", "${A", "${#A}"])
def test_an_unknown_expansion_is_said_to_be_one(text):
    with pytest.raises(UnknownExpansionError):
        expand(text, {"A": "1"})


def test_quotes_of_a_document_are_text():
    assert expand_document("say \"$A\" '$A' \\$A\n", {"A": "1"}) == "say \"1\" '1' $A\n"
    assert expand_document("", {}) == ""


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    try:
        for each in parse(b"FROM a\n" + text.encode(errors="replace"), "Dockerfile"):
            split(each.text, {})
    except (TaskError, UnknownExpansionError, UnsetVariableError):
        pass
