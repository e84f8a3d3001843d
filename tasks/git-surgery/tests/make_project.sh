#!/bin/bash
set -e
export HOME=/tmp GIT_CONFIG_NOSYSTEM=1
git init -q -b main "$1"
cd "$1"
git config user.name Builder
git config user.email builder@example.org
commit() {
  git add -A
  GIT_AUTHOR_NAME="$1" GIT_AUTHOR_EMAIL="$1@example.org" GIT_AUTHOR_DATE="$2" GIT_COMMITTER_DATE="$2" git commit -qm "$3"
}
echo '# Project' > README.md
commit ada 2025-01-01T10:00:00Z 'Begin'
echo 'print("hello")' > app.py
echo 'KEY=sk-live-4f9a7c21e0' > deploy.env
commit bob 2025-01-02T10:00:00Z 'Add the program'
echo 'print("hello, world")' > app.py
commit ada 2025-01-03T10:00:00Z 'Greet the world'
echo 'KEY=sk-live-4f9a7c21e0-rotated' > deploy.env
mkdir docs && echo 'Run app.py.' > docs/use.md
commit bob 2025-01-04T10:00:00Z 'Document it'
git rm -q deploy.env
echo 'deploy.env' > .gitignore
commit ada 2025-01-05T10:00:00Z 'Keep the key out'
echo '1.0' > VERSION
commit ada 2025-01-06T10:00:00Z 'Release 1.0'
git tag v1.0
