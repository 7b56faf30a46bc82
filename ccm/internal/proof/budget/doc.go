// Package budget tests how many requests the CCM makes. All of its code is tests.
//
// They run the provider with the controllers of k8s.io/cloud-provider against a simulated cloud and client-go's fake
// clientset, in a testing/synctest bubble: an hour passes in a second, and the number of requests does not depend on
// the machine. The requests are those that the cloud's journal shows.
//
//	cluster_test.go  the cloud, the cluster and the CCM
//	budget_test.go   the budgets, which are part of the gate
//	table_test.go    the table of ccm/README.md (make bench-ccm)
//
// Not modelled: the Kubernetes API answers at once and has no limit for the CCM's client.
package budget
