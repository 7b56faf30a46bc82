// Package sim tests the CCM in random histories. All of its code is tests.
//
// One seed is one history of users, of faults of the cloud, and of CCMs that die. It runs in one testing/synctest bubble, where
// hours pass in a second:
//
//	history_test.go  a history is a list of steps, made from a seed
//	world_test.go    the bubble: lets time pass, and grants the CCM's requests one at a time
//	users_test.go    the steps of users; services_test.go the settings of Services; persons_test.go changes of load
//	                 balancers by hand
//	owners_test.go   the steps that may leave something without an owner
//	two_clusters_test.go  a second cluster in the same project, with Services of the same UIDs
//	trouble_test.go  the faults, deaths and changes of the leader
//	process_test.go  a CCM process: the provider and the controllers of k8s.io/cloud-provider, unchanged
//	kube_test.go     the Kubernetes API: client-go's fake clientset on one set of objects
//	guard_test.go    the rules for every step; capacity_test.go those about healthy targets; known_test.go the guard's
//	                 knowledge of the cloud
//	quiet_test.go    the rules after some minutes without a change
//	sim_test.go      runs seeds; shrinks the history of a seed that fails
//
// How the same seed gives the same history: the steps are made from the seed before the run. A request of the
// CCM waits until everything in the bubble is blocked. Then one of those that wait is chosen with the seed,
// and takes effect; its answer takes a time that also comes from the seed. So the order of requests does not
// depend on the scheduler.
//
// testing/synctest alone does not suffice. It leaves the order of timers of one instant, of the cases of a select and of maps
// to chance (k8s.io/cloud-provider visits Services in a map),
// and on a busy machine the runtime interrupts a goroutine anywhere. Therefore the simulation is compiled with
// some lines of Go's runtime replaced (scripts/sim-runtime.sh), and each seed runs in a new process with one
// processor: client-go visits a map with pointers as keys, and addresses depend on earlier runs.
//
// `make sim` runs it, behind the build tag sim. A seed that fails is shrunk to the steps that it needs, and
// SEED= and KEEP= replay them. The race detector is off: it reports races of k8s.io/cloud-provider's own service
// controller (v0.37.1 writes cachedService.state without the lock that allServices takes).
//
// `make sim-reverted` reverts fixes of the CCM one by one, and prints the seeds after which a rule is broken.
//
// Not modelled: uploaded certificates, and a Kubernetes API that fails for others than a leader. The health of targets is
// the simulated cloud's: a server that runs answers one interval of the health check after it becomes a target.
package sim
