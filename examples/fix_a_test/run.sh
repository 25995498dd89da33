#!/bin/sh
# Has an agent mend a copy of ./repository, and shows what it changed. More words are options of `deadlined agent`.
set -u
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/repository/*.py "$work"

deadlined agent 'The tests of this repository fail. Find out why and mend it.' \
    --constraint 'the tests are right: change what they test' \
    --check 'python3 -B -m unittest -q' --workspace "$work" --model "scripted:$here/script.toml" "$@"
code=$?
diff -u "$here/repository/totals.py" "$work/totals.py"
exit $code
