#!/bin/sh
# Installs packages of Debian, as root, unless PROGRAM is here: sh deploy/debian.sh PROGRAM PACKAGE...
# Where that cannot be done it does nothing: who needs the program says so. One at a time on a machine,
# as targets run side by side.
set -eu
program=$1
shift
if command -v "$program" > /dev/null || [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    exit
fi
exec flock "/run/lock/bos-apt-$(id -u)" sh -ec '
    apt-get -qq update
    apt-get -qq install --yes --no-install-recommends "$@"
' sh "$@"
