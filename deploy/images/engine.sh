#!/bin/sh
# A Docker engine to build and try images with: the one that answers, else one of Debian's, started here.
#
#   deploy/images/engine.sh up            # prints the variables to reach it by; starts it if need be
#   deploy/images/engine.sh base          # a base image of Debian's packages, for where no registry is
#   deploy/images/engine.sh down          # ends the one that `up` started, and it alone
#
# Starting one needs root and Debian; what it needs is installed. Its state, with all layers that were built,
# is in BOS_CACHE, which all clones share.
set -eu
cd "$(dirname "$0")/../.."
STATE=${BOS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bos}/docker
OWN=unix://$STATE/docker.sock
# Debian's release of the base image, whose Python is 3.13.
SUITE=trixie
BASE=bos-base/python:$SUITE

# Debian's client, where it is: one that was fetched from elsewhere may not know its engine.
client() { if [ -x /usr/bin/docker ]; then /usr/bin/docker "$@"; else docker "$@"; fi; }
answers() { DOCKER_HOST=$1 client version > /dev/null 2>&1; }
say() { echo "$*" >&2; }
# Whether the engine of `up` runs; its file may have outlived it.
running() { grep -qs dockerd "/proc/$(cat "$STATE/dockerd.pid" 2> /dev/null)/cmdline"; }

found() {
    if [ -n "${DOCKER_HOST:-}" ] && answers "$DOCKER_HOST"; then
        echo "$DOCKER_HOST"
    elif answers "$OWN"; then
        echo "$OWN"
    elif answers unix:///var/run/docker.sock; then
        echo unix:///var/run/docker.sock
    else
        return 1
    fi
}

start() {
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null \
        || { say 'No Docker engine answers, and only root on Debian can start one here.'; return 1; }
    mkdir -p "$STATE"
    if ! command -v dockerd > /dev/null || ! command -v debootstrap > /dev/null; then
        say 'Installing docker.io, debootstrap and iptables.'
        { sh deploy/debian.sh dockerd docker.io iptables && sh deploy/debian.sh debootstrap debootstrap; } \
            > "$STATE/apt.log" 2>&1 || { say "That failed; see $STATE/apt.log"; return 1; }
    fi
    running || rm -f "$STATE/dockerd.pid"
    setsid /usr/sbin/dockerd --host "$OWN" --data-root "$STATE/data" --exec-root "$STATE/exec" \
        --pidfile "$STATE/dockerd.pid" > "$STATE/dockerd.log" 2>&1 < /dev/null &
    tries=0
    until answers "$OWN"; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || { say "dockerd did not start; see $STATE/dockerd.log"; return 1; }
        sleep 0.2
    done
}

case ${1:-} in
up)
    host=$(found) || { start; host=$OWN; }
    echo "DOCKER_HOST=$host"
    ;;
base)
    DOCKER_HOST=$(found) || { say 'No Docker engine answers.'; exit 1; }
    export DOCKER_HOST
    if ! client image inspect "$BASE" > /dev/null 2>&1; then
        say "Making $BASE from Debian's packages."
        rm -rf "$STATE/base"
        mkdir -p "$STATE/base"
        debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
            "$SUITE" "$STATE/base" > "$STATE/debootstrap.log" 2>&1 \
            || { say "debootstrap failed; see $STATE/debootstrap.log"; exit 1; }
        rm -rf "$STATE"/base/var/cache/apt/archives/*.deb "$STATE"/base/var/lib/apt/lists/* \
            "$STATE"/base/usr/share/doc "$STATE"/base/usr/share/man "$STATE"/base/usr/share/locale
        tar -C "$STATE/base" -c . | client import --change 'CMD ["/bin/sh"]' - "$BASE" > /dev/null
        rm -rf "$STATE/base"
    fi
    echo "PYTHON_IMAGE=$BASE"
    ;;
down)
    if running; then
        # What no name stands for any more, and the oldest steps of builds, would fill the disk in time.
        export DOCKER_HOST="$OWN"
        client image prune --force > /dev/null && client builder prune --force --keep-storage 8GB > /dev/null || :
        kill "$(cat "$STATE/dockerd.pid")"
    fi
    ;;
*)
    say 'usage: engine.sh up|base|down'
    exit 2
    ;;
esac
