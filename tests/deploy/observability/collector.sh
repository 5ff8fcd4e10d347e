#!/bin/sh
# Prints the folder that holds otelcol, the OpenTelemetry Collector, which it builds first where it is not
# there: the parts that collector/builder.yaml names, put together by the collector's own builder.
#
# Sources come as Go modules, by the hashes of collector/go.sum. What is built stays in BOS_CACHE by the
# digest of these files, so that a build is made once on a machine, and in CI while its cache lasts.
set -eu

here=$(cd "$(dirname "$0")" && pwd)/collector
go="$here/../../../../services/rest/go.sh"
digest=$(cat "$here/builder.yaml" "$here/go.mod" "$here/go.sum" | sha256sum | cut -c 1-16)
cache=${BOS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bos}/collector
folder=$cache/$digest
if [ ! -x "$folder/otelcol" ]; then
    begun=$(date +%s)
    echo "Building the collector, once on this machine ..." >&2
    mkdir -p "$folder"
    made=$(mktemp -d "$cache/.made.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    version=$(sed -n 's/^  version: *//p' "$here/builder.yaml")
    sed "s|^  output_path:.*|  output_path: $made|" "$here/builder.yaml" > "$made/builder.yaml"
    BOS_GO_MOD=mod sh "$go" run "go.opentelemetry.io/collector/cmd/builder@v$version" \
        --config "$made/builder.yaml" --skip-compilation --skip-get-modules >&2
    cp "$here/go.mod" "$here/go.sum" "$made/"
    sh "$go" build -C "$made" -ldflags='-s -w' -o "$folder/.otelcol.$$" . >&2
    mv "$folder/.otelcol.$$" "$folder/otelcol"
    echo "Built the collector in $(($(date +%s) - begun)) s." >&2
fi
echo "$folder"
