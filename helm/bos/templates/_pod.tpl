{{/* Parts of a pod that workloads and Jobs share. */}}

{{/* Environment of a container; of (root, services, name, secrets: whether secrets are in it). */}}
{{- define "bos.env" -}}
{{- $service := index .services .name -}}
{{- range $variable, $text := include "bos.settings" (list .root .services .name) | fromJson }}
- name: {{ $variable }}
  value: {{ $text | quote }}
{{- end }}
{{- if .secrets }}
{{- range include "bos.secretFiles" (list .root $service) | fromJsonArray }}
- name: {{ .variable }}
  value: /run/secrets/bos/{{ .variable }}
{{- end }}
{{- range include "bos.secretEnv" (list .root $service) | fromJsonArray }}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Probe by gRPC, or by HTTP of REST at `path`; of (service, path). */}}
{{- define "bos.probe" -}}
{{- if eq .service.kind "rest" -}}
httpGet:
  path: {{ .path }}
  port: main
{{- else -}}
grpc:
  port: 8081
{{- end }}
timeoutSeconds: 3
{{- end -}}

{{/* Rules of spreading pods over zones and nodes; of [root, component]. */}}
{{- define "bos.spread" -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "bos.component" $ | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}

{{/* Whether one pod alone may use the volumes of a service; of [root, service]. */}}
{{- define "bos.exclusive" -}}
{{- $values := (index . 0).Values -}}
{{- $service := index . 1 -}}
{{- if or (and $service.index (not (include "bos.anyQdrant" (index . 0)))) (and $service.blobs (eq $values.blobs.kind "volume") (ne $values.blobs.volume.accessMode "ReadWriteMany")) -}}
true
{{- end -}}
{{- end -}}
