package controller

// generation is what a rollout knows of a MachineSet.
type generation struct {
	replicas  int // how many it should have
	available int // how many of those it has are available
}

// working returns how many of the wanted Machines are available.
func (g generation) working() int { return min(g.available, g.replicas) }

// rollout is the state of a MachineDeployment.
type rollout struct {
	replicas       int // how many it should have
	maxSurge       int
	maxUnavailable int
	current        generation   // made from the template
	old            []generation // the oldest first
}

// next returns how many replicas each MachineSet should have now, as a Deployment decides it: never more than replicas and
// maxSurge together, and never so few that fewer than replicas less maxUnavailable are available. It is called again
// whenever something has changed.
func (r rollout) next() (current int, old []int) {
	total, available := r.current.replicas, r.current.working()
	for _, g := range r.old {
		total, available, old = total+g.replicas, available+g.working(), append(old, g.replicas)
	}
	current = min(r.current.replicas, r.replicas)
	if room := r.replicas + r.maxSurge - total; current < r.replicas && room > 0 {
		current = min(r.replicas, current+room)
	}
	// Old ones that do not work go first. Those that only seem not to work stay until others have come: on a day when
	// all are unavailable, none is lost.
	atLeast := r.replicas - r.maxUnavailable
	broken := total - atLeast - (r.current.replicas - r.current.working())
	for i, g := range r.old {
		n := max(0, min(broken, g.replicas-g.working()))
		old[i], broken = old[i]-n, broken-n
	}
	spare := available - atLeast
	for i, g := range r.old {
		n := max(0, min(spare, g.working()))
		old[i], spare = old[i]-n, spare-n
	}
	return current, old
}
