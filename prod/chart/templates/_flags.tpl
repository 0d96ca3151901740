{{- /* The flags of weave-npc that the chart accepts, as docs/flags.md lists them. node-name is not one: each node has its own. */ -}}
{{- define "weave-npc.known" -}}
allow-action allow-ethertypes allow-helpers allow-mcast allow-vlan bind-audit bind-prefixes bind-sources bridge-port-name
cluster-domain counted-ports dns-queue dns-resolvers domain-grace dry-run established fail-closed flows-dir flows-records flows-socket forward-jump iptables-backend kubeconfig log-format log-level manifests
max-entries max-list-size max-rules max-sets metrics-addr nflog-group pod-cidr pod-interface pprof-addr record-flows relay relay-ca
relay-jitter relay-token routing-namespaces staged staged-manifests terminate-mark ulogd-pcap ulogd-pcap-size use-legacy-netpol
{{- end }}

{{- /* The edit distance of two texts: letters to insert, delete or change. Takes a list of two. */ -}}
{{- define "weave-npc.distance" -}}
  {{- $to := splitList "" (index . 1) -}}
  {{- $above := until (int (add1 (len $to))) -}}
  {{- range $i, $x := splitList "" (index . 0) -}}
    {{- $row := list (int (add1 $i)) -}}
    {{- range $j, $y := $to -}}
      {{- $changed := int (index $above $j) -}}
      {{- if ne $x $y -}}{{- $changed = int (add1 $changed) -}}{{- end -}}
      {{- $row = append $row (int (min $changed (add1 (index $above (int (add1 $j)))) (add1 (last $row)))) -}}
    {{- end -}}
    {{- $above = $row -}}
  {{- end -}}
  {{- last $above -}}
{{- end }}

{{- /* Fails if a key of a map is not among the known ones, and names the nearest: in (where), map, known. */ -}}
{{- define "weave-npc.check" -}}
  {{- $known := .known -}}
  {{- range $name := keys .map | sortAlpha -}}
    {{- if not (has $name $known) -}}
      {{- $near := "" -}}
      {{- $least := 99 -}}
      {{- range $known -}}
        {{- $distance := int (include "weave-npc.distance" (list (lower $name) (lower .))) -}}
        {{- if and (le $distance (int (max 2 (div (len $name) 3)))) (lt $distance $least) -}}
          {{- $near = . -}}
          {{- $least = $distance -}}
        {{- end -}}
      {{- end -}}
      {{- fail (printf "%s%s is unknown%s" $.in $name (ternary "" (printf ": did you mean %s%s?" $.in $near) (empty $near))) -}}
    {{- end -}}
  {{- end -}}
{{- end }}

{{- /* The value of a flag as its variable needs it: lists joined by commas, whole numbers without an exponent. Takes a list of name and value. */ -}}
{{- define "weave-npc.value" -}}
  {{- $name := index . 0 -}}
  {{- $value := index . 1 -}}
  {{- if kindIs "slice" $value -}}
    {{- $items := list -}}
    {{- range $value -}}{{- $items = append $items (include "weave-npc.value" (list $name .)) -}}{{- end -}}
    {{- join "," $items -}}
  {{- else if and (kindIs "float64" $value) (eq $value (floor $value)) -}}
    {{- int64 $value -}}
  {{- else -}}
    {{- toString $value -}}
  {{- end -}}
{{- end }}

{{- /* The port of flags.metrics-addr; empty if nothing is served. */ -}}
{{- define "weave-npc.port" -}}
  {{- $addr := ":6781" -}}
  {{- if hasKey .Values.flags "metrics-addr" -}}{{- $addr = get .Values.flags "metrics-addr" | default "" | toString -}}{{- end -}}
  {{- if $addr -}}
    {{- if not (regexMatch "^([^:\\[\\]/ ]*|\\[[0-9A-Fa-f:.%a-z]+\\]):[0-9]{1,5}$" $addr) -}}
      {{- fail (printf "flags.metrics-addr: %q is no address and port such as :6781, 127.0.0.1:6781 or [::1]:6781" $addr) -}}
    {{- end -}}
    {{- $port := int (regexFind "[0-9]+$" $addr) -}}
    {{- if or (lt $port 1) (gt $port 65535) -}}
      {{- fail (printf "flags.metrics-addr: %q has no port from 1 to 65535" $addr) -}}
    {{- end -}}
    {{- $port -}}
  {{- end -}}
{{- end }}

