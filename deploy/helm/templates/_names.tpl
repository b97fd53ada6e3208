{{- define "pocketmq.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "pocketmq.labels" -}}
app.kubernetes.io/name: {{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "pocketmq.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "pocketmq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "pocketmq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "pocketmq.account" -}}
- name: ROCKETMQ_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: access-key}}
- name: ROCKETMQ_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: secret-key}}
{{- end -}}
