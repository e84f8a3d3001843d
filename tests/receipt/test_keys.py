"""Keys on disk and the signature that they make: what is refused, and that no field is free."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import pytest

from proctor.errors import NotFoundError, UsageError
from proctor.receipt.keys import load_signer, new_key, public_bytes, stored_keys, trusted_keys
from proctor.receipt.signature import Standing, check_signature, signing

ROOT = "ab" * 32
NOW = 1_800_000_000.0


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "a/keys"


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_key_is_readable_by_its_owner_alone_whatever_the_umask(folder):
    before = os.umask(0)
    try:
        made = new_key(folder)
    finally:
        os.umask(before)
    assert (mode(folder), mode(made.path)) == (0o700, 0o600)
    assert load_signer("", folder).public == made.public
    assert load_signer(str(made.path), folder).public == made.public
    assert [each.name for each in stored_keys(folder)] == ["default"]
    assert trusted_keys(str(made.path.with_suffix(".pub")), folder) == (made.public,)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o666])
def test_a_key_that_others_can_read_is_refused_with_what_to_do(folder, bits):
    made = new_key(folder)
    made.path.chmod(bits)
    with pytest.raises(UsageError, match=r"others can read this private key.*chmod 600"):
        load_signer("default", folder)
    with pytest.raises(UsageError, match="others can read"):
        load_signer(str(made.path), folder)
    (listed,) = stored_keys(folder)
    assert "others can read" in listed.problem


@pytest.mark.parametrize("bits", [0o750, 0o755, 0o777])
def test_a_folder_that_others_can_open_is_refused(folder, bits):
    new_key(folder)
    folder.chmod(bits)
    with pytest.raises(UsageError, match="chmod 700"):
        load_signer("default", folder)
    with pytest.raises(UsageError, match="chmod 700"):
        new_key(folder, "second")
    assert not (folder / "second.key").exists()


def test_of_several_keys_the_default_is_meant_and_of_one_that_one(folder):
    only = new_key(folder, "nightly")
    assert load_signer("", folder).public == only.public
    new_key(folder, "other")
    with pytest.raises(NotFoundError, match="no key named 'default'"):
        load_signer("", folder)


def test_a_key_is_never_replaced_and_half_a_pair_is_not_left(folder):
    made = new_key(folder)
    with pytest.raises(UsageError, match="already exists"):
        new_key(folder)
    assert load_signer("", folder).public == made.public
    (folder / "b.pub").write_text("x")
    with pytest.raises(UsageError, match="already exists"):
        new_key(folder, "b")
    assert not (folder / "b.key").exists()


def test_what_is_no_key_is_refused_without_showing_it(folder, tmp_path):
    new_key(folder)
    bad = folder / "bad.key"
    bad.write_text("-----BEGIN PRIVATE KEY-----\nhunter2hunter2\n-----END PRIVATE KEY-----\n")
    bad.chmod(0o600)
    with pytest.raises(UsageError, match="not a private key") as refused:
        load_signer("bad", folder)
    assert "hunter2" not in str(refused.value)
    fifo = folder / "fifo.key"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(UsageError, match="not a key file"):
        load_signer("fifo", folder)
    (tmp_path / "empty.pub").write_text("# nothing\n")
    with pytest.raises(UsageError, match="contains no public key"):
        trusted_keys(str(tmp_path / "empty.pub"), folder)


def test_other_kinds_of_keys_and_passphrases_are_refused(folder):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    new_key(folder)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    plain, locked = serialization.NoEncryption(), serialization.BestAvailableEncryption(b"hunter2")
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, pkcs8, plain)
    shut = ed25519.Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, locked)
    for name, content, reason in (("ec", other, "not an Ed25519 key"), ("shut", shut, "has a passphrase")):
        path = folder / f"{name}.key"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(UsageError, match=reason):
            load_signer(name, folder)


def test_a_signer_does_not_show_its_key(folder):
    new_key(folder)
    signer = load_signer("", folder)
    assert repr(signer) == f"Signer(public={signer.public!r})"


def test_a_signature_binds_the_root_the_key_and_both_times(folder):
    new_key(folder)
    other = new_key(folder, "other")
    signer = load_signer("default", folder)
    written = signing(signer, NOW, 30)(ROOT)
    good = check_signature(written, ROOT, [signer.public], NOW)
    assert good.standing is Standing.TRUSTED
    assert (good.signed_at, good.expires_at) == ("2027-01-15T08:00:00Z", "2027-02-14T08:00:00Z")
    assert check_signature(written, ROOT, [], NOW).standing is Standing.NOT_CHECKED
    assert check_signature(written, ROOT, [other.public], NOW).standing is Standing.UNKNOWN_KEY
    assert check_signature(written, ROOT, [signer.public], NOW + 31 * 86400).standing is Standing.EXPIRED
    assert check_signature(written, "cd" * 32, [signer.public], NOW).standing is Standing.INVALID
    for name, value in {
        "key": other.public,
        "signed_at": "2027-01-15T08:00:01Z",
        "expires_at": None,
        "value": written["value"][:-4] + "AAA=",
        "algorithm": "none",
    }.items():
        changed = check_signature({**written, name: value}, ROOT, [signer.public, other.public], NOW)
        assert changed.standing is Standing.INVALID, name
        assert changed.problem


@pytest.mark.parametrize("flip", range(0, 86, 5))
def test_every_changed_character_of_a_signature_is_found(folder, flip):
    new_key(folder)
    signer = load_signer("default", folder)
    written = signing(signer, NOW, None)(ROOT)
    value = written["value"]
    changed = value[:flip] + ("A" if value[flip] != "A" else "B") + value[flip + 1 :]
    assert (
        check_signature({**written, "value": changed}, ROOT, [signer.public], NOW).standing
        is Standing.INVALID
    )


@pytest.mark.parametrize(
    "written", ["text", 7, [], {}, {"key": 1}, {"algorithm": "ed25519", "key": {}, "value": []}]
)
def test_what_is_no_signature_is_said_to_be_none(written):
    found = check_signature(written, ROOT, [], NOW)
    assert found.standing is Standing.INVALID
    assert "not in the form" in found.problem


def test_the_text_of_a_public_key_has_one_form(folder):
    made = new_key(folder)
    assert len(public_bytes(made.public) or b"") == 32
    assert public_bytes(made.public[:-1]) is None
    assert public_bytes("rsa:" + made.public) is None
    assert replace(made, problem="x").problem == "x"
