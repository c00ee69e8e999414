{{/* Prefix of the names of all objects. */}}
{{- define "pulsar-migrate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels of a part, by which its pods are selected too: (list $ "worker"). */}}
{{- define "pulsar-migrate.labels" -}}
app.kubernetes.io/name: pulsar-migrate
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Name of an image, by its digest if it has one: (dict "repository" … "digest" … "tag" …). */}}
{{- define "pulsar-migrate.image" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}

{{/* Variables of a part: (list $ "worker" defaults). Its own values win over the defaults. */}}
{{- define "pulsar-migrate.env" -}}
{{- $ := index . 0 }}
{{- $part := index $.Values (index . 1) }}
{{- $variables := dict
  "TEMPORAL_ADDRESS" $.Values.temporal.address
  "TEMPORAL_NAMESPACE" $.Values.temporal.namespace
  "TEMPORAL_TLS" (toString $.Values.temporal.tls)
  "PULSAR_MIGRATE_LOG" "json"
  "PULSAR_MIGRATE_TASK_QUEUE" $.Values.taskQueue
}}
{{- with $.Values.payloadKeys }}
{{- if .secret }}
{{- $_ := set $variables "PULSAR_MIGRATE_PAYLOAD_KEYS_FILE" (printf "/etc/payload-keys/%s" .file) }}
{{- $_ := set $variables "PULSAR_MIGRATE_PAYLOAD_READ_PLAIN" (toString .readPlain) }}
{{- end }}
{{- end }}
{{- range $name, $file := $.Values.temporal.files }}
{{- $_ := set $variables $name (printf "/etc/pulsar-migrate/%s" $file) }}
{{- end }}
{{- $variables = mergeOverwrite $variables (index . 2) $.Values.temporal.env $part.env }}
{{- range $name, $file := $part.files }}
{{- $_ := set $variables $name (printf "/etc/pulsar-migrate/%s" $file) }}
{{- end }}
{{- range $name, $value := $variables }}
- name: {{ $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}

{{/* Settings of a part's pods: (list $ "worker"). */}}
{{- define "pulsar-migrate.pod" -}}
{{- $ := index . 0 }}
{{- $part := index $.Values (index . 1) }}
serviceAccountName: {{ include "pulsar-migrate.name" $ }}-{{ index . 1 }}
{{- with $.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  # So that the files of the Secret can be read.
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* What a part's container may not do. */}}
{{- define "pulsar-migrate.confinement" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* Where a part's files are in the container: (list $ "worker"). */}}
{{- define "pulsar-migrate.mounts" -}}
{{- $ := index . 0 }}
{{- $part := index $.Values (index . 1) }}
- name: files
  mountPath: /etc/pulsar-migrate
  readOnly: true
{{- if $.Values.payloadKeys.secret }}
- name: payload-keys
  mountPath: /etc/payload-keys
  readOnly: true
{{- end }}
{{- with $part.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volumes of these files: (list $ "worker"). */}}
{{- define "pulsar-migrate.volumes" -}}
{{- $ := index . 0 }}
{{- $part := index $.Values (index . 1) }}
- name: files
  {{- if $part.volume }}
  {{- toYaml $part.volume | nindent 2 }}
  {{- else }}
  secret:
    secretName: {{ $part.secret }}
    defaultMode: 0440
  {{- end }}
{{- with $.Values.payloadKeys.secret }}
- name: payload-keys
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with $part.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Pods go to different nodes where they can: labels. */}}
{{- define "pulsar-migrate.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- . | nindent 6 }}
{{- end }}

{{/* Probes over the port `https`: (list $ "page" pathOfReadiness). A server that needs a client's certificate is only connected to. */}}
{{- define "pulsar-migrate.probes" -}}
{{- $part := index (index . 0).Values (index . 1) }}
{{- $prefix := printf "PULSAR_MIGRATE_%s_TLS" (upper (index . 1)) }}
{{- range $probe, $path := dict "readinessProbe" (index . 2) "livenessProbe" "/healthz" }}
{{ $probe }}:
  {{- if hasKey $part.files (printf "%s_CLIENT_CA" $prefix) }}
  tcpSocket:
    port: https
  {{- else }}
  httpGet:
    path: {{ $path }}
    port: https
    scheme: {{ hasKey $part.files (printf "%s_CERTIFICATE" $prefix) | ternary "HTTPS" "HTTP" }}
  {{- end }}
  periodSeconds: {{ eq $probe "readinessProbe" | ternary 5 10 }}
  timeoutSeconds: 6
  failureThreshold: {{ eq $probe "readinessProbe" | ternary 3 6 }}
{{- end }}
{{- end }}

{{/* Network rules to the name servers and to Temporal. */}}
{{- define "pulsar-migrate.egress" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports:
    - protocol: UDP
      port: 53
    - protocol: TCP
      port: 53
- to:
    {{- toYaml .Values.networkPolicy.temporal.to | nindent 4 }}
  ports:
    - protocol: TCP
      port: {{ .Values.networkPolicy.temporal.port }}
{{- end }}

{{/* Network rule for a port: (list peers port). */}}
{{- define "pulsar-migrate.ingress" -}}
- from:
    {{- toYaml (index . 0) | nindent 4 }}
  ports:
    - protocol: TCP
      port: {{ index . 1 }}
{{- end }}
