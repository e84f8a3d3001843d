"""What a person sees who asks for help: groups, examples, and a line that fits a terminal."""

from __future__ import annotations

import shlex

import click
import pytest

from proctor.cli.examples import EXAMPLES
from proctor.cli.main import COMMANDS, GROUPS, group, main

CONTEXT = click.Context(group, info_name="proctor")


def every_command():
    for name in COMMANDS:
        command = group.get_command(CONTEXT, name)
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {child}", each) for child, each in command.commands.items())


def parse(words: list[str]) -> click.Context:
    """Read a command line as click would, and execute nothing."""
    command, context = group, click.Context(group, info_name="proctor")
    while isinstance(command, click.Group) and not (
        command.invoke_without_command and (not words or words[0].startswith("-"))
    ):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, name
        context = command.make_context(name, list(words), parent=context)
    return context


def test_every_command_is_under_one_heading():
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_help_is_printed_with_exit_code_0_and_fits_80_columns(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 80
    for title in GROUPS:
        assert f"{title}:" in lines
    for name in COMMANDS:
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith(COMMANDS[name])


@pytest.mark.parametrize("name", ["tasks", "baseline", "new", "images"])
def test_a_group_without_a_command_shows_its_help(name, capsys):
    assert main([name]) == 0
    assert f"Usage: proctor {name}" in capsys.readouterr().out


def test_every_command_ends_its_help_with_an_example(capsys):
    for name, command in every_command():
        assert EXAMPLES.get(name), name
        shown = command.get_help(click.Context(command, info_name=name))
        for line in EXAMPLES[name]:
            assert f"  {line}" in shown


@pytest.mark.parametrize("name", [name for name, _ in every_command()])
def test_every_example_is_a_command_line_that_can_be_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "debian.tar").touch()
    for line in EXAMPLES[name]:
        program, *words = shlex.split(line)
        assert program == "proctor"
        assert " ".join(words).startswith(name.partition(" ")[0])
        parse(words)


def test_every_option_and_every_command_says_what_it_is():
    for name, command in every_command():
        assert command.help, name
        for param in command.params:
            if isinstance(param, click.Option):
                assert param.help, f"{name} {param.opts}"


def test_an_unknown_command_names_the_nearest(capsys):
    assert main(["sho"]) == 2
    assert "did you mean 'show'?" in capsys.readouterr().err
