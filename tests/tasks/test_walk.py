"""Find the tasks below a folder, and stop where nobody can mean it."""

from __future__ import annotations

import pytest

from proctor.errors import TaskError
from proctor.tasks.walk import task_folders


def test_a_folder_of_very_many_other_folders_is_not_searched_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("proctor.tasks.walk.MOST_OTHERS", 5)
    for number in range(4):
        (tmp_path / f"a{number}" / "inner").mkdir(parents=True)
    with pytest.raises(TaskError, match="more than 5 folders below it are no tasks; name the folder"):
        task_folders(tmp_path)
