#!/bin/bash
export HOME=/tmp GIT_CONFIG_NOSYSTEM=1
git config --global --add safe.directory '*'
reward=0
original=$(mktemp -d)/original
bash /tests/make_project.sh "$original"
describe() {
  git -C "$1" log --reverse --format='%H' main | while read -r commit; do
    git -C "$1" log -1 --format='%s|%an|%ae|%aI' "$commit"
    git -C "$1" ls-tree -r --format='%(objectname) %(path)' "$commit" 2>/dev/null | grep -v ' deploy.env$'
  done
}
cd /app/project || exit 0
leaks() {
  git cat-file --batch-all-objects --batch-check | while read -r object kind _; do
    git cat-file "$kind" "$object" | grep -qa 'sk-live-4f9a7c21e0' && echo "$object"
  done
}
if diff <(describe "$original") <(describe /app/project) &&
   [ -z "$(git log --format=%H main -- deploy.env)" ] &&
   [ "$(git log -1 --format=%s main)" = 'Release 1.0' ] &&
   [ "$(git rev-parse main)" = "$(git rev-parse 'v1.0^{commit}')" ] &&
   git fsck --no-dangling && [ -z "$(leaks)" ]; then
  reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
