{{- define "faultline.selector" -}}
app.kubernetes.io/name: faultline
app.kubernetes.io/component: operator
{{- end }}

{{- define "faultline.labels" -}}
{{ include "faultline.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "faultline.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Number of operators. */}}
{{- define "faultline.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{- ternary 2 1 (eq .Values.scope "cluster") -}}
{{- else -}}
{{- .Values.replicas -}}
{{- end -}}
{{- end -}}

{{/* Whether PodMonitors are created. */}}
{{- define "faultline.monitored" -}}
{{- if eq (toString .Values.metrics.podMonitor) "auto" -}}
{{- .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor" -}}
{{- else -}}
{{- .Values.metrics.podMonitor -}}
{{- end -}}
{{- end -}}
