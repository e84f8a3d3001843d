#!/bin/sh
# Write .env for deploy/compose.yaml: passwords that are made here, and the digests of the images as they are now.
#
#   deploy/compose-env.sh [FILE]        # .env in the current folder; a value that it has already stays
#
# Digests are asked for once, of the registries, by skopeo, podman or docker, and stay until their line is emptied:
# nothing changes under a tag unseen. Without a registry, or for images of your own, fill in the lines by hand.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
file=${1:-.env}
umask 077
[ -e "$file" ] || cp "$here/compose.env" "$file"
chmod 600 "$file"

value() { sed -n "s/^$1=//p" "$file" | tail -n 1; }
put() {
  awk -v name="$1" -v value="$2" 'index($0, name "=") == 1 { print name "=" value; next } { print }' "$file" >"$file.new"
  mv "$file.new" "$file"
}
password() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
digest() {
  if command -v skopeo >/dev/null; then
    skopeo inspect --format '{{.Digest}}' "docker://$1"
  elif command -v podman >/dev/null; then
    podman pull -q "$1" >/dev/null && podman image inspect --format '{{.Digest}}' "$1"
  else
    docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1"
  fi
}
local_id() {
  for engine in podman docker; do
    command -v $engine >/dev/null && $engine image inspect --format '{{.Id}}' "$1" 2>/dev/null && return
  done
  return 1
}

for name in $(sed -n 's/^\([A-Z_]*\(PASSWORD\|SECRET_KEY\)\)=$/\1/p' "$file"); do
  put "$name" "$(password)"
done
[ -n "$(value PROCTOR_BROKER)" ] || put PROCTOR_BROKER "redis://:$(value REDIS_PASSWORD)@redis:6379/0"

missing=
# In the template, a comment after a digest's line names the image that it is asked for.
for name in $(sed -n 's/^\([A-Z]*_DIGEST\)=$/\1/p' "$file"); do
  image=$(sed -n "s/^# $name: //p" "$here/compose.env")
  if found=$(digest "$image" 2>/dev/null) && expr "$found" : 'sha256:[0-9a-f]\{64\}$' >/dev/null; then
    put "$name" "$found"
  else
    missing="$missing\n  $name: no registry told the digest of $image"
  fi
done
for target in server worker; do
  name=PROCTOR_$(echo $target | tr a-z A-Z)_IMAGE
  if [ -z "$(value "$name")" ]; then
    if found=$(local_id "localhost/proctor-$target:latest"); then
      put "$name" "sha256:${found#sha256:}"
    else
      missing="$missing\n  $name: there is no localhost/proctor-$target; 'make image' builds it"
    fi
  fi
done
if [ -n "$missing" ]; then
  printf "%s is not complete, and nothing starts before it is:$missing\n" "$file" >&2
  exit 1
fi
echo "$file is complete"
