from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import StoreError, UsageError
from proctor.model.trial import RunStatus
from proctor.receipt import document
from proctor.receipt.verify import verify_receipt

QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", ["experiment", "task"])
def test_an_honest_receipt_is_verified(workshop, tools, kind):
    verified = tools.verify(workshop.receipt(kind))
    assert tools.told(workshop.folder / "run.receipt.zip") == []
    assert verified.ok
    assert verified.documents > 10
    assert not verified.findings.notes


@pytest.mark.parametrize("kind", ["experiment", "task"])
def test_a_receipt_of_version_0_1_is_still_verified(tools, kind, monkeypatch):
    """By a later version, which makes pages for people in its own way and compares the numbers."""
    for module in ("verify", "recount"):
        monkeypatch.setattr(f"proctor.receipt.{module}.installed_version", lambda: "later")
    kept = Path(__file__).parents[1] / "data" / "receipts" / f"{kind}-0.1.0.receipt.zip"
    assert tools.told(kept) == []
    verified = tools.verify(kept)
    assert verified.ok
    assert verified.documents > 3
    assert not verified.same_version


@pytest.mark.parametrize("kind", ["experiment", "task"])
def test_the_same_run_gives_the_same_bytes(workshop, kind):
    one, two = workshop.receipt(kind), workshop.receipt(kind, "again.zip")
    assert one.read_bytes() == two.read_bytes()


def test_the_root_is_the_same_with_and_without_artifacts(workshop, tools):
    whole, lean = workshop.receipt("task"), workshop.receipt("task", "lean.zip", artifacts=False)
    assert tools.verify(whole).root == tools.verify(lean).root
    left_out = tools.verify(lean)
    assert left_out.ok
    assert left_out.left_out
    names = tools.unpacked(lean)
    assert any(name.endswith("verifier/reward.txt") for name in names), "rewards can still be checked"
    assert not any(name.endswith(("trajectory.json", "logs/eval.log")) and names[name] for name in names)
    assert any("trajectories were left out" in note for note in left_out.findings.notes)


def test_any_reader_of_zips_finds_a_run_folder_inside(workshop, tmp_path):
    from proctor.runfolder.transfer import import_folder
    from proctor.store.blobs import open_blobs
    from proctor.store.open import open_store

    with zipfile.ZipFile(workshop.receipt("task")) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "out")
    with open_store(str(tmp_path / "other.db")) as store:
        assert import_folder(store, open_blobs(tmp_path / "b"), tmp_path / "out").added


