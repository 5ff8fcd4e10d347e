{{/* Settings of services: what the table of services and the values above it come to. */}}

{{/* Address of a service for the setting `variable`; of [root, services, name, variable]. */}}
{{- define "bos.address" -}}
{{- $root := index . 0 -}}
{{- $called := index (index . 1) (index . 2) -}}
{{- $host := include "bos.name" (list $root (index . 2)) -}}
{{- if eq $called.protocol "grpc" -}}
{{- printf "dns:///%s:8080" $host -}}
{{- else if hasSuffix "_URL" (index . 3) -}}
{{- printf "%s://%s:8080%s" (ternary "http" "https" (eq $root.Values.tls.mode "disabled")) $host $called.path -}}
{{- else -}}
{{- printf "%s:8080" $host -}}
{{- end -}}
{{- end -}}

{{/* URL of the tables of a service, without a password; of [root, name]. */}}
{{- define "bos.storeUrl" -}}
{{- $root := index . 0 -}}
{{- $database := $root.Values.postgresql -}}
{{- $role := default dict (get $database.roles (index . 1)) -}}
{{- $user := default $database.user $role.user -}}
{{- $password := "password_file=/run/secrets/bos/postgresql-password" -}}
{{- if $database.bundled.enabled -}}
{{- printf "postgresql://%s@%s:5432/%s?%s" $user (include "bos.name" (list $root "postgresql")) $database.database $password -}}
{{- else -}}
{{- $ca := ternary "&sslrootcert=/run/secrets/bos/postgresql-ca.crt" "" (ne $database.ca.name "") -}}
{{- printf "postgresql://%s@%s:%v/%s?%s&sslmode=%s%s" $user $database.host $database.port $database.database $password $database.sslMode $ca -}}
{{- end -}}
{{- end -}}

{{/* Where a service's files are; of [root, name]. */}}
{{- define "bos.blobsUrl" -}}
{{- $blobs := (index . 0).Values.blobs -}}
{{- if eq $blobs.kind "s3" -}}
{{- printf "s3://%s/%s" $blobs.bucket (list $blobs.prefix (index . 1) | compact | join "/") -}}
{{- else -}}
file:///var/lib/bos/files
{{- end -}}
{{- end -}}

{{/* What agents may call for their steps, and which connections they are given, as the gateway takes it. */}}
{{- define "bos.agentSettings" -}}
{{- $audiences := dict "*" list -}}
{{- $connections := dict -}}
{{- $targets := list -}}
{{- range $name, $agent := .services -}}
{{- if eq $agent.kind "agent" -}}
{{- $targets = append $targets (printf "%s=%s" $name (include "bos.address" (list $.root $.services $name ""))) -}}
{{- $through := list -}}
{{- range $called, $_ := $agent.calls -}}
{{- if and (hasKey $.services $called) (get $.services $called).audience -}}
{{- $through = append $through $called -}}
{{- end -}}
{{- end -}}
{{- range $audience, $server := $agent.handsOn -}}
{{- if hasKey $.services $server -}}{{- $through = append $through $audience -}}{{- end -}}
{{- end -}}
{{- if $through -}}{{- $_ := set $audiences $name $through -}}{{- end -}}
{{- if $agent.connections -}}{{- $_ := set $connections $name $agent.connections -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "targets" (join "," $targets) "audiences" (toJson $audiences) "connections" (toJson $connections) | toJson -}}
{{- end -}}

