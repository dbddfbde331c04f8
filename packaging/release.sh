#!/usr/bin/env bash
# Makes a release from a clean checkout: moves the fragments of changelog.d into CHANGELOG.md, sets the version, commits, tags.
#
#   packaging/release.sh 0.2.0         shows what would be done, and changes nothing
#   packaging/release.sh 0.2.0 --run   does it; pushing commit and tag is left to you
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}

fail() { echo "release: $*" >&2; exit 1; }

version=${1:-}
mode=${2:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?$ ]] || fail "say which version, such as 0.2.0: '$version'"
[[ -z $mode || $mode == --run ]] || fail "unknown option: $mode"
[[ -z $(git status --porcelain) ]] || fail "the checkout has changes that are not committed"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists already"
[[ -n $(find changelog.d -name '*.*.md' -print -quit) ]] || fail "changelog.d holds no note: is there anything to release?"

if [[ $mode != --run ]]; then
  "$BIN/towncrier" build --draft --version "$version"
  echo "release: nothing was changed; add --run to write CHANGELOG.md and mark/domain/version.py, commit, and tag v$version"
  exit 0
fi

"$BIN/towncrier" build --yes --version "$version"
sed -i.old "/^## $version (unreleased)\$/d" CHANGELOG.md && rm CHANGELOG.md.old  # its entries belong to this release
sed -i.old "s/^VERSION = .*/VERSION = \"$version\"/" mark/domain/version.py && rm mark/domain/version.py.old
git add CHANGELOG.md changelog.d mark/domain/version.py
git commit -q -m "Release $version"
git tag -a "v$version" -m "mark $version"
echo "release: v$version is committed and tagged here; git push --follow-tags publishes it"
