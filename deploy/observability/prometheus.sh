#!/bin/sh
# Prints the folder that holds prometheus and promtool: the machine's own if they are new enough, else
# those of Debian's package prometheus, unpacked into BOS_CACHE by its version. Nothing is installed or
# started; apt verifies what it downloads. Root fetches the lists of packages anew before.
set -eu

least=2.42
cache=${BOS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bos}/prometheus

new_enough() {
    have=$("$1" --version 2>&1 | sed -n 's/.*version \([0-9.]*\).*/\1/p' | head -n 1)
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$least" "$have" | sort -V | head -n 1)" = "$least" ]
}

own=$(command -v prometheus || true)
if [ -n "$own" ] && [ -x "$(dirname "$own")/promtool" ] && new_enough "$own"; then
    dirname "$own"
    exit 0
fi
for kept in "$cache"/*/usr/bin; do
    if [ -x "$kept/promtool" ] && new_enough "$kept/prometheus"; then
        echo "$kept"
        exit 0
    fi
done
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || {
    echo "Prometheus $least or newer is not here; install prometheus and promtool." >&2
    exit 1
}
candidate() { apt-cache policy prometheus | sed -n 's/^ *Candidate: *//p' | grep -v none || true; }
# Old lists name versions that are there no more.
[ "$(id -u)" != 0 ] || flock "/run/lock/bos-apt-$(id -u)" apt-get -qq update >&2 || true
version=$(candidate)
[ -n "$version" ] || { echo "No package prometheus; apt-get update as root finds it." >&2; exit 1; }
mkdir -p "$cache"
fetched=$(mktemp -d "$cache/.fetched.XXXXXX")
trap 'rm -rf "$fetched"' EXIT
chmod 755 "$fetched"
(cd "$fetched" && flock "/run/lock/bos-apt-$(id -u)" apt-get -qq -o APT::Sandbox::User=root download "prometheus=$version" >&2)
dpkg-deb -x "$fetched"/*.deb "$fetched/unpacked"
new_enough "$fetched/unpacked/usr/bin/prometheus" || {
    echo "Debian's prometheus $version is older than $least." >&2
    exit 1
}
place=$cache/$(echo "$version" | tr -c 'A-Za-z0-9.\n' '_')
rm -rf "$place"
mv "$fetched/unpacked" "$place"
echo "$place/usr/bin"
