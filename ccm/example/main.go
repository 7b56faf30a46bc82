// Command example is a cloud-controller-manager for the example cloud: the smallest that passes the conformance suite. Copy this folder
// to begin one for your cloud; README.md says what to replace.
//
// It takes the flags of every cloud-controller-manager (see --help). Its own settings are the environment variables EXAMPLE_ENDPOINT,
// EXAMPLE_TOKEN and EXAMPLE_REQUEST_TIMEOUT.
package main

import (
	"fmt"
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/example/provider"
)

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		exit(err)
	}
	opts.KubeCloudShared.CloudProvider.Name = provider.Name // --cloud-provider can be left out
	command := app.NewCloudControllerManagerCommand(opts, newCloud, app.DefaultInitFuncConstructors, names.CCMControllerAliases(),
		cliflag.NamedFlagSets{}, genericapiserver.SetupSignalHandler())
	os.Exit(cli.Run(command))
}

// newCloud makes the provider from the environment. A wrong setting ends the process.
func newCloud(*config.CompletedConfig) cloudprovider.Interface {
	client, err := provider.NewClient(os.LookupEnv)
	if err != nil {
		exit(err)
	}
	return provider.New(client)
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
