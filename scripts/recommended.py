"""Make the newest run of specs/recommended_config.yaml the measurement that comes with Proctor."""

from __future__ import annotations

from proctor.api import recommended_measurement
from proctor.verdicts.recommended import PACKAGED, as_json

if __name__ == "__main__":
    measured = recommended_measurement()
    PACKAGED.write_text(as_json(measured))
    print(f"{PACKAGED}: run {measured.run_id}, {len(measured.ways)} ways")
