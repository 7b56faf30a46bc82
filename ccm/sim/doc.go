// Package sim tests the CCM in random histories. It has no code of its own but its tests.
//
// One seed is one history: what users do in Kubernetes and in the cloud, how the cloud misbehaves, when
// the CCM dies and another one leads. It runs in one testing/synctest bubble, where hours pass in a
// second:
//
//	history_test.go  a history is a list of steps, made from a seed
//	world_test.go    the bubble: lets time pass, and grants the CCM's requests one at a time
//	users_test.go    the steps of users; trouble_test.go the faults, deaths and changes of the leader
//	process_test.go  a CCM process: the provider and the controllers of k8s.io/cloud-provider, unchanged
//	kube_test.go     the Kubernetes API: client-go's fake clientset on one set of objects
//	guard_test.go    what must hold at every step
//	quiet_test.go    what must hold when nothing has happened for some minutes
//	sim_test.go      runs seeds; shrinks the history of a seed that fails
//
// How the same seed gives the same history: a request of the CCM waits until everything in the bubble is
// blocked. Then one of those that wait is chosen with the seed, and takes effect; its answer takes a time
// that also comes from the seed. So the requests reach the cloud in an order that does not depend on the
// scheduler.
//
// Not modelled: certificates, several clusters' CCMs at the same time, a Kubernetes API that fails (except
// for a leader that has lost it), and health checks of targets.
//
// The tests are behind the build tag sim, and not part of the gate yet: `make sim` runs them. With some seeds, two runs
// still differ in the order of requests (TestTheSameSeedGivesTheSameHistory). And the race detector finds a race in the
// service controller of k8s.io/cloud-provider v0.37.1: serviceCache.allServices reads the state of a Service that a
// worker writes.
package sim
