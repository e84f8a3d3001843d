"""Nobody else's text steers the screen."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from proctor.cli.main import main
from proctor.cli.table import bold
from proctor.cli.terminal import GuardedStream, direct, guarded, styled

TITLE = "\x1b]0;owned\x07"
RED = "\x1b[31mred"
HOSTILE = f"{TITLE}{RED}\x9b2J\r\x7f\u202e"


def shown(text: str) -> str:
    behind = io.StringIO()
    GuardedStream(behind).write(text)
    return behind.getvalue()


def test_control_characters_are_shown_and_not_sent():
    assert shown(f"a {HOSTILE} b\n\tc") == "a �]0;owned��[31mred�2J��� b\n\tc"


def test_own_styles_are_sent_and_borrowed_ones_are_not():
    with guarded():
        text = styled(RED, "1")
    assert shown(f"{RED} {text}") == "�[31mred \x1b[1m�[31mred\x1b[0m"
    assert styled("a", "1") == "\x1b[1ma\x1b[0m"


def test_the_streams_are_guarded_in_a_command_and_as_before_after_it():
    before = sys.stdout
    with guarded():
        assert direct(sys.stdout) is before
        assert direct(before) is before
    assert sys.stdout is before


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", HOSTILE],
        ["run", f"{RED}.yaml"],
        [HOSTILE],
        ["ls", f"--{HOSTILE}"],
        ["run", "-t", HOSTILE, "-a", "oracle"],
        ["run", "-t", "x", "-a", HOSTILE],
        ["list", HOSTILE],
        ["compare", RED, TITLE],
        ["gate", HOSTILE],
        ["import", HOSTILE],
        ["verify", HOSTILE],
        ["time", HOSTILE],
    ],
    ids=lambda words: words[0][:8],
)
def test_no_mistake_sends_what_a_person_pasted(arguments, capfd):
    main(arguments)
    out, err = capfd.readouterr()
    assert not set(out + err) & set("\x1b\x07\x9b\x7f\r\u202e")
    assert err


def test_a_spec_with_codes_in_its_values_is_shown_without_them(tmp_path, capfd):
    file = tmp_path / "s.yaml"
    file.write_text(
        'name: "a\\e[31mb"\nexperiment: pragma_profile\n"\\e[2Jtags": 1\nparams: {"\\e]0;x\\a": 3}\n'
    )
    assert main(["plan", str(file)]) == 2
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
    assert "�[2Jtags" in err


def test_a_terminal_gets_bold_headings_and_nothing_else_of_a_name(tmp_path):
    """The same through a real terminal, where colours are wanted."""
    program = (
        "import sys; from proctor.cli.terminal import guarded\n"
        "from proctor.cli.table import bold, say\n"
        "with guarded(): say('head\\x1b[31m', heading=True); print('\\x1b]0;x\\x07 name')"
    )
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run([sys.executable, "-c", program], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    out = os.read(ours, 10000).decode()
    os.close(ours)
    assert out == "\x1b[1mhead�[31m\x1b[0m\r\n�]0;x� name\r\n"


def test_a_style_is_plain_where_nobody_looks(capsys):
    assert bold("a") == "a"
