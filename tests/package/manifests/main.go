// Reads Kubernetes manifests as the API's own types, strictly: a field that the API does not know, one
// that stands twice and one of a wrong type are errors. Prints the objects as a JSON list.
//
//	manifests FILE...
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// What the chart uses of the Prometheus operator's API.
type serviceMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for,omitempty"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

var kinds = map[string]func() any{
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return &prometheusRule{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &serviceMonitor{} },
	"apps/v1 Deployment":                      func() any { return &apps.Deployment{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"v1 ConfigMap":                            func() any { return &core.ConfigMap{} },
	"v1 Secret":                               func() any { return &core.Secret{} },
	"v1 Service":                              func() any { return &core.Service{} },
}

var border = regexp.MustCompile(`(?m)^---\s*$`)

func read(path string) ([]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []any
	for i, part := range border.Split(string(text), -1) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(part), &kind); err != nil {
			return nil, fmt.Errorf("%s, object %d: %w", path, i+1, err)
		}
		if kind.Kind == "" && len(bytes.TrimSpace(regexp.MustCompile(`(?m)^#.*$`).ReplaceAll([]byte(part), nil))) == 0 {
			continue // comments alone
		}
		name := kind.APIVersion + " " + kind.Kind
		make, known := kinds[name]
		if !known {
			return nil, fmt.Errorf("%s, object %d: unknown kind %q", path, i+1, name)
		}
		object := make()
		plain, err := yaml.YAMLToJSONStrict([]byte(part))
		if err != nil {
			return nil, fmt.Errorf("%s, object %d (%s): %w", path, i+1, name, err)
		}
		// The API server's own decoder: names are case-sensitive.
		unknown, err := strict.UnmarshalStrict(plain, object)
		if err = errors.Join(append(unknown, err)...); err != nil {
			return nil, fmt.Errorf("%s, object %d (%s): %w", path, i+1, name, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func main() {
	objects := []any{}
	for _, path := range os.Args[1:] {
		more, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		objects = append(objects, more...)
	}
	if err := json.NewEncoder(os.Stdout).Encode(objects); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
