// Package machine is the bridge between Machine objects and clouds: the contract that each cloud's provider fulfils,
// and code that providers share.
//
// The contract is that of Kubermatic's machine-controller (its guide "implement a new provider"), with a context as the
// first argument. To add a cloud:
//
//  1. Write a package with a type that implements [Provider]. ccm/machine/hetzner is the example.
//  2. Call [Register] with a constant name in the package's init function, and import the package in
//     ccm/cmd/machine-controller.
//  3. Write a commented example, examples/<name>-machinedeployment.yaml, and a concrete one that the e2e specs apply.
//
// What relies on the contract is in ccm/machine/controller; the types are in ccm/machine/v1alpha1.
package machine