def test_the_document_fits_its_published_schema(sealed, tools):
    import jsonschema

    from proctor import runfolder

    schema = json.loads((Path(runfolder.__file__).parent / "schemas/receipt.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(tools.unpacked(sealed)[document.NAME]))


# One byte


@QUICK
@given(data=st.data())
def test_one_flipped_byte_of_a_file_names_that_file(sealed, tmp_path_factory, data):
    raw = bytearray(sealed.read_bytes())
    with zipfile.ZipFile(sealed) as archive:
        infos = [info for info in archive.infolist() if info.filename != document.NAME and info.compress_size]
    info = data.draw(st.sampled_from(infos))
    begin = info.header_offset + 30 + len(info.filename.encode())
    at = data.draw(st.integers(begin, begin + info.compress_size - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    target = tmp_path_factory.mktemp("flip") / "r.zip"
    target.write_bytes(raw)
    verified = verify_receipt(target)
    assert any(each.file == info.filename for each in verified.findings.differences)


@QUICK
@given(data=st.data())
def test_no_byte_of_the_archive_can_be_flipped_unseen(sealed, tmp_path_factory, data):
    raw = bytearray(sealed.read_bytes())
    tail = data.draw(st.booleans())  # headers and directory lie between and behind the contents
    at = data.draw(st.integers(len(raw) - 400 if tail else 0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    target = tmp_path_factory.mktemp("flip") / "r.zip"
    target.write_bytes(raw)
    try:
        verified = verify_receipt(target)
    except UsageError:
        return
    assert not verified.ok


def test_bytes_before_after_and_between_are_seen(sealed, tmp_path):
    raw = sealed.read_bytes()
    for name, changed in (("before", b"x" + raw), ("after", raw + b"x"), ("short", raw[:-1])):
        target = tmp_path / name
        target.write_bytes(changed)
        try:
            assert not verify_receipt(target).ok
        except UsageError as error:
            assert "damaged" in str(error)  # noqa: PT017 - either answer is right


# One value, sealed again


def _leaf(draw, row):
    """A number or an outcome somewhere in a row that the run's numbers follow from."""
    spots = [
        (row, name) for name in ("started_at", "ended_at", "outcome", "number", "seed", "index", "rollout")
    ]
    spots += [(row, "reward")] * (row["reward"] is not None)
    for part in (row["metrics"], row["usage"], row["phases_s"]):
        spots += _numbers(part)
    for iteration in row["iterations"]:
        spots += _numbers(iteration)
    return draw(st.sampled_from(spots))


def _numbers(value):
    if isinstance(value, list):
        return [spot for item in value for spot in _numbers(item)]
    if not isinstance(value, dict):
        return []
    found = [(value, name) for name, item in value.items() if type(item) in {int, float}]
    return found + [spot for item in value.values() for spot in _numbers(item)]


@settings(QUICK, max_examples=80)
@given(data=st.data())
def test_one_changed_value_of_a_row_sealed_again_names_the_trial(sealed, tools, tmp_path_factory, data):
    changed = {}

    def change(rows):
        row = data.draw(st.sampled_from([row for row in rows if row["counts"]]))
        holder, name = _leaf(data.draw, row)
        if name == "outcome":
            holder[name] = "failed" if holder[name] != "failed" else "passed"
        else:
            holder[name] += data.draw(st.sampled_from([1, -1, 0.25, 1000]))
            if name in {"number", "index", "seed", "rollout"}:
                holder[name] = abs(int(holder[name])) + 2000
        changed["key"] = row["key"]

    target = tools.forge_rows(sealed, change, tmp_path_factory.mktemp("forged") / "r.zip")
    verified = verify_receipt(target)
    assert not verified.ok
    named = {each.trial.key for each in verified.findings.differences if each.trial}
    assert changed["key"] in named


def test_a_forgery_that_fits_has_another_root(workshop, tools, tmp_path):
    honest = workshop.receipt("task")
    root = tools.verify(honest).root
    assert tools.verify(honest, expect=root).ok

    def everywhere(files):
        for name, data in files.items():
            files[name] = data.replace(b'"worker":"w1"', b'"worker":"w2"')

    forged = tools.forge(honest, everywhere, tmp_path / "forged.zip")
    assert tools.verify(forged).ok, "nothing follows from a worker's name"
    (told,) = tools.told(forged, expect=root)
    assert told.startswith(f"receipt.json: root: recorded '{tools.verify(forged).root}', the digest that was")
    assert root in told


# What the list says


def _listed(path, target, change):
    """Change `receipt.json` alone, and leave its root as it was."""
    import io

    from proctor.receipt.container import Packer

    with zipfile.ZipFile(path) as archive, target.open("w+b") as sink:
        packer = Packer(sink)
        for info in archive.infolist():
            data = archive.read(info)
            if info.filename == document.NAME:
                found = json.loads(data)
                change(found)
                data = json.dumps(found).encode()
            packer.add(info.filename, io.BytesIO(data), len(data), deflate=info.filename != document.NAME)
        packer.close()
    return target


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda each: each["files"][0].update(sha256="0" * 64), "README.md: sha256: recorded '0000"),
        (lambda each: each["files"][0].update(bytes=5), "README.md: bytes: recorded 5"),
        (lambda each: each["files"].append(each["files"][0]), "README.md: is listed twice"),
        (
            lambda each: each["files"][0].update(packed=None),
            "README.md: is listed as left out, but is in the archive",
        ),
        (lambda each: each["files"].pop(0), "README.md: is in the archive but not listed"),
        (
            lambda each: each["files"].append(
                {"path": "z", "sha256": "0" * 64, "bytes": 1, "packed": "0" * 64}
            ),
            "z: is missing from the archive",
        ),
        (
            lambda each: each["run"].update(trials=99),
            "receipt.json: run.trials: recorded 99, the run gives 3",
        ),
        (lambda each: each.update(root="0" * 64), "receipt.json: root: recorded '0000"),
    ],
)
def test_a_list_that_lies_is_told(workshop, tools, tmp_path, change, expected):
    told = tools.told(_listed(workshop.receipt("experiment"), tmp_path / "forged.zip", change))
    assert any(expected in line for line in told), told


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda each: each.update(format="x"), "not the receipt of a run"),
        (lambda each: each.update(schema_version=99), "schema version 99; this Proctor reads up to 1"),
        (lambda each: each.pop("run"), "'run' and 'proctor' are missing"),
        (lambda each: each.pop("files"), "'files' and 'root' are missing"),
        (lambda each: each["files"].append(3), "a JSON object is expected"),
        (lambda each: each["files"].append({"path": "x", "sha256": "y"}), "64 hexadecimal digits"),
        (lambda each: each["files"].append({"path": "x", "sha256": "0" * 64}), "'bytes' and 'packed'"),
    ],
)
def test_what_is_no_receipt_is_refused(workshop, tools, tmp_path, change, expected):
    with pytest.raises(UsageError, match=expected):
        tools.verify(_listed(workshop.receipt("experiment"), tmp_path / "forged.zip", change))


