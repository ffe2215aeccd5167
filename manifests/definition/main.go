// Checks that API servers accept a custom resource definition. Their own code validates it, including the estimated cost
// of its rules, which no Rust library computes.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: definition FILE")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(apiextensions.SchemeGroupVersion).Decode(text, nil, nil)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	definition := object.(*apiextensions.CustomResourceDefinition)
	definition.Status.StoredVersions = []string{definition.Spec.Versions[0].Name}
	errors := validation.ValidateCustomResourceDefinition(context.Background(), definition)
	for _, err := range errors {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
	}
	if len(errors) > 0 {
		os.Exit(1)
	}
}
