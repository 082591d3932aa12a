{{- define "spillway.name" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) }}
{{- $name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "spillway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spillway.labels" -}}
{{ include "spillway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "spillway.secrets" -}}/etc/spillway-secrets{{- end }}

{{/* The router's file: what the chart knows, and over it what the user wrote. */}}
{{- define "spillway.config" -}}
{{- $secrets := include "spillway.secrets" . }}
{{- $own := .Values.config }}
{{- if not (or $own.routing $own.sharding) }}
{{- fail "config: write config.routing.shards, or config.sharding.configDB: the router needs shards or a cluster" }}
{{- end }}
{{- if and .Values.keyFile.secretName (not $own.sharding) }}
{{- fail "keyFile is for a cluster: write config.sharding.configDB; static shards take shards.user and shards.secretName" }}
{{- end }}
{{- if and .Values.users.secretName $own.sharding }}
{{- fail "users is for config.routing: with config.sharding clients are the cluster's users, and keyFile lets them log in" }}
{{- end }}
{{- if and (hasSuffix "Mi" .Values.memory) (lt (trimSuffix "Mi" .Values.memory | atoi) 176) }}
{{- fail "memory: a router needs 176Mi, of which 96 MiB are the least memory.limit" }}
{{- end }}
{{- /* Service and probes know these ports, and come to the pod's address. */}}
{{- $asked := $own.net | default dict }}
{{- $admin := $asked.admin | default dict }}
{{- if or (hasKey $asked "port") (hasKey $asked "loadBalancerPort") (hasKey $admin "port") }}
{{- fail "config.net: leave out port, loadBalancerPort and admin.port: the Service and the probes lead to 27016 and 9216; service.port is the one for clients" }}
{{- end }}
{{- range $key, $addresses := dict "bindIp" $asked.bindIp "admin.bindIp" $admin.bindIp }}
{{- if not (regexMatch "(^|,) *(0\\.0\\.0\\.0|::|\\*) *(,|$)" ($addresses | default "0.0.0.0")) }}
{{- fail (printf "config.net.%s: the Service and the probes need the pod's address: write 0.0.0.0 (or *), ::, or both" $key) }}
{{- end }}
{{- end }}
{{- $security := dict }}
{{- with .Values.keyFile }}{{ if .secretName }}{{ $_ := set $security "keyFile" (printf "%s/keyfile/%s" $secrets .key) }}{{ end }}{{ end }}
{{- with .Values.users }}{{ if .secretName }}
{{- $_ := set $security "authorization" "enabled" }}
{{- $_ := set $security "usersFile" (printf "%s/users/%s" $secrets .key) }}
{{- end }}{{ end }}
{{- with .Values.shards }}{{ if .secretName }}
{{- $_ := set $security "shards" (dict "user" (required "shards.user: as whom the router logs in" .user) "passwordFile" (printf "%s/shards/%s" $secrets .key)) }}
{{- end }}{{ end }}
{{- if not (or $security.keyFile $security.authorization (dig "security" "authorization" "" $own) (dig "security" "clusterAuthMode" "" $own)) }}
{{- fail "clients are on other machines: write users.secretName or keyFile.secretName, or config.security.authorization: disabled if the network is yours" }}
{{- end }}
{{- $net := dict "port" 27017 "loadBalancerPort" 27016 "bindIp" "0.0.0.0" "admin" (dict "port" 9216 "bindIp" "0.0.0.0") }}
{{- with .Values.tls }}{{ if .secretName }}
{{- $tls := dict "mode" .mode "certificateKeyFile" (printf "%s/tls/%s" $secrets .certificateKey) }}
{{- if .ca }}{{ $_ := set $tls "CAFile" (printf "%s/tls/%s" $secrets .ca) }}{{ end }}
{{- $_ := set $net "tls" $tls }}
{{- end }}{{ end }}
{{- $made := dict "net" $net "memory" (dict "limit" "50%") "systemLog" (dict "format" "json") }}
{{- if $security }}{{ $_ := set $made "security" $security }}{{ end }}
{{- toYaml (mustMergeOverwrite $made (deepCopy $own)) }}
{{- end }}
