{{/* Refuses values that each are fine and together are not; names the field and the fix. */}}
{{- define "bos.check" -}}
{{- $services := include "bos.services" . | fromJson -}}
{{- $values := .Values -}}
{{- if and (not $values.postgresql.host) (not $values.postgresql.bundled.enabled) -}}
{{- fail "postgresql.host: must be set, or postgresql.bundled.enabled for development" -}}
{{- end -}}
{{- if and (eq $values.blobs.kind "s3") (not $values.blobs.bucket) -}}
{{- fail "blobs.bucket: must be set, or blobs.kind to volume" -}}
{{- end -}}
{{- if and (not (hasKey $services "identity")) (not (hasPrefix "https://" $values.auth.issuer)) -}}
{{- fail "auth.issuer: must be the https URL of an OpenID issuer where services.identity.enabled is false" -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.host) -}}
{{- fail "ingress.host: must be set where ingress.enabled is true" -}}
{{- end -}}
{{- if and $values.gatewayApi.enabled (not $values.gatewayApi.parents) -}}
{{- fail "gatewayApi.parents: must name a Gateway where gatewayApi.enabled is true" -}}
{{- end -}}
{{- include "bos.checkEnv" (dict "env" $values.env "where" "env") -}}
{{- range $name, $service := $services -}}
{{- $where := printf "services.%s" $name -}}
{{- include "bos.checkEnv" (dict "env" $service.env "where" (printf "%s.env" $where)) -}}
{{- $most := ternary $service.autoscaling.max $service.replicas $service.autoscaling.enabled | int -}}
{{- if and (include "bos.exclusive" (list $ $service)) (gt $most 1) -}}
{{- if and $service.index (not (include "bos.anyQdrant" $)) -}}
{{- fail (printf "%s.replicas: must be 1 without qdrant.url, since one process alone may use the index on its volume" $where) -}}
{{- end -}}
{{- fail (printf "%s.replicas: must be 1 with blobs.volume.accessMode %s; use ReadWriteMany or blobs.kind s3" $where $values.blobs.volume.accessMode) -}}
{{- end -}}
{{- if gt (int $service.autoscaling.min) (int $service.autoscaling.max) -}}
{{- fail (printf "%s.autoscaling.min: must be at most autoscaling.max" $where) -}}
{{- end -}}
{{- if and $service.autoscaling.podMetric (not $service.autoscaling.podAverage) -}}
{{- fail (printf "%s.autoscaling.podAverage: must be above 0 with podMetric" $where) -}}
{{- end -}}
{{- range $called, $variable := $service.calls -}}
{{- if not (hasKey $values.services $called) -}}
{{- fail (printf "%s.calls.%s: there is no service of that name in services" $where $called) -}}
{{- end -}}
{{- if and (not (hasKey $services $called)) (has $called $service.needs) -}}
{{- fail (printf "%s.enabled: must be false where services.%s.enabled is, which it cannot do without" $where $called) -}}
{{- end -}}
{{- end -}}
{{- range $place := $service.outside -}}
{{- if not (hasKey $values.network.outside $place) -}}
{{- fail (printf "%s.outside: there is no place %s in network.outside" $where $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses settings that hold a secret in plain text; of (env, where). */}}
{{- define "bos.checkEnv" -}}
{{- range $variable, $_ := .env -}}
{{- if and (regexMatch "(_KEY|_KEYS|_PASSWORD|_SECRET|_TOKEN|_STORE_URL|_DATABASE_URL)$" $variable) (not (regexMatch "(PUBLIC|CONTEXT)_KEYS$" $variable)) -}}
{{- fail (printf "%s.%s: holds a secret; name it in secretEnv or secretFiles of the service instead" $.where $variable) -}}
{{- end -}}
{{- end -}}
{{- end -}}
