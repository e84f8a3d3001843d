#!/bin/bash
set -e
cd /app
python3 - <<'EOF'
import pathlib

module = pathlib.Path("stats.py")
text = module.read_text()
text = text.replace(
    "    return ordered[len(ordered) // 2]\n",
    "    middle = len(ordered) // 2\n"
    "    if len(ordered) % 2:\n"
    "        return ordered[middle]\n"
    "    return (ordered[middle - 1] + ordered[middle]) / 2\n",
)
module.write_text(text.replace("range(len(values) - size)", "range(len(values) - size + 1)"))
with pathlib.Path("test_stats.py").open("a") as tests:
    tests.write(
        "\n\ndef test_the_median_of_four_is_between_the_middle_two():\n"
        "    assert median([4, 1, 3, 2]) == 2.5\n"
        "\n\ndef test_the_last_window_is_at_the_end():\n"
        "    assert window([1, 2, 3, 4], 2)[-1] == [3, 4]\n"
    )
EOF
