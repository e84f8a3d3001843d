from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.sandbox.image.archives import docker_archive, layer

from proctor.cli.main import main


@pytest.mark.needs("bubblewrap")
def test_an_image_is_imported_listed_and_removed(tmp_path, capsys):
    file = docker_archive(tmp_path / "image.tar", [layer({"a": b"1"})], ["tool:1"])
    assert main(["images", "ls"]) == 0
    assert "No images yet" in capsys.readouterr().out
    assert main(["images", "import", str(file)]) == 0
    assert main(["images", "import", str(file), "--name", "second:2"]) == 0
    assert "docker.io/library/tool:1" in capsys.readouterr().out
    assert main(["images", "ls"]) == 0
    assert "docker.io/library/second:2" in capsys.readouterr().out
    assert main(["images", "ls", "--json"]) == 0
    assert {each["source"] for each in json.loads(capsys.readouterr().out)} == {"archive"}
    assert main(["images", "gc", "--days", "0"]) == 0
    assert "removed 0 layers" in capsys.readouterr().out


@pytest.mark.needs("bubblewrap")
def test_collecting_imported_images_forgets_them(tmp_path, capsys):
    file = docker_archive(tmp_path / "image.tar", [layer({"a": b"1"})], ["tool:1"])
    command = [sys.executable, "-m", "proctor.cli.main", "images", "import", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    assert main(["images", "gc", "--days", "0", "--imported", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["removed"], done["forgotten"]) == (1, ["docker.io/library/tool:1"])
    subprocess.run(command, check=True, capture_output=True)
    assert main(["images", "gc", "--max-gb", "0", "--imported"]) == 0
    assert "no longer here: docker.io/library/tool:1" in capsys.readouterr().out


@pytest.mark.needs("bubblewrap")
def test_a_file_that_is_no_image_is_bad_input(tmp_path, capsys):
    (tmp_path / "junk").write_text("junk")
    assert main(["images", "import", str(tmp_path / "junk")]) == 2
    assert "not an image archive" in capsys.readouterr().err


def test_listing_loads_nothing_heavy():
    program = (
        "import sys; from proctor.cli.main import main; main(['images', 'ls']); "
        "print(sorted({'asyncio', 'tarfile', 'tempfile', 'sqlalchemy', 'numpy', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
