{{- define "ccm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ccm.labels" -}}
{{ include "ccm.selector" . }}
app.kubernetes.io/component: cloud-controller-manager
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- define "ccm.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}
{{ include "ccm.fullname" . }}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- define "ccm.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* A value as text: an ID that YAML reads as a number must not become 1.2e+07, and false must not become empty. */ -}}
{{- define "ccm.text" -}}
{{- if kindIs "float64" . -}}
{{ int64 . }}
{{- else if not (kindIs "invalid" .) -}}
{{ toString . }}
{{- end -}}
{{- end -}}

{{- define "ccm.metricsAddress" -}}
{{- $v := include "ccm.text" .Values.env.HCLOUD_METRICS_ADDRESS -}}
{{- if $v -}}
{{ $v }}
{{- else if .Values.hostNetwork -}}
127.0.0.1:8233
{{- else -}}
:8233
{{- end -}}
{{- end -}}

{{- define "ccm.metricsPort" -}}
{{ include "ccm.metricsAddress" . | splitList ":" | last }}
{{- end -}}

{{- /* Reports whether only the node itself reaches the metrics: "true" or empty. */ -}}
{{- define "ccm.metricsOnLoopback" -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\])" (include "ccm.metricsAddress" .) -}}
true
{{- end -}}
{{- end -}}

{{- /* Control plane nodes: an autoscaler does not remove them. A preference has no effect on a DaemonSet, so it requires them. */ -}}
{{- define "ccm.controlPlane" -}}
nodeAffinity:
  {{- if eq .Values.kind "DaemonSet" }}
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - key: node-role.kubernetes.io/control-plane
            operator: Exists
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference:
        matchExpressions:
          - key: node-role.kubernetes.io/control-plane
            operator: Exists
  {{- end }}
{{- end -}}

{{- define "ccm.bindAddress" -}}
{{- if .Values.secureServing.bindAddress -}}
{{ .Values.secureServing.bindAddress }}
{{- else if .Values.hostNetwork -}}
127.0.0.1
{{- else -}}
0.0.0.0
{{- end -}}
{{- end -}}

{{- /* The health probe. If the program listens on all addresses, the kubelet uses the pod's own. */ -}}
{{- define "ccm.probe" -}}
httpGet:
  scheme: HTTPS
  path: /healthz
  port: secure
  {{- $address := include "ccm.bindAddress" . }}
  {{- if not (has $address (list "0.0.0.0" "::")) }}
  host: {{ $address | quote }}
  {{- end }}
{{- end -}}

{{- /* Readiness: fails while the CCM does not believe the API's answers, for example with a token of another project. */ -}}
{{- define "ccm.readiness" -}}
httpGet:
  path: /readyz
  port: metrics
  {{- $host := include "ccm.metricsAddress" . | trimSuffix (printf ":%s" (include "ccm.metricsPort" .)) }}
  {{- if not (has $host (list "" "0.0.0.0" "[::]" "$(HOST_IP)" "[$(HOST_IP)]")) }}
  host: {{ $host | quote }}
  {{- end }}
{{- end -}}
