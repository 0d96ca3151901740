{{- /* The name of the chart's objects in the label app.kubernetes.io/name. What is appended to names has 13 letters at most. */ -}}
{{- define "weave-npc.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- /* The name of the chart's objects: as the release, with the name of the chart if that is not a part of it. */ -}}
{{- define "weave-npc.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{- $name = .Release.Name -}}{{- else -}}{{- $name = printf "%s-%s" .Release.Name $name -}}{{- end -}}
{{- default $name .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- /* The labels of all objects that say which release of which chart they are of. */ -}}
{{- define "weave-npc.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ quote .Chart.AppVersion }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}
