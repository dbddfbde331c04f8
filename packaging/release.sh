#!/usr/bin/env bash
# Makes a release from a clean checkout: moves the fragments of changelog.d into CHANGELOG.md, sets the version, builds the
# wheel and the sdist and tries the wheel in a fresh environment (packaging/build.sh), commits, tags.
#
#   packaging/release.sh 0.2.0         shows the notes, and changes nothing
#   packaging/release.sh 0.2.0 --run   does it; pushing commit and tag, and publishing dist/, is left to you
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}

fail() { echo "release: $*" >&2; exit 1; }

version=${1:-}
mode=${2:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?$ ]] || fail "say which version, such as 0.2.0: '$version'"
[[ -z $mode || $mode == --run ]] || fail "unknown option: $mode"
[[ -x $BIN/towncrier ]] || fail "$BIN has no towncrier: make $BIN/../.dev installs it, and BIN=FOLDER names another environment"
[[ -z $(git status --porcelain) ]] || fail "the checkout has changes that are not committed"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists already"
mapfile -t released < <(git tag --list 'v[0-9]*')
"$BIN/python" - "$version" ${released[@]+"${released[@]}"} <<'PYTHON' || fail "$version is not newer than the last tag"
import sys

from packaging.version import Version

version, *tags = sys.argv[1:]
sys.exit(any(Version(tag[1:]) > Version(version) for tag in tags))
PYTHON

# The notes of a version may stand in CHANGELOG.md already; fragments that came later are put before them.
unreleased="## $version (unreleased)"
fragments=$(find changelog.d -name '*.*.md' -print -quit)
grep -qxF "$unreleased" CHANGELOG.md && written=yes || written=
[[ -n $fragments || -n $written ]] || fail "changelog.d holds no note: is there anything to release?"

if [[ $mode != --run ]]; then
  [[ -z $fragments ]] || "$BIN/towncrier" build --draft --version "$version"
  [[ -z $written ]] || awk -v head="$unreleased" '$0 == head {on = 1; print; next} /^## / {on = 0} on' CHANGELOG.md
  echo "release: nothing was changed; add --run to write CHANGELOG.md and mark/domain/version.py, build, commit, and tag v$version"
  exit 0
fi

trap 'git reset -q --hard; echo "release: failed; the checkout is as it was, and nothing is tagged" >&2' EXIT
if [[ -n $fragments ]]; then
  "$BIN/towncrier" build --yes --version "$version"
  sed -i.old "/^## $version (unreleased)\$/d" CHANGELOG.md
else
  sed -i.old "s/^## $version (unreleased)\$/## $version ($(date +%Y-%m-%d))/" CHANGELOG.md
fi
sed -i.old "s/^VERSION = .*/VERSION = \"$version\"/" mark/domain/version.py
rm -f CHANGELOG.md.old mark/domain/version.py.old
BIN=$BIN packaging/build.sh dist
git add CHANGELOG.md changelog.d mark/domain/version.py
git commit -q -m "Release $version"
git tag -a "v$version" -m "mark $version"
trap - EXIT
echo "release: v$version is committed and tagged here, its wheel and sdist are in dist/; git push --follow-tags publishes the tag"