{{/* Settings of a service that are no secret, as JSON by variable; of [root, services, name]. */}}
{{- define "bos.settings" -}}
{{- $root := index . 0 -}}
{{- $services := index . 1 -}}
{{- $name := index . 2 -}}
{{- $service := index $services $name -}}
{{- $values := $root.Values -}}
{{- $env := dict "BOS_LOG_LEVEL" $values.telemetry.logLevel -}}
{{- if eq $service.kind "rest" -}}
{{- $env = merge $env (dict "BOS_REST_HOST" "0.0.0.0" "BOS_REST_PORT" "8080" "BOS_REST_METRICS_ADDRESS" "0.0.0.0:9464" "BOS_REST_DRAIN_DELAY_S" (toString $service.drain.delayS) "BOS_REST_GRACE_S" (toString $service.drain.graceS)) -}}
{{- else -}}
{{- $env = merge $env (dict "BOS_SERVER_HOST" "0.0.0.0" "BOS_SERVER_PORT" "8080" "BOS_SERVER_METRICS_HOST" "0.0.0.0" "BOS_SERVER_METRICS_PORT" "9464" "BOS_SERVER_HEALTH_PORT" "8081" "BOS_SERVER_DRAIN_DELAY_S" (toString $service.drain.delayS) "BOS_SERVER_GRACE_S" (toString $service.drain.graceS)) -}}
{{- end -}}
{{- if ne $values.tls.mode "disabled" -}}
{{- $env = merge $env (dict "BOS_TLS_CERT_FILE" "/run/secrets/tls/tls.crt" "BOS_TLS_KEY_FILE" "/run/secrets/tls/tls.key" "BOS_TLS_CA_FILE" "/run/secrets/tls/ca.crt") -}}
{{- if ne $service.kind "rest" -}}
{{- $env = merge $env (dict "BOS_TLS_TRUST_DOMAIN" $values.tls.trustDomain "BOS_TLS_CLIENT_CERTIFICATES" (toString $service.clientCertificates)) -}}
{{- end -}}
{{- end -}}
{{- if and $values.telemetry.endpoint $service.telemetry -}}
{{- $env = merge $env (dict "BOS_OTLP_ENDPOINT" $values.telemetry.endpoint "BOS_TRACE_SAMPLE_RATIO" (toString $values.telemetry.sampleRatio)) -}}
{{- end -}}
{{- range $called, $variable := $service.calls -}}
{{- if hasKey $services $called -}}
{{- $_ := set $env $variable (include "bos.address" (list $root $services $called $variable)) -}}
{{- end -}}
{{- end -}}
{{- if $service.callsAgents -}}
{{- $agents := include "bos.agentSettings" (dict "root" $root "services" $services) | fromJson -}}
{{- $env = merge $env (dict $service.callsAgents $agents.targets "BOS_GATEWAY_AGENT_AUDIENCES" $agents.audiences "BOS_GATEWAY_AGENT_CONNECTIONS" $agents.connections) -}}
{{- end -}}
{{- if $service.callsAccountData -}}
{{- $targets := dict -}}
{{- range $other, $row := $services -}}
{{- if $row.accountData -}}{{- $_ := set $targets $other (include "bos.address" (list $root $services $other "")) -}}{{- end -}}
{{- end -}}
{{- $_ := set $env $service.callsAccountData (toJson $targets) -}}
{{- end -}}
{{- if $service.issuer -}}{{- $_ := set $env $service.issuer $values.auth.issuer -}}{{- end -}}
{{- if $service.store -}}{{- $_ := set $env $service.store (include "bos.storeUrl" (list $root $name)) -}}{{- end -}}
{{- if $service.blobs -}}
{{- $_ := set $env $service.blobs (include "bos.blobsUrl" (list $root $name)) -}}
{{- if and (eq $values.blobs.kind "s3") $values.blobs.region -}}{{- $_ := set $env "AWS_REGION" $values.blobs.region -}}{{- end -}}
{{- if and (eq $values.blobs.kind "s3") $values.blobs.endpoint -}}{{- $_ := set $env "AWS_ENDPOINT_URL" $values.blobs.endpoint -}}{{- end -}}
{{- end -}}
{{- if $service.index -}}
{{- if include "bos.anyQdrant" $root -}}
{{- $_ := set $env "BOS_DOCUMENTS_QDRANT_URL" (ternary (printf "http://%s:6333" (include "bos.name" (list $root "qdrant"))) $values.qdrant.url $values.qdrant.bundled.enabled) -}}
{{- else -}}
{{- $_ := set $env $service.index "/var/lib/bos/index" -}}
{{- end -}}
{{- end -}}
{{- if $service.models -}}
{{- if $values.model.provider -}}{{- $_ := set $env "BOS_MODEL_PROVIDER" $values.model.provider -}}{{- end -}}
{{- if $values.model.name -}}{{- $_ := set $env "BOS_MODEL" $values.model.name -}}{{- end -}}
{{- if $values.model.baseUrl -}}{{- $_ := set $env "OPENAI_BASE_URL" $values.model.baseUrl -}}{{- end -}}
{{- end -}}
{{- mergeOverwrite $env (deepCopy $values.env) (deepCopy $service.env) | toJson -}}
{{- end -}}

{{/* Variables that name files of Secrets, as JSON list of {variable, secret, key}; of [root, service]. */}}
{{- define "bos.secretFiles" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- $values := $root.Values -}}
{{- $found := list -}}
{{- range $variable, $from := $service.secretFiles -}}
{{- $found = append $found (dict "variable" $variable "secret" (default $values.secrets.name $from.name) "key" $from.key) -}}
{{- end -}}
{{- if and $values.auth.staticKeys (or $service.issuer (eq $service.kind "rest")) -}}
{{- $found = append $found (dict "variable" "BOS_AUTH_STATIC_KEYS_FILE" "secret" $values.secrets.name "key" "static-keys") -}}
{{- end -}}
{{- if and $service.models $values.model.secret.name -}}
{{- $found = append $found (dict "variable" "OPENAI_API_KEY_FILE" "secret" $values.model.secret.name "key" $values.model.secret.key) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Variables that hold secrets, as JSON list of {variable, secret, key}; of [root, service]. */}}
{{- define "bos.secretEnv" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- $values := $root.Values -}}
{{- $found := list -}}
{{- range $variable, $from := $service.secretEnv -}}
{{- $found = append $found (dict "variable" $variable "secret" (default $values.secrets.name $from.name) "key" $from.key) -}}
{{- end -}}
{{- if and $service.index (include "bos.anyQdrant" $root) $values.qdrant.secret.name -}}
{{- $found = append $found (dict "variable" "BOS_DOCUMENTS_QDRANT_API_KEY" "secret" $values.qdrant.secret.name "key" $values.qdrant.secret.key) -}}
{{- end -}}
{{- if and $service.blobs (eq $values.blobs.kind "s3") $values.blobs.secret.name -}}
{{- $found = append $found (dict "variable" "AWS_ACCESS_KEY_ID" "secret" $values.blobs.secret.name "key" "access-key-id") -}}
{{- $found = append $found (dict "variable" "AWS_SECRET_ACCESS_KEY" "secret" $values.blobs.secret.name "key" "secret-access-key") -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Source of the projected volume with the password of the tables; of [root, name]. */}}
{{- define "bos.databaseSources" -}}
{{- $database := (index . 0).Values.postgresql -}}
{{- $role := default dict (get $database.roles (index . 1)) -}}
- secret:
    name: {{ $database.secret.name }}
    items:
      - key: {{ default $database.secret.key $role.key }}
        path: postgresql-password
{{- if and $database.ca.name (not $database.bundled.enabled) }}
- secret:
    name: {{ $database.ca.name }}
    items:
      - key: {{ $database.ca.key }}
        path: postgresql-ca.crt
{{- end }}
{{- end -}}
