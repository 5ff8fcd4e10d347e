#!/bin/sh
# Runs once, where the database server is made: a role for each service that stores something, with a schema
# of its own in the database bos; and the sample company's database with its owner and its reader. Services
# bring their tables along and migrate them when they start.
set -eu
secrets=/run/secrets/bos

# Passwords are hexadecimal digits (secrets.sh), so they stand in SQL as they are.
password() { cat "$secrets/$1-password"; }
run() { psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username postgres --dbname "$1"; }

run postgres <<END
CREATE DATABASE bos;
CREATE DATABASE company;
REVOKE CONNECT ON DATABASE bos, company, postgres FROM PUBLIC;
END

# made from descriptors (make generate)
STORES="documents gateway identity memory files"
# end of what is made
for service in $STORES; do
    run bos <<END
CREATE ROLE bos_$service LOGIN PASSWORD '$(password $service)';
GRANT CONNECT ON DATABASE bos TO bos_$service;
CREATE SCHEMA $service AUTHORIZATION bos_$service;
-- What users read about themselves is read by this role, from which the rows of others are hidden.
CREATE ROLE bos_${service}_reader NOLOGIN;
GRANT bos_${service}_reader TO bos_$service;
END
done

run company <<END
CREATE ROLE bos_demo LOGIN PASSWORD '$(password demo)';
GRANT CONNECT, CREATE ON DATABASE company TO bos_demo;
CREATE ROLE company_reader LOGIN NOINHERIT CONNECTION LIMIT 40 PASSWORD '$(password mcp-db)';
GRANT CONNECT ON DATABASE company TO company_reader;
ALTER ROLE company_reader SET default_transaction_read_only = on;
ALTER ROLE company_reader SET statement_timeout = '60s';
ALTER ROLE company_reader SET temp_file_limit = '1GB';
ALTER ROLE company_reader SET search_path = company;
ALTER DEFAULT PRIVILEGES FOR ROLE bos_demo GRANT USAGE ON SCHEMAS TO company_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE bos_demo GRANT SELECT ON TABLES TO company_reader;
END
