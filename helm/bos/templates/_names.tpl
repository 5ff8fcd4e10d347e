{{/* Names, labels and the table of services. */}}

{{- define "bos.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of one service's objects; of [root, service]. */}}
{{- define "bos.name" -}}
{{- printf "%s-%s" (include "bos.fullname" (index . 0)) (index . 1 | replace "_" "-") -}}
{{- end -}}

{{/* Labels that select the pods of this release. */}}
{{- define "bos.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The same with the component; of [root, component]. */}}
{{- define "bos.component" -}}
{{ include "bos.selector" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 | replace "_" "-" }}
{{- end -}}

{{/* Labels of every object; of [root, component]. */}}
{{- define "bos.labels" -}}
{{ include "bos.component" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end -}}

{{/* The services that run, with their defaults filled in, as JSON by name. */}}
{{- define "bos.services" -}}
{{- $found := dict -}}
{{- range $name, $row := .Values.services -}}
{{- $service := deepCopy $.Values.defaults -}}
{{- if eq (default "service" $row.kind) "agent" -}}
{{- $service = mergeOverwrite $service (deepCopy $.Values.agentDefaults) -}}
{{- end -}}
{{- $service = mergeOverwrite $service (deepCopy $row) -}}
{{- if $service.enabled -}}
{{- $_ := set $found $name $service -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The services that one calls, as JSON list; of [services, name]. */}}
{{- define "bos.callees" -}}
{{- $services := index . 0 -}}
{{- $service := index $services (index . 1) -}}
{{- $found := list -}}
{{- range $name, $other := $services -}}
{{- if or (hasKey $service.calls $name) (and $service.callsAgents (eq $other.kind "agent")) (and $service.callsAccountData $other.accountData) -}}
{{- $found = append $found $name -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Seconds from the begin of a pod's end until it is killed; of a service. */}}
{{- define "bos.terminationS" -}}
{{- add .drain.preStopS .drain.delayS .drain.graceS .drain.marginS -}}
{{- end -}}

{{/* Image of a service; of [root, name, service]. */}}
{{- define "bos.image" -}}
{{- $root := index . 0 -}}
{{- $image := (index . 2).image -}}
{{- $name := default (index . 1) $image.name | replace "_" "-" -}}
{{- $path := list $root.Values.image.registry $root.Values.image.repository $name | compact | join "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $path $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $path (coalesce $image.tag $root.Values.image.tag $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "bos.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
{{- end -}}

{{- define "bos.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "bos.anyQdrant" -}}
{{- if or .Values.qdrant.url .Values.qdrant.bundled.enabled -}}true{{- end -}}
{{- end -}}
