#!/bin/sh
# Writes into pins.env which digest each image of others has today, as its registry says.
#
#   deploy/images/pins.sh        # then look at the difference, and commit it
set -eu
cd "$(dirname "$0")/../.."
pins=deploy/images/pins.env
while IFS= read -r line; do
    case $line in
    '' | '#'*) echo "$line" ;;
    *)
        name=${line%%=*}
        image=${line#*=}
        tag=${image%@*}
        docker pull --quiet "$tag" > /dev/null
        digest=$(docker image inspect --format '{{index .RepoDigests 0}}' "$tag")
        echo "$name=$tag@${digest#*@}"
        sed -i "s|$tag@sha256:[0-9a-f]*|$tag@${digest#*@}|" docker-compose.yml helm/bos/values.yaml
        ;;
    esac
done < $pins > $pins.new
mv $pins.new $pins
