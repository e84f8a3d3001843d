from __future__ import annotations

import io
import tarfile

from proctor.trial import redact_files
from proctor.trial.redact import NOTHING_SECRET, Redactor
from proctor.trial.redact_files import clean_file, clean_folder, clean_state

REDACTOR = Redactor({"S": "secret-value"})


def test_a_file_is_rewritten_only_when_it_holds_a_secret(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"x" * (1 << 20) + b"secret-value")
    file.chmod(0o640)
    assert clean_file(file, REDACTOR)
    assert file.read_bytes().endswith(b"x[redacted:S]")
    assert file.stat().st_mode & 0o777 == 0o640
    assert not clean_file(file, REDACTOR)
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_secret_across_the_border_of_two_reads_is_found(tmp_path):
    file = tmp_path / "a.bin"
    file.write_bytes(b"x" * ((1 << 20) - 5) + b"secret-value" + b"y" * 9)
    assert clean_file(file, REDACTOR)
    assert b"secret-value" not in file.read_bytes()


def test_names_of_files_and_folders_are_cleaned_and_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("secret-value")
    folder = tmp_path / "f"
    (folder / "secret-value").mkdir(parents=True)
    (folder / "secret-value" / "secret-value.txt").write_text("secret-value")
    (folder / "[redacted:S]").mkdir()
    (folder / "link").symlink_to(outside)
    assert clean_folder(folder, REDACTOR) == 3
    names = sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))
    assert names == ["[redacted:S]", "[redacted:S].2", "[redacted:S].2/[redacted:S].txt", "link"]
    assert outside.read_text() == "secret-value"
    assert clean_folder(folder, NOTHING_SECRET) == clean_folder(tmp_path / "no", REDACTOR) == 0


def test_what_is_beside_the_own_files_is_cleaned(tmp_path):
    for name in ("own", "loose-secret-value"):
        (tmp_path / name).write_text("secret-value")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("secret-value")
    clean_folder(tmp_path, REDACTOR, ("own",))
    assert (tmp_path / "own").read_text() == "secret-value"
    assert (tmp_path / "loose-[redacted:S]").read_text() == "[redacted:S]"
    assert (tmp_path / "sub" / "a").read_text() == "[redacted:S]"


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o755
    archive.addfile(member, io.BytesIO(data))


def test_a_state_keeps_everything_but_its_secrets(tmp_path, monkeypatch):
    monkeypatch.setattr(redact_files, "MAX_MEMBER_BYTES", 1000)
    state = tmp_path / "state.tar"
    with tarfile.open(state, "w", format=tarfile.PAX_FORMAT) as archive:
        add(archive, "app/secret-value.txt", b"a secret-value b")
        add(archive, "app/plain", b"plain")
        add(archive, "app/large", b"l" * 2000)
        add(archive, "app/large-secret", b"l" * 2000 + b"secret-value")
        link = tarfile.TarInfo("app/link")
        link.type, link.linkname = tarfile.SYMTYPE, "secret-value"
        archive.addfile(link)
        gone = tarfile.TarInfo("app/gone")
        gone.type = tarfile.CHRTYPE
        archive.addfile(gone)
    assert clean_state(state, REDACTOR) == 3
    with tarfile.open(state) as archive:
        found = {each.name: each for each in archive}
        read = {name: archive.extractfile(each).read() for name, each in found.items() if each.isreg()}
    assert read == {
        "app/[redacted:S].txt": b"a [redacted:S] b",
        "app/plain": b"plain",
        "app/large": b"l" * 2000,
        "app/large-secret": redact_files.WITHHELD,
    }
    assert found["app/link"].linkname == "[redacted:S]"
    assert found["app/gone"].ischr()
    assert found["app/plain"].mode == 0o755
    assert clean_state(state, REDACTOR) == 0
