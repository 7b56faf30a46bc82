// Package plan computes the desired state of a Service's load balancer and its difference from the actual state. All of it is pure: it
// makes no API call, takes no context, and reads nothing but its arguments. Package loadbalancer reads the input and sends the operations.
//
// ParseAnnotations and CheckService read the settings, Compute makes the plan, and Diff compares it with the load balancer.
//
// One word per idea, here and in package loadbalancer:
//
//	record   the labels of a load balancer: its owner, and all that the next process must know (Record)
//	own      the Service's UID is in the load balancer's label
//	adopt    a Service becomes the owner of a load balancer without one, because it asks for it by an annotation
//	lend     a user made it for a Service to use: a load balancer that is adopted with the annotation adopt, Primary IPs
//	inherit  a Service becomes the owner of the load balancer that the production CCM made for it
//	join     a Service becomes a guest on another one's load balancer (the annotation shared)
//	find     a Service adopts a load balancer because it asks for its name: the Service owns it, and gives it back
//	retain   a load balancer outlives its Service, without an owner (the annotation keep-on-delete)
//	release  a person removes the label, so that the load balancer belongs to no Service
//	copy     a setting is wrong: the plan gets what the load balancer has
//	stay     something is not changed, because what would replace it is unknown, or because it is not ours
//	linger   targets that have to leave wait until others are healthy
//	readdress  targets change between public and private addresses in turns
//
// Names that users know differ: the annotation keep-on-delete and the reasons Adopted and Kept of events stay as they are.
package plan
