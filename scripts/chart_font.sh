#!/usr/bin/env bash
# Make the font of PNG charts anew: the letters that charts may need, of Debian's fonts-dejavu-core.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
"$uv" tool run --from 'fonttools==4.68.0' pyftsubset /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf \
  --unicodes='U+20-7E,U+A0-17F,U+391-3C9,U+400-45F,U+2010-2026,U+202F,U+2030,U+2032-2033,U+2039-203A,U+20AC,U+2190-2193,U+2206,U+2212,U+221E,U+2248,U+2260,U+2264-2265,U+FFFD' \
  --layout-features='kern' --no-hinting --notdef-outline --no-recalc-timestamp \
  --output-file=src/proctor/render/fonts/DejaVuSans.ttf
