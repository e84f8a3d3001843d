"""`proctor verify`: check that a receipt is complete and that every number follows from the records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit, UsageError

if TYPE_CHECKING:
    from proctor.receipt.verify import Verified

SHOWN = 20


@click.command("verify")
@click.argument("path", metavar="RECEIPT", type=click.Path(path_type=Path))
@click.option(
    "--expect",
    metavar="DIGEST",
    help="The root digest that you were given; any other is reported as a difference.",
)
@click.option(
    "--trust",
    metavar="KEY",
    multiple=True,
    help="A public key that you trust: its text (ed25519:…) or a file. RECEIPT must be signed with one of "
    "them. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, expect: str | None, trust: tuple[str, ...], as_json: bool) -> int:
    """Check RECEIPT offline: every digest, every trial key, and every number, recomputed from the attempts.

    That shows that it is consistent in itself. Where it comes from is checked with --expect or --trust only.

    Exit code 0: nothing differs, and what --expect and --trust ask for holds. 1: something differs, or the
    signature is missing, invalid, expired or made with another key. 2: not a receipt, or not a key.
    """
    import time

    from proctor.receipt.verify import verify_receipt

    keys = _trusted(trust)
    verified = verify_receipt(path, expect=_digest(expect), trust=keys, now=time.time())
    if as_json:
        from proctor.cli.table import print_json

        print_json(_document(verified, expect))
    else:
        _print(verified)
    return Exit.OK if verified.ok else Exit.WORSE


def _trusted(trust: tuple[str, ...]) -> tuple[str, ...]:
    if not trust:
        return ()
    from proctor.receipt.keys import trusted_keys
    from proctor.settings import load_settings

    folder = load_settings().keys_dir.expanduser()
    return tuple(key for each in trust for key in trusted_keys(each, folder))


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
        "verified": verified.origin_checked,
        "consistent": verified.ok,
        "origin_checked": verified.origin_checked,
        "sentence": _sentence(verified),
        "receipt": str(verified.path),
        "root": verified.root,
        "expected_root": _digest(expect),
        "signature": verified.signature.to_mapping(),
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
    print(f"documents  {verified.documents:,} generated again from the attempts and compared")
    signed = verified.signature
    if signed.key:
        until = f", expires {signed.expires_at}" if signed.expires_at else ""
        print(f"signature  {signed.key}, {signed.signed_at}{until}")
    for note in found.notes:
        print(printable(f"note       {note}"))
    print(f"\n{_sentence(verified)}")
    if verified.ok and not verified.origin_checked:
        print("anyone can make such a file; check the origin with --expect DIGEST or --trust KEY")
    for each in found.differences[:SHOWN]:
        print(printable(f"  {each.text}"))
    if found.total > SHOWN:
        print(f"  … and {found.total - SHOWN:,} more; --json lists them")


def _sentence(verified: Verified) -> str:
    """The verdict. Only a quoted root or a trusted key makes it "verified"."""
    total = verified.findings.total
    if total:
        return f"NOT verified: {total:,} {'difference' if total == 1 else 'differences'}"
    checked = "every digest matches, and every number follows from the recorded attempts"
    if not verified.origin_checked:
        signed = ": no trusted key was given for the signature" if verified.signature.key else ""
        return f"consistent in itself; the origin was not checked{signed} ({checked})"
    origin = ["the root is the expected one"] if verified.expected else []
    if verified.signature.standing == "trusted":
        origin.append("a key that you trust signed it")
    return f"verified: {checked}; {' and '.join(origin)}"
