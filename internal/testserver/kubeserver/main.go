// Command kubeserver is the API server of Kubernetes, for tests. It is a module of its own:
// what a server needs is not what users of a lock need.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
