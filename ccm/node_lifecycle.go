package ccm

// The node lifecycle controller asks about each Node that is not ready, every five seconds: InstanceExists, and
// InstanceShutdown. They are methods of the instances (node.go). If InstanceExists says false, the controller deletes
// the Node, and with it its pods. So "false" needs a proof, and the evidence judges it (internal/inventory).

// Ready returns an error while the provider does not believe the API's answers, for example because the
// token may belong to another project.
func (c *Cloud) Ready() error { return c.evidence.Ready() }
