"""The three parsers: right values, right places, and nothing hostile gets through."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import SpecError
from proctor.spec.node import MAX_DEPTH, Node, from_plain, plain
from proctor.spec.positions import parse_json, parse_toml
from proctor.spec.yaml_positions import parse_yaml

TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e30, 1e30) | TEXT
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


def walk(node: Node, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Node]]:
    yield path, node
    if isinstance(node.value, dict | list):
        items = node.value.items() if isinstance(node.value, dict) else enumerate(node.value)
        for key, item in items:
            yield from walk(item, (*path, key))


def places(node: Node) -> list[tuple[Any, ...]]:
    return [(path, each.mark, each.key_mark) for path, each in walk(node)]


def at(source: str, node: Node) -> str:
    assert node.key_mark
    assert node.key_mark.line
    assert node.key_mark.column
    return source.split("\n")[node.key_mark.line - 1][node.key_mark.column - 1 :]


@given(st.dictionaries(TEXT, DATA, max_size=4), st.sampled_from([None, 1, 4]))
def test_json_and_yaml_agree_on_values_and_places_of_the_same_text(data: Any, indent: int | None) -> None:
    source = json.dumps(data, indent=indent, ensure_ascii=False)
    from_json, from_yaml = parse_json(source, "f"), parse_yaml(source, "f")
    assert from_json
    assert from_yaml
    assert plain(from_json) == data
    assert json.dumps(plain(from_yaml)) == json.dumps(data)
    assert places(from_json) == places(from_yaml)


BARE = st.text("abcXYZ019_-", min_size=1, max_size=4)
TOML_STRING = st.sampled_from(
    ['"x"', "'y'", '""', '"""a\n"b"\n"""', "'''\nc'd'\n'''", '"q\\"#]"', '"""t"""""']
)
TOML_ATOM = TOML_STRING | st.sampled_from(["1", "-2.5", "true", "1e3", "0xff", "1979-05-27", "07:32:00"])
TOML_VALUE = st.recursive(
    TOML_ATOM,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[ # c ]\n " + ",\n".join(items) + "]")
        | st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.dictionaries(BARE, inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"{key} = {item}" for key, item in items.items()) + "}"
        )
    ),
    max_leaves=5,
)


@st.composite
def toml_documents(draw: st.DrawFn) -> str:
    lines = ["# header", ""]
    names = draw(st.lists(BARE, unique=True, max_size=5))
    for number, name in enumerate(names):
        match number % 5:
            case 0:
                lines.append(f"{name} = {draw(TOML_VALUE)} # trailing")
            case 1:
                lines += [f"[{name} . 'in.ner']", f'  a."b c" = {draw(TOML_VALUE)}', "a.z=1"]
            case 2:
                lines += [f"[[{name}]]", f"k = {draw(TOML_VALUE)}", "", f"[[{name}]]", f"[{name}.sub]", "v=1"]
            case 3:
                lines += [
                    f"[[{name}]]",
                    f"[[{name}.deep]]",
                    "w=1",
                    f"[[{name}.deep]]",
                    f"w={draw(TOML_VALUE)}",
                ]
            case _:
                lines += [f"[{name}]", f"only = {draw(TOML_VALUE)}"]
    return "\n".join(lines)


@given(toml_documents())
def test_toml_places_point_at_the_keys(source: str) -> None:
    expected = tomllib.loads(source)
    node = parse_toml(source, "f")
    if not expected:
        assert node is None
        return
    assert node
    assert json.dumps(plain(node)) == json.dumps(expected, default=lambda value: value.isoformat())
    for path, each in walk(node):
        if path and isinstance(path[-1], str):
            assert at(source, each).lstrip("\"'").startswith(path[-1])
        assert each.mark.line


def test_a_place_in_toml_is_that_of_the_key_even_in_a_later_table() -> None:
    source = 'name = "m"\n[[tasks]]\npath = "a"\n[[tasks]]\n  rollout = 3\n[tasks.env]\nK = [1,\n  {x = 2}]\n'
    node = parse_toml(source, "f.toml")
    assert node
    found = {path: str(each.place) for path, each in walk(node)}
    assert found["tasks", 1, "rollout"] == "f.toml:5:3"
    assert found["tasks", 1, "env", "K", 1, "x"] == "f.toml:8:4"
    assert found["tasks", 1] == "f.toml:4:1"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("1e3", 1000.0),
        ("1_000", 1000),
        ("1_0.5", 10.5),
        (".5", 0.5),
        ("+7", 7),
        ("0755", 755),
        ("0x1F", 31),
        ("0o17", 15),
        ("0b101", 5),
        ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"),
        ("nan", "nan"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!float 12", 12.0),
        ("!!int 12", 12),
        ("!!bool true", True),
        ("!!null ''", None),
        ("!!seq []", []),
        ("|\n  two\n  lines", "two\nlines\n"),
    ],
)
def test_yaml_words_mean_what_yaml_1_2_says(word: str, value: Any) -> None:
    node = parse_yaml(f"key: {word}\n")
    assert node
    assert plain(node) == {"key": value}
    assert type(plain(node)["key"]) is type(value)


def test_yaml_anchors_and_merges_work_and_keep_the_place_of_what_they_repeat() -> None:
    source = (
        "base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo:\n  <<: [{z: 9}, *b]\nthree: *b\nn: &n 5\nm: *n\n"
    )
    node = parse_yaml(source, "f")
    assert node
    assert plain(node) == {
        "base": {"x": 1, "y": 2},
        "one": {"y": 3, "x": 1},
        "two": {"z": 9, "x": 1, "y": 2},
        "three": {"x": 1, "y": 2},
        "n": 5,
        "m": 5,
    }
    assert str(node.value["one"].value["x"].place) == "f:1:11"
    node.value["three"].value["x"].value = 100
    assert plain(node)["base"]["x"] == 1


def bomb() -> str:
    levels = (f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))
    return "k0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(levels)


def tower() -> str:
    return "k0: &a0 [x]\n" + "".join(f"k{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1: 'a' is given twice; the first is in line 1"),
        ("a: {b: 1, b: 2}", "f:1:11: 'b' is given twice"),
        ("a: &a [*a]", "f:1:8: '*a' refers to something that contains it"),
        ("a: *b", "f:1:4: '*b' refers to nothing"),
        ("a: &x 1\n*x : 2", "f:2:1: a key must be text, not an alias"),
        ("? [1]\n: 2", "f:1:3: a key must be text"),
        ("a: !!python/object/apply:os.system [ls]", "f:1:4: the tag"),
        ("a: !custom 1", "the tag '!custom' is not allowed"),
        ("a: !!int x", "'x' does not match its tag '!!int'"),
        ("a: .inf", "f:1:4: .inf is not a finite number"),
        ("a: 1e999", "f:1:4: inf is not a finite number"),
        ("a: " + "9" * 5000, "f:1:4: the number has too many digits"),
        ("\ta: 1", "f:1:1: not valid YAML: .*indent with spaces"),
        ("a: [1, 2", "f:1:9: not valid YAML"),
        ("a: 1\n---\nb: 1", "f:2:1: a second document starts here"),
        ("ok: 1\na: \x07", "f:2:4: not valid YAML: the character U\\+0007"),
        ('ok: 1\na: "\\U00110000"', "f:2:5: not valid YAML: an escape names a character"),
        ('a: "\\ud800"', "f:1:4: the text contains half of a surrogate pair"),
        ('"\\ud800": 1', "f:1:1: the text contains half of a surrogate pair"),
        ("a:\n  <<: [1]", "f:2:8: '<<' merges mappings"),
        ("[" * 20_000, f"f:1:{MAX_DEPTH + 1}: nested deeper than"),
        (bomb(), "f:6:.*more than 100,000 values; a spec is smaller"),
        (tower(), "nested deeper than 64 levels after aliases are expanded"),
    ],
)
def test_bad_yaml_is_refused_with_its_place(source: str, message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("*", r"\*") if "refers" in message else message):
        parse_yaml(source, "f")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"a": 1,\n "a": 2}', "f:2:2: 'a' is given twice; the first is in line 1"),
        ('{"a": {"b": 1, "b": 2}}', "f:1:16: 'b' is given twice; the first is in line 1"),
        ('{"a": 1,}', "f:1:[89]: not valid JSON: .*comma before"),
        ("[1,]", "f:1:[34]: not valid JSON: .*comma before"),
        ('{"a": tru}', "f:1:7: not valid JSON: expecting value"),
        ('{"a": NaN}', "f:1:7: nan is not a finite number"),
        ('{"a" 1}', "f:1:6: not valid JSON: expecting ':' delimiter"),
        ('{"a": [1 2]}', "f:1:10: not valid JSON: expecting ',' delimiter"),
        ('{"a": }', "f:1:7: not valid JSON: expecting value"),
        ('{"a": ', "f:1:7: not valid JSON: expecting value"),
        ("{'a': 1}", "f:1:2: not valid JSON: expecting property name enclosed in double quotes"),
        ('{"\\ud800": 1}', "f:1:2: the text contains half of a surrogate pair"),
        ('{"a": "x', "f:1:7: not valid JSON: unterminated string"),
        ('{"a": "x\ny"}', "invalid control character"),
        ('{"a": "\\q"}', "invalid \\\\escape"),
        ('{"a": "\\ud800"}', "half of a surrogate pair"),
        ('{"a": 1e999}', "inf is not a finite number"),
        ('{"a": ' + "9" * 5000 + "}", "f:1:7: not valid JSON: the number has too many digits"),
        ("{} {}", "f:1:4: not valid JSON: extra data"),
        ("[" * 100_000, "nested deeper than"),
        ("[" + "1," * 200_000 + "1]", "f: more than 100,000 values"),
    ],
)
def test_bad_json_is_refused_with_its_place(source: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_json(source, "f")


def test_empty_collections_and_words_are_read_from_json() -> None:
    node = parse_json(' {"a": {}, "b": [], "c": null, "d": true} ')
    assert node
    assert plain(node) == {"a": {}, "b": [], "c": None, "d": True}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a=1\na=2", "f:2:4: not valid TOML: a key is given twice"),
        ("[a]\n[a]", "f:2:3: not valid TOML: cannot declare"),
        ("a=", "f:1:3: not valid TOML: invalid value"),
        ('ok=1\na="x', "f:2:5: not valid TOML: unterminated string"),
        ("ok=1\na=inf", "f:2:3: inf is not a finite number"),
        ("ok=1\na=" + "9" * 5000, "f:2:3: not valid TOML: the number has too many digits"),
        ("a=" + "[" * 100 + "]" * 100, "f: nested deeper than"),
        ("a=" + "[" * 100_000, "f: nested deeper than"),
        ("ok=1\n" + "a ." * 300_000 + "b=1", "f:2:1: nested deeper than 64 levels by a dotted key"),
        ("a=[" + "1," * 150_000 + "]", "f: more than 100,000 values"),
    ],
)
def test_bad_toml_is_refused_with_its_place(source: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_toml(source, "f")


@pytest.mark.parametrize("parse", [parse_json, parse_yaml, parse_toml])
def test_nothing_is_nothing(parse: Callable[[str], Node | None]) -> None:
    assert parse("\n") is None


def test_plain_data_has_its_path_for_a_place() -> None:
    node = from_plain({"a": [{"b": 1}]}, file="body")
    assert str(node.value["a"].value[0].value["b"].place) == "body:a.0.b"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {1, 2}}, "a: set is not a kind of value"),
        ({"a": float("nan")}, "a: nan is not a finite number"),
        ({"a": "\ud800"}, "a: the text contains half"),
    ],
)
def test_plain_data_that_json_cannot_hold_is_refused(value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_plain(value)


def test_plain_data_that_is_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH + 5):
        value = [value]
    with pytest.raises(SpecError, match="nested deeper"):
        from_plain(value)
