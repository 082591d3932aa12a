// Renders and lints a chart with Helm's own engine, as `helm template` and `helm lint` do.
//
//	chart template CHART RELEASE [VALUES.yaml]
//	chart lint CHART [VALUES.yaml]
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

func values(paths []string) (chartutil.Values, error) {
	if len(paths) == 0 {
		return chartutil.Values{}, nil
	}
	return chartutil.ReadValuesFile(paths[0])
}

func render(folder, release string, paths []string) error {
	loaded, err := loader.Load(folder)
	if err != nil {
		return err
	}
	given, err := values(paths)
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: "default", Revision: 1, IsInstall: true}
	// Checks the values by values.schema.json, too.
	all, err := chartutil.ToRenderValues(loaded, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if strings.TrimSpace(files[name]) != "" && !strings.HasSuffix(name, "/_helpers.tpl") {
			fmt.Printf("---\n# Source: %s\n%s\n", name, files[name])
		}
	}
	return nil
}

func check(folder string, paths []string) error {
	given, err := values(paths)
	if err != nil {
		return err
	}
	found := lint.All(folder, given, "default", true)
	for _, message := range found.Messages {
		fmt.Println(message)
	}
	if found.HighestSeverity >= support.WarningSev {
		return fmt.Errorf("%s: %d messages", folder, len(found.Messages))
	}
	return nil
}

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) >= 3 && args[0] == "template":
		err = render(args[1], args[2], args[3:])
	case len(args) >= 2 && args[0] == "lint":
		err = check(args[1], args[2:])
	default:
		err = fmt.Errorf("usage: chart template CHART RELEASE [VALUES.yaml] | chart lint CHART [VALUES.yaml]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
