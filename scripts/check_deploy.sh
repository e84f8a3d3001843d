#!/usr/bin/env bash
# Check what is deployed, with the tools of requirements/deploy.lock: check_deploy.sh [sbom]
# sbom: only write what is in the images' Python to dist/.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=.venv/deploy
digest=$(sha256sum <requirements/deploy.lock | cut -d' ' -f1)
if [ "$(cat "$tools/.stamp" 2>/dev/null)" != "$digest" ]; then
  .venv/bin/python -m venv --clear "$tools"
  UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true} .venv/bin/uv pip install -q --python "$tools/bin/python" --require-hashes -r requirements/deploy.lock
  printf '%s' "$digest" >"$tools/.stamp"
fi

if [ "${1:-}" = sbom ]; then
  mkdir -p dist
  "$tools/bin/cyclonedx-py" requirements requirements/image.lock --output-reproducible \
    --of JSON -o dist/proctor.cdx.json
  exit 0
fi

"$tools/bin/check-jsonschema" --builtin-schema vendor.github-workflows .github/workflows/*.yml
"$tools/bin/check-jsonschema" --builtin-schema vendor.compose-spec deploy/compose.yaml
scan() { "$tools/bin/checkov" --compact --quiet --skip-download "$@"; }
scan -d deploy/aws --framework terraform
scan -d deploy/kubernetes --framework kubernetes
scan -d .github/workflows --framework github_actions
if command -v terraform >/dev/null; then
  .venv/bin/python -m pytest -q tests/deploy/test_aws.py
else
  echo 'check-deploy: terraform is not installed, so deploy/aws was only scanned'
fi
