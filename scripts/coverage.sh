#!/usr/bin/env bash
# Hold the coverage bars: 90 % of everything, 98 % of the pure middle.
set -euo pipefail
cd "$(dirname "$0")/.."
coverage=.venv/bin/coverage
"$coverage" report --fail-under=90 --format=total >/dev/null || { "$coverage" report --skip-covered; exit 1; }
for package in model spec plan analysis; do
  "$coverage" report --include="src/proctor/$package/*" --fail-under=98 >/dev/null || {
    "$coverage" report --include="src/proctor/$package/*" --skip-covered --show-missing
    exit 1
  }
done
printf 'coverage: %s %% of src\n' "$("$coverage" report --format=total)"
