"""The engine's process: `python -m proctor.server.engine`. Its server is at the other end of its input.

What it reads there wakes it, the end of the input ends it: so it never outlives its server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from proctor.errors import ProctorError
from proctor.processes import allow_open_files
from proctor.runs.process_resources import Resources
from proctor.server.auth.vault import VARIABLE, open_vault
from proctor.server.engine.engine import Engine
from proctor.server.engine.supervisor import GO_ON, HOLD_BACK
from proctor.server.logs import log_lines
from proctor.server.tracing.tracing import HEADERS, open_tracing
from proctor.settings import load_settings


async def _run(total: int, person: str) -> None:
    settings = load_settings()
    vault = open_vault(settings)
    os.environ.pop(VARIABLE, None)  # experiments see the environment
    tracing = open_tracing(settings, "engine")
    for name in (*HEADERS, "PROCTOR_OIDC_CLIENT_SECRET"):
        os.environ.pop(name, None)
    resources = Resources(settings)
    engine = Engine(resources, vault, total, tracing=tracing, person=person)
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, lambda: engine.stop.request(times=2))

    def heard() -> None:
        if told := os.read(sys.stdin.fileno(), 4096):
            if HOLD_BACK in told or GO_ON in told:
                engine.held_back = told.rfind(HOLD_BACK) > told.rfind(GO_ON)
            if not engine.held_back:
                engine.woken.set()
        else:
            loop.remove_reader(sys.stdin.fileno())
            engine.stop.request(times=2)

    loop.add_reader(sys.stdin.fileno(), heard)
    with resources:
        await engine.run()
    if tracing:
        tracing.close()


def main() -> int:
    """Execute runs until the server ends."""
    log_lines()
    allow_open_files()
    try:
        asyncio.run(_run(int(sys.argv[1]), "".join(sys.argv[2:])))
    except ProctorError as error:
        logging.getLogger("proctor.engine").error("%s", error)  # noqa: TRY400 - a sentence is enough
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
