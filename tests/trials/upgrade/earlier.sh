#!/bin/sh
# Builds an earlier commit from git into an environment of its own, and runs a command that finds its
# Python in BOS_TEST_EARLIER_PYTHON:
#
#     earlier.sh COMMIT FOLDER COMMAND...
#
# In a shallow clone there may be no earlier commit: it says so, and fails where CI is set.
set -eu

from=$1
folder=$2
shift 2

if ! commit=$(git rev-parse --verify --quiet "$from^{commit}"); then
    if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
        echo "This clone is shallow and does not hold $from, so no upgrade was tested." \
            "\`git fetch --deepen=1\` brings it." >&2
        [ -z "${CI:-}" ] || exit 1
        exit 0
    fi
    echo "There is no commit $from here." >&2
    exit 1
fi

tree=$folder/$commit
if [ ! -d "$tree" ]; then
    # One at a time: each environment takes a gigabyte.
    rm -rf "$folder"
    mkdir -p "$tree.partial"
    git archive "$commit" | tar -x -C "$tree.partial"
    mv "$tree.partial" "$tree"
fi
echo "Building $(git log -1 --format='%h %s' "$commit")" >&2
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u VIRTUAL_ENV \
    "${MAKE:-make}" --no-print-directory -C "$tree" install ${PYTHON:+PYTHON="$PYTHON"} >&2
BOS_TEST_EARLIER_PYTHON=$tree/.venv/bin/python
export BOS_TEST_EARLIER_PYTHON
exec "$@"