def test_other_files_are_refused(tmp_path, tools):
    for name, content in (("text", b"hello"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match="not a receipt"):
            tools.verify(tmp_path / name)
    with pytest.raises(UsageError, match="no such file"):
        tools.verify(tmp_path / "absent")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(UsageError, match=r"it has no receipt\.json"):
        tools.verify(tmp_path / "other.zip")
    with zipfile.ZipFile(tmp_path / "way-out.zip", "w") as archive:
        archive.writestr("../../etc/passwd", "hello")
    with pytest.raises(UsageError, match="points outside the archive"):
        tools.verify(tmp_path / "way-out.zip")
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("receipt.json", b"0" * (64 << 20))
    with pytest.raises(UsageError, match="bomb"):
        tools.verify(tmp_path / "bomb.zip")


def test_a_run_that_goes_on_has_no_receipt(workshop):
    workshop.put("experiment", status=RunStatus.RUNNING)
    with pytest.raises(UsageError, match="only a run that has ended can have a receipt"):
        workshop.receipt("experiment")


@pytest.mark.parametrize("status", [RunStatus.INTERRUPTED, RunStatus.CANCELLED])
def test_a_run_that_was_cut_short_has_one(workshop, tools, status):
    workshop.put("experiment", status=status)
    assert tools.told(workshop.receipt("experiment")) == []


def test_a_receipt_replaces_nothing(workshop):
    workshop.receipt("experiment")
    with pytest.raises(UsageError, match="already exists"):
        workshop.receipt("experiment")


def test_a_blob_that_is_gone_or_damaged_leaves_no_receipt(workshop):
    run_id = workshop.put("task")
    digest = next(row.record.artifacts[1].digest for row in workshop.store.attempts(run_id))
    place = workshop.blobs.path(digest)
    data = place.read_bytes()
    for damaged, expected in (
        (b"x" * len(data), "is damaged"),
        (b"x", "changed while"),
        (None, "not in the store"),
    ):
        place.unlink()
        if damaged is not None:
            place.write_bytes(damaged)
        with pytest.raises(StoreError, match=expected):
            workshop.receipt("task")
        assert not list(workshop.folder.glob("*.zip")), "nothing half-made is left"
        assert not list(workshop.folder.glob(".*.tmp"))
        if damaged is None:
            place.write_bytes(data)
    place.unlink()
    assert workshop.receipt("task", artifacts=False).exists()


def test_a_sweep_of_many_iterations_is_packed_and_checked_from_its_rows(workshop, tools, monkeypatch):
    from proctor.runfolder import read as data

    monkeypatch.setattr(data, "ITERATIONS_KEPT", 10)
    assert tools.told(workshop.receipt("experiment")) == []


def test_differences_beyond_the_first_thousand_are_counted(workshop, tools, tmp_path, monkeypatch):
    from proctor.receipt import differences

    monkeypatch.setattr(differences, "KEPT", 2)

    def change(rows):
        for row in rows:
            row["reward"] = 0.3

    found = tools.verify(tools.forge_rows(workshop.receipt("task"), change, tmp_path / "f.zip")).findings
    assert len(found.differences) == 2
    assert found.total > 10


def test_an_instrument_in_a_pass_of_its_own_keeps_its_aggregates(workshop, tools, tmp_path):
    def change(rows):
        rows[0]["metrics"]["memray.peak_bytes"] = {"mean": 5}
        rows[0]["ledger"]["instruments"] = {"memray": {"rides_along": False}}

    verified = tools.verify(tools.forge_rows(workshop.receipt("experiment"), change, tmp_path / "f.zip"))
    assert any("a pass of their own" in note for note in verified.findings.notes)
    assert not any("no iteration has it" in each.what for each in verified.findings.differences)


def _deep(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"n": value}
    return value


@pytest.mark.parametrize("value", ["\ud800", _deep(300), _deep(900), 10**200, -1])
@pytest.mark.parametrize("place", ["params", "ledger", "plan"])
def test_values_that_break_things_are_a_difference_and_no_crash(workshop, tools, tmp_path, place, value):
    honest = workshop.receipt("experiment")

    def change(files):
        if place == "plan":
            found = json.loads(files["manifest.json"])
            found["plan"]["trials"][0]["params"]["size"] = value
            files["manifest.json"] = json.dumps(found).encode()
            return
        rows = [json.loads(line) for line in files["series.jsonl"].splitlines()]
        rows[0][place]["size"] = value
        files["series.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()

    assert tools.told(tools.forge(honest, change, tmp_path / "f.zip"))


def test_a_head_that_cannot_be_digested_is_refused(workshop, tools, tmp_path):
    target = _listed(
        workshop.receipt("experiment"), tmp_path / "f.zip", lambda each: each["run"].update(id="\ud800")
    )
    with pytest.raises(UsageError, match="cannot be digested"):
        tools.verify(target)
