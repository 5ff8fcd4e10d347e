#!/bin/sh
# Makes what docker-compose.yml needs and no repository holds, once: keys, certificates, passwords, and a file
# of settings for each service. What is there already is left alone.
#
#   deploy/compose/secrets.sh                  # make what is missing
#   deploy/compose/secrets.sh certificates     # new certificates of the services; nothing is restarted
#
# deploy/compose/secrets/<service> is given to the service of that name alone;
# deploy/compose/env/<service>.env are settings, yours to edit. Neither is for any repository.
set -eu
umask 077
cd "$(dirname "$0")"

# made from descriptors (make generate)
SERVICES="composer documents gateway identity mcp-db memory planner protocols rest sandbox a2a api-docs charts code computation files mail mcp rag sql text web"
STORES="documents gateway identity memory files"
USERS="documents gateway identity memory files"
RUN_TOKENS="composer documents identity mcp-db memory planner sandbox a2a api-docs charts code computation files mail mcp rag sql text web"
AGENT_TARGETS="api_docs=dns:///api-docs:8080,charts=dns:///charts:8080,code=dns:///code:8080,computation=dns:///computation:8080,files=dns:///files:8080,mail=dns:///mail:8080,rag=dns:///rag:8080,sql=dns:///sql:8080,text=dns:///text:8080,web=dns:///web:8080"
# end of what is made
OTHERS="demo postgres qdrant grafana"
# Days of a certificate. A new one is made by hand, so they are many; alert on bos_certificate_not_after_seconds.
DAYS=365
USER_ID=65532
POSTGRES_ID=999
GRAFANA_ID=472

command -v openssl > /dev/null || { echo 'secrets.sh needs openssl.' >&2; exit 1; }

# once FILE COMMAND...: the file holds what the command writes, unless it is there.
once() {
    [ -e "$1" ] && return
    file=$1
    shift
    mkdir -p "$(dirname "$file")"
    "$@" > "$file.new"
    mv "$file.new" "$file"
}

password() { openssl rand -hex 24; }
ed25519() { openssl genpkey -algorithm ed25519; }
public() { openssl pkey -in "$1" -pubout; }

# give FILE SERVICE...: each gets a copy.
give() {
    file=$1
    shift
    for service in "$@"; do once "secrets/$service/$(basename "$file")" cat "$file"; done
}

authority() {
    [ -e secrets/own/ca.key ] && return
    mkdir -p secrets/own
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out secrets/own/ca.key 2> /dev/null
    openssl req -x509 -new -key secrets/own/ca.key -sha256 -days 3650 -subj '/CN=Bos on this machine' \
        -addext 'basicConstraints=critical,CA:TRUE,pathlen:0' -addext 'keyUsage=critical,keyCertSign' \
        -out secrets/own/ca.crt
}

# A certificate names its service by a URI, and by what others in the network, and people here, call it.
certificate() {
    folder=secrets/$1
    mkdir -p "$folder"
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$folder/tls.key.new" 2> /dev/null
    openssl req -new -key "$folder/tls.key.new" -subj "/CN=$1" -out "$folder/request"
    cat > "$folder/extensions" <<END
subjectAltName=URI:spiffe://bos/$(echo "$1" | tr - _),DNS:$1,DNS:localhost,IP:127.0.0.1
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
END
    openssl x509 -req -in "$folder/request" -CA secrets/own/ca.crt -CAkey secrets/own/ca.key \
        -set_serial "0x$(openssl rand -hex 16)" -sha256 -days $DAYS -extfile "$folder/extensions" \
        -out "$folder/tls.crt.new" 2> /dev/null
    rm "$folder/request" "$folder/extensions"
    mv "$folder/tls.key.new" "$folder/tls.key"
    mv "$folder/tls.crt.new" "$folder/tls.crt"
    cat secrets/own/ca.crt > "$folder/ca.crt"
}

certificates() {
    for service in $SERVICES; do
        [ "$1" = missing ] && [ -e "secrets/$service/tls.crt" ] || certificate "$service"
    done
}

# Containers have users of their own. Root gives each its files; other users cannot, so files can be read by
# all, in a folder that only its owner can enter.
owned() {
    if [ "$(id -u)" = 0 ]; then
        for service in $SERVICES demo; do chown -R $USER_ID:$USER_ID "secrets/$service"; done
        chown -R $POSTGRES_ID:$POSTGRES_ID secrets/postgres
        chown -R $GRAFANA_ID:0 secrets/grafana
    else
        for service in $SERVICES demo postgres grafana; do
            chmod 755 "secrets/$service"
            find "secrets/$service" -type f -exec chmod 644 {} +
        done
    fi
}

