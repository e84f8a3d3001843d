"""`proctor verify`: is this receipt whole, and does every number in it follow from what was recorded?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit, UsageError

if TYPE_CHECKING:
    from proctor.report.receipt.verify import Verified

SHOWN = 20


@click.command("verify")
@click.argument("path", metavar="RECEIPT", type=click.Path(path_type=Path))
@click.option(
    "--expect", metavar="DIGEST", help="The root digest that you were given; another one is a difference."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, expect: str | None, as_json: bool) -> int:
    """Check RECEIPT offline: every digest, every trial key, every number worked out again from the attempts.

    Exit code 0: verified. 1: something differs, and it is named. 2: not a receipt.
    """
    from proctor.report.receipt.verify import verify_receipt

    verified = verify_receipt(path, expect=_digest(expect))
    if as_json:
        from proctor.cli.table import print_json

        print_json(_document(verified, expect))
    else:
        _print(verified)
    return Exit.OK if verified.ok else Exit.WORSE


def _digest(expect: str | None) -> str | None:
    if expect is None:
        return None
    digest = expect.strip().lower().removeprefix("sha256:")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise UsageError(
            f"--expect {expect[:80]!r}: a root digest has 64 hexadecimal digits; give all of them"
        )
    return digest


def _document(verified: Verified, expect: str | None) -> dict[str, Any]:
    found = verified.findings
    return {
        "verified": verified.ok,
        "receipt": str(verified.path),
        "root": verified.root,
        "expected_root": _digest(expect),
        "run": verified.head["run"],
        "proctor": verified.head["proctor"],
        "same_version": verified.same_version,
        "checked": {
            "files": verified.files,
            "left_out": verified.left_out,
            "attempts": verified.attempts,
            "documents": verified.documents,
        },
        "differences": [each.to_mapping() for each in found.differences],
        "difference_count": found.total,
        "notes": list(found.notes),
    }


def _print(verified: Verified) -> None:
    from proctor.cli.table import bold, printable

    found, run = verified.findings, verified.head["run"]
    print(bold(printable(f"{run.get('name')}  {run.get('id')}  {run.get('status')}")))
    print(f"root       {verified.root}")
    left_out = f"; {verified.left_out} left out, known by digest" if verified.left_out else ""
    print(f"files      {verified.files:,}{left_out}")
    print(f"attempts   {verified.attempts:,}, of {run.get('trials')} trials")
    print(f"documents  {verified.documents:,} made anew from the attempts and compared")
    for note in found.notes:
        print(printable(f"note       {note}"))
    if verified.ok:
        print("\nverified: every digest matches, and every number follows from the recorded attempts")
        return
    print(f"\nNOT verified: {found.total:,} {'difference' if found.total == 1 else 'differences'}")
    for each in found.differences[:SHOWN]:
        print(printable(f"  {each.text}"))
    if found.total > SHOWN:
        print(f"  … and {found.total - SHOWN:,} more; --json lists them")
