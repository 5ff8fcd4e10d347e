#!/bin/sh
# Prints the Secrets that the chart expects, with new keys, for `kubectl apply -f -`:
#
#   sh make-secrets.sh [PASSWORD_OF_POSTGRESQL] | kubectl --namespace bos apply -f -
#
# Keep what it prints as you keep passwords: what is encrypted by these cannot be read with other keys.
set -eu
umask 077
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

pair() { # name: an Ed25519 key and its public part
    openssl genpkey -algorithm ed25519 -out "$folder/$1-private.pem"
    openssl pkey -in "$folder/$1-private.pem" -pubout -out "$folder/$1-public.pem"
}
random() { openssl rand -base64 32 | tr -d '\n'; }
words() { openssl rand -hex 24 | tr -d '\n'; }
secret() { # name key...: of the files of these names
    printf 'apiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\ntype: Opaque\ndata:\n' "$1"
    shift
    for key in "$@"; do
        printf '  %s: %s\n' "$key" "$(base64 < "$folder/$key" | tr -d '\n')"
    done
}

pair run-token
pair rest
random > "$folder/rest-session-keys"
printf 'k1=%s' "$(random)" > "$folder/gateway-secrets-keys"
random | tr '+/' '-_' > "$folder/identity-keys"
words > "$folder/identity-bootstrap-token"
words > "$folder/static-keys"
printf '%s' "${1:-$(words)}" > "$folder/password"
secret bos-keys run-token-private.pem run-token-public.pem rest-private.pem rest-public.pem \
    rest-session-keys gateway-secrets-keys identity-keys identity-bootstrap-token static-keys
echo ---
secret bos-postgresql password