write_env() {
    model_key=$(cat secrets/own/model-key)
    for service in $SERVICES $OTHERS; do once "env/$service.env" echo "# Settings of $service."; done
    once env/telemetry.env cat <<'END'
# Of all services. Traces need the profile observability.
# BOS_OTLP_ENDPOINT=http://collector:4317
END
    once env/model.env cat <<END
# The model of planner, composer, agents, memory and documents (docs/models.md): here the scripted one of the
# profile demo. For one of yours replace all lines, such as by OPENAI_API_KEY=... alone.
OPENAI_BASE_URL=http://demo:8090/v1
OPENAI_API_KEY=$model_key
BOS_MODEL=scripted
BOS_MODEL_PRICES='{"scripted": {"input": 0, "output": 0}}'
END
}

case ${1:-} in
certificates)
    [ -e secrets/own/ca.key ] || { echo 'There is no authority yet: run secrets.sh first.' >&2; exit 1; }
    certificates all
    owned
    exit 0
    ;;
'') ;;
*)
    echo 'usage: secrets.sh [certificates]' >&2
    exit 2
    ;;
esac

mkdir -p secrets env
chmod 700 secrets env
authority
certificates missing

once secrets/gateway/run-tokens.key ed25519
once secrets/own/run-tokens.pub public secrets/gateway/run-tokens.key
give secrets/own/run-tokens.pub $RUN_TOKENS
once secrets/rest/signing.key ed25519
once secrets/rest/session.keys openssl rand -base64 32
once secrets/own/proxy.pub public secrets/rest/signing.key
give secrets/own/proxy.pub $USERS
once secrets/own/api-keys password
give secrets/own/api-keys $USERS

once secrets/postgres/superuser-password password
for service in $STORES demo mcp-db; do
    once "secrets/$service/database-password" password
    once "secrets/postgres/$service-password" cat "secrets/$service/database-password"
done
once secrets/grafana/admin-password password
once secrets/own/model-key password
once secrets/own/qdrant-key password

once env/gateway.env cat <<END
# Settings of gateway. Encrypts credentials of runs; a new key goes in front, and old ones stay.
BOS_GATEWAY_SECRETS_KEYS=first=$(openssl rand -base64 32)
BOS_GATEWAY_AGENT_TARGETS=$AGENT_TARGETS
END
once env/identity.env cat <<END
# Settings of identity. Encrypts its signing keys; a new key goes in front, and old ones stay.
BOS_IDENTITY_KEY_ENCRYPTION_KEYS=$(openssl rand -base64 32 | tr '+/' '-_')
# What the first account, the administrator's, is registered with.
BOS_IDENTITY_BOOTSTRAP_TOKEN=$(openssl rand -hex 24)
END
once env/documents.env cat <<END
# Settings of documents. Without these two its index is a folder of its own.
BOS_DOCUMENTS_QDRANT_URL=http://qdrant:6333
BOS_DOCUMENTS_QDRANT_API_KEY=$(cat secrets/own/qdrant-key)
END
once env/qdrant.env echo "QDRANT__SERVICE__API_KEY=$(cat secrets/own/qdrant-key)"
once env/demo.env cat <<END
# Settings of demo. What callers of the scripted model present; model.env has it too.
BOS_DEMO_MODEL_KEY=$(cat secrets/own/model-key)
END
once env/sql.env cat <<'END'
# Settings of sql. Synonyms, metrics and joins of the sample company; a file of yours or none for your own.
BOS_SQL_METADATA_PATH=/etc/bos/demo-metadata.yaml
END
once env/mcp-db.env cat <<'END'
# Settings of mcp_db: the databases that may be read, by a role that can only read. Here the sample company.
BOS_MCP_DB_DATABASES='{"company": {"url": "postgresql://company_reader@postgres:5432/company?password_file=/run/secrets/bos/database-password", "default_schema": "company", "allowed_tables": ["customers", "data_dictionary", "departments", "employees", "invoice_lines", "invoices", "payments", "product_categories", "products", "purchase_order_lines", "purchase_orders", "regions", "sales_returns", "sales_targets", "stock_levels", "stock_movements", "suppliers", "support_tickets", "warehouses"], "description": "Nilgiri Flow Works, which buys and sells pumps, valves and pipes: customers, sales, purchases, stock, service tickets, employees"}}'
END
write_env
owned

echo "Secrets are in $PWD/secrets, settings in $PWD/env. The API key: $PWD/secrets/own/api-keys"
