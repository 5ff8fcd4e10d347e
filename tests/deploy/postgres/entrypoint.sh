#!/bin/sh
# Makes the database cluster at the first start, runs the scripts of its folder, then the server.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    PGPASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
    export PGPASSWORD
    printf '%s\n' "$PGPASSWORD" > /tmp/password
    # shellcheck disable=SC2086  # several arguments
    initdb --username "${POSTGRES_USER:-postgres}" --pwfile /tmp/password ${POSTGRES_INITDB_ARGS:-} > /dev/null
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    pg_ctl --wait --silent --options "-c listen_addresses='' -k /var/run/postgresql" start
    export PGHOST=/var/run/postgresql PGUSER="${POSTGRES_USER:-postgres}"
    [ "${POSTGRES_DB:-postgres}" = postgres ] || createdb "$POSTGRES_DB"
    for script in /docker-entrypoint-initdb.d/*.sh; do [ ! -x "$script" ] || "$script"; done
    pg_ctl --wait --silent --mode fast stop
    unset PGPASSWORD PGHOST PGUSER
fi
exec "$@" -c listen_addresses='*' -k /var/run/postgresql
