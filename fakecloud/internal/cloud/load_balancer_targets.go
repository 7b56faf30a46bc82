package cloud

// refreshTargets brings the load balancers' targets up to date after a server was created, deleted
// or changed in its labels, addresses or networks: label selectors select anew, and targets that
// can no longer exist go. It also keeps Server.LoadBalancers.
func (tx *Tx) refreshTargets(server int64) {}
