// What exists only because a host may reach no container registry. Its dependencies are apart from those of the
// repository's other programs, which run this one and import nothing of it.
module github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage

go 1.26.0

require (
	github.com/go-logr/logr v1.4.3
	github.com/spf13/cobra v1.10.2
	golang.org/x/mod v0.38.0
	golang.org/x/sync v0.22.0
	k8s.io/utils v0.0.0-20260210185600-b8788abfbbc2
	sigs.k8s.io/controller-runtime/tools/setup-envtest v0.25.1
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/afero v1.12.0 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/text v0.40.0 // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)
