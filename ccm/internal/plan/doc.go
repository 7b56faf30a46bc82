// Package plan computes what a Service's load balancer should be, and how it differs from what it is. All of it is pure: it makes no
// API call, takes no context, and reads nothing but its arguments. Package loadbalancer reads the input and sends the operations.
//
// ParseAnnotations and CheckService read the settings, Compute makes the plan, and Diff compares it with the load balancer.
package plan