{{- /* The host of flags.metrics-addr for probes; empty if weave-npc listens on all addresses of the node. */ -}}
{{- define "weave-npc.host" -}}
  {{- $addr := get .Values.flags "metrics-addr" | default "" | toString -}}
  {{- $host := regexReplaceAll ":[0-9]+$" $addr "" | trimPrefix "[" | trimSuffix "]" -}}
  {{- if not (has $host (list "" "0.0.0.0" "::")) -}}{{- $host -}}{{- end -}}
{{- end }}

{{- /* What the containers on nodes may do. */ -}}
{{- define "weave-npc.confined" -}}
runAsUser: 0
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: [NET_ADMIN, NET_RAW]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* Fails for values that would be ignored, or that cannot work together. */ -}}
{{- define "weave-npc.validate" -}}
  {{- $values := list "nameOverride" "fullnameOverride" "image" "imagePullSecrets" "flags" "resources" "priorityClassName" "nodeSelector" "tolerations" "affinity"
      "podAnnotations" "podLabels" "serviceAccountAnnotations" "maxUnavailable" "checkNodes" "dashboard"
      "readers" "podMonitor" "prometheusRule" "monitorLabels" "cluster" "runbooks" "relay" -}}
  {{- include "weave-npc.check" (dict "in" "" "map" .Values "known" (append $values "global")) -}}
  {{- include "weave-npc.check" (dict "in" "image." "map" .Values.image "known" (list "repository" "tag" "pullPolicy")) -}}
  {{- include "weave-npc.check" (dict "in" "readers." "map" .Values.readers "known" (list "cluster" "namespaces")) -}}
  {{- include "weave-npc.check" (dict "in" "relay." "map" .Values.relay "known" (list "enabled" "replicas" "image" "resources")) -}}
  {{- include "weave-npc.check" (dict "in" "relay.image." "map" .Values.relay.image "known" (list "repository" "tag")) -}}
  {{- if hasKey .Values.flags "node-name" -}}
    {{- fail "flags.node-name is for the chart to set, from spec.nodeName: each node has its own" -}}
  {{- end -}}
  {{- include "weave-npc.check" (dict "in" "flags." "map" .Values.flags "known" (include "weave-npc.known" . | splitList "\n" | join " " | splitList " ")) -}}
  {{- if .Values.podMonitor.enabled -}}
    {{- $host := include "weave-npc.host" . -}}
    {{- if or (not (include "weave-npc.port" .)) (hasPrefix "127." $host) (eq $host "::1") (eq $host "localhost") -}}
      {{- fail (printf "podMonitor: Prometheus does not reach flags.metrics-addr %q: give an address of the node, such as :6781" (get .Values.flags "metrics-addr")) -}}
    {{- end -}}
  {{- end -}}
  {{- if and .Values.prometheusRule.enabled (not (include "weave-npc.port" .)) -}}
    {{- fail "prometheusRule: without flags.metrics-addr there are no metrics to watch" -}}
  {{- end -}}
  {{- if and .Values.cluster (not .Values.podMonitor.enabled) -}}
    {{- fail "cluster is a label that the PodMonitor gives: set podMonitor.enabled, or give the label where you scrape" -}}
  {{- end -}}
  {{- if and .Values.runbooks (not .Values.prometheusRule.enabled) -}}
    {{- fail "runbooks is for the alerts: set prometheusRule.enabled" -}}
  {{- end -}}
  {{- if and .Values.monitorLabels (not (or .Values.podMonitor.enabled .Values.prometheusRule.enabled)) -}}
    {{- fail "monitorLabels are those of a PodMonitor or PrometheusRule: set podMonitor.enabled or prometheusRule.enabled" -}}
  {{- end -}}
{{- end }}
