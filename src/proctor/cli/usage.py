"""What is wrong with a command line, in one sentence that ends with where to read more."""

from __future__ import annotations

import click


def sentence(error: click.ClickException) -> str:
    """The error in one sentence; click would print its usage lines above it."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "proctor"
    message = _message(error).rstrip(".")
    more = "" if "--help'" in message else f"; see '{command} --help'"
    if not message[:2].isupper():
        message = message[:1].lower() + message[1:]
    return f"{message}{more}"


def _message(error: click.ClickException) -> str:
    if isinstance(error, click.MissingParameter) and error.param is not None:
        option = error.param.param_type_name == "option"
        name = (
            error.param.opts[0]
            if option
            else error.param.make_metavar(error.ctx or click.Context(click.Command("")))
        )
        return f"{name} is missing"
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind = error.param.type
        if isinstance(kind, click.IntRange | click.FloatRange):
            return f"{error.param.opts[0]}: expected {_range(kind)}, {_found(error.message)}"
    return " ".join(error.format_message().split())


def _range(kind: click.IntRange | click.FloatRange) -> str:
    noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    if kind.min is not None and kind.max is not None:
        return f"{noun} from {kind.min} to {kind.max}"
    if kind.min is not None:
        return f"{noun} {'above' if kind.min_open else 'of at least'} {kind.min}"
    return f"{noun} of at most {kind.max}" if kind.max is not None else noun


def _found(message: str) -> str:
    """The value that click's message begins with."""
    return f"found {message.partition(' is not ')[0]}"
