#!/usr/bin/env bash
# Build the wheel and the sdist, and prove that the wheel works without this checkout: in a fresh environment, outside
# of the checkout, with the base install alone.
#
#   packaging/build.sh           into dist/
#   packaging/build.sh FOLDER    into FOLDER
#
# POLICIES=reactive ships and tries one policy's machine code only, in a quarter of the time: for a test.
# KERNEL=FOLDER ships none, and tries the wheel with the code that this cache has: for a test, too.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
dist=$(mkdir -p "${1:-$root/dist}" && cd "${1:-$root/dist}" && pwd)
BIN=$(cd "$root" && cd "${BIN:-.venv/bin}" && pwd)
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV MAKEFLAGS

fail() { echo "build: $*" >&2; exit 1; }

rm -f "$dist"/mark_serving-*
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/source"  # a copy, because machine code within the checkout would be used there
(cd "$root" && git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 cp --parents -t "$scratch/source")
cd "$scratch/source"
[[ -n ${KERNEL:-} ]] || PYTHONPATH=$PWD:$PWD/predictors:$PWD/infra:$PWD/lambda_handlers "$BIN/python" packaging/machine_code.py ${POLICIES:+"$POLICIES"}
"$BIN/python" -m hatchling build -t sdist -t wheel -d "$dist" >/dev/null
wheels=("$dist"/mark_serving-*.whl)
[[ ${#wheels[@]} == 1 && -f ${wheels[0]} ]] || fail "expected one wheel in $dist, found: ${wheels[*]}"

export MARK_CACHE_DIR=${KERNEL:-$scratch/kernel}
cp "$root/traces/diurnal_day_5s.csv.gz" "$scratch/"
cd "$scratch"
"$BIN/python" -m venv fresh
fresh/bin/python -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" "${wheels[0]}"

version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' "$root/mark/domain/version.py")
shown=$(fresh/bin/mark --version)
[[ $shown == "mark $version" ]] || fail "the wheel says '$shown' and mark/domain/version.py says '$version'"

# All that `import mark` offers is there, and comes from the wheel.
fresh/bin/python - "$scratch" <<'PYTHON'
import sys

import mark

if not mark.__file__.startswith(sys.argv[1]):
    sys.exit(f"build: mark was imported from {mark.__file__}")
for name in mark.__all__:
    getattr(mark, name)
PYTHON

# The command of `make demo`, on half an hour of its trace, compiles nothing.
fresh/bin/mark compare diurnal_day_5s.csv.gz --service inception-v3-2026 --duration 1800 --policies "${POLICIES:-mark,reactive}" \
  --jobs 1 --json result.json ${POLICIES:+--no-bound} >table.txt
compiled=$(find "$MARK_CACHE_DIR" -name '*.nbc')
[[ -z $compiled || -n ${KERNEL:-} || $(uname -sm) != "Linux x86_64" ]] || fail "the first run compiled what the wheel lacks: $compiled"
grep -q ' keeps the promise' table.txt || { cat table.txt >&2; fail "mark compare says of no policy that it keeps the promise"; }
fresh/bin/python - "${POLICIES:-mark,reactive}" <<'PYTHON'
import json
import sys

bills = {name: run["bill_usd"]["total"] for name, run in json.load(open("result.json"))["policies"].items()}
if set(bills) != set(sys.argv[1].split(",")) or not all(usd > 0.0 for usd in bills.values()):
    sys.exit(f"build: mark compare gave these bills: {bills}")
PYTHON

installed=$(du -sm fresh/lib/python3*/site-packages | cut -f1)
echo "build: ${wheels[0]##*/} installs ($installed MB of site-packages, pip included), imports and compares without the checkout"
