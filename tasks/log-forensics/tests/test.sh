#!/bin/bash
python3 - <<'EOF'
import json
import pathlib

wanted = json.loads(pathlib.Path("/tests/wanted.json").read_text())
try:
    found = json.loads(pathlib.Path("/app/finding.json").read_text())
except (OSError, ValueError) as error:
    print(error)
    found = {}
print("wanted", wanted, "found", found)
pathlib.Path("/logs/verifier/reward.txt").write_text("1" if found == wanted else "0")
EOF
