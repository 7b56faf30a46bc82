{{- define "fakecloud.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "fakecloud.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fakecloud.labels" -}}
{{ include "fakecloud.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- define "fakecloud.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* A value as text: a number that YAML reads must not become 1.2e+07, and false must not become empty. */ -}}
{{- define "fakecloud.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else if not (kindIs "invalid" .) -}}
{{ toString . }}
{{- end -}}
{{- end -}}

{{- /* The settings as YAML: a variable of each flag. Those of .Values.env win, except for what the other objects rely on. */ -}}
{{- define "fakecloud.settings" -}}
{{- $name := include "fakecloud.fullname" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- $settings := dict "FAKECLOUD_LOG_FORMAT" "json" "FAKECLOUD_ALLOWED_HOSTS" (join "," $hosts) -}}
{{- range $key, $value := .Values.env -}}
{{- if has $key (list "FAKECLOUD_LISTEN" "FAKECLOUD_CONTROL" "FAKECLOUD_STATE" "FAKECLOUD_STATE_SYNC" "FAKECLOUD_PROJECTS" "FAKECLOUD_PROJECT_TTL" "FAKECLOUD_ACTIONS" "FAKECLOUD_RATE_LIMIT" "FAKECLOUD_TOKEN") -}}
{{- fail (printf "env.%s: the chart sets it; use the value that stands for it in values.yaml" $key) -}}
{{- end -}}
{{- $_ := set $settings $key $value -}}
{{- end -}}
{{- $_ := set $settings "FAKECLOUD_LISTEN" ":4242" -}}
{{- $_ := set $settings "FAKECLOUD_CONTROL" (ternary ":4243" "127.0.0.1:4243" .Values.control.expose) -}}
{{- $_ := set $settings "FAKECLOUD_PROJECTS" .Values.projects -}}
{{- $_ := set $settings "FAKECLOUD_PROJECT_TTL" .Values.projectTTL -}}
{{- $_ := set $settings "FAKECLOUD_ACTIONS" .Values.actions -}}
{{- $_ := set $settings "FAKECLOUD_RATE_LIMIT" .Values.rateLimit -}}
{{- if .Values.persistence.enabled -}}
{{- $_ := set $settings "FAKECLOUD_STATE" "/state" -}}
{{- if .Values.persistence.sync -}}
{{- $_ := set $settings "FAKECLOUD_STATE_SYNC" "true" -}}
{{- end -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}
