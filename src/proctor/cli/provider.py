"""`proctor provider`: a provider of scripted models, as a server of its own."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="provider")
@click.option(
    "--script",
    "script",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="What the models say: TOML, JSON or YAML.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where to listen; default: any free port."
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add each call to this file, as a line of JSON.",
)
def command(script: Path, port: int, ledger: Path | None) -> int:
    """Serve chat completions, responses, messages and generateContent on loopback, from a script.

    Agents and clients talk to it as to a real provider: streamed or not, with tools, token counts, rate
    limits and faults, and without cost. The address is printed; GET /ledger tells what was sold.

    SIGTERM or Ctrl-C ends it, with exit code 0. Exit code 2: the script is wrong, or the port is taken.
    """
    import asyncio
    import signal

    from proctor.errors import Exit, UsageError
    from proctor.gateway.provider.script import load
    from proctor.gateway.provider.server import FakeProvider

    found = load(script)

    async def serve() -> None:
        ended = asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, ended.set)
        provider = FakeProvider(
            found.script(),
            faults=found.faults,
            models=found.models,
            keys=found.keys,
            keep_requests=False,
            port=port,
            ledger=ledger,
        )
        async with provider:
            print(provider.address, flush=True)
            await ended.wait()

    try:
        asyncio.run(serve())
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror or error}") from error
    return Exit.OK
