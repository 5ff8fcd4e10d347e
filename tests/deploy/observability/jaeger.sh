#!/bin/sh
# Prints the folder that holds jaeger, the store of traces, which it builds first where it is not there.
#
# Sources come as Go modules, by the hashes of jaeger/go.sum. Releases of Jaeger 2 are also tagged as 1.x, the
# last of which that is a module is the one here. What is built stays in BOS_CACHE by the digest of these files.
set -eu

here=$(cd "$(dirname "$0")" && pwd)/jaeger
digest=$(cat "$here/go.mod" "$here/go.sum" | sha256sum | cut -c 1-16)
folder=${BOS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bos}/jaeger/$digest
if [ ! -x "$folder/jaeger" ]; then
    begun=$(date +%s)
    echo "Building Jaeger, once on this machine, for some ten minutes ..." >&2
    mkdir -p "$folder"
    sh "$here/../../../../services/rest/go.sh" build -C "$here" -ldflags='-s -w' -o "$folder/.jaeger.$$" \
        github.com/jaegertracing/jaeger/cmd/jaeger >&2
    mv "$folder/.jaeger.$$" "$folder/jaeger"
    echo "Built Jaeger in $(($(date +%s) - begun)) s." >&2
fi
echo "$folder"
