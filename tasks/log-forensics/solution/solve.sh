#!/bin/bash
set -e
# /export/all is asked for by one client only, and slowness begins with its first request.
began=$(awk '$4 == "/export/all" { print $1; exit }' /app/access.log)
client=$(awk '$4 == "/export/all" { print $2; exit }' /app/access.log)
failed=$(awk -v began="$began" '$1 >= began && $5 == 503' /app/access.log | wc -l)
printf '{"client": "%s", "path": "/export/all", "began": "%s", "failed_after": %d}\n' "$client" "$began" "$failed" \
  > /app/finding.json
