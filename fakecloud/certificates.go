package fakecloud

import "crypto/x509"

// CARoots returns, in PEM, the root of the authority that issues the cloud's managed certificates. It
// is made for this cloud and good for tests only.
func (c *Cloud) CARoots() []byte { return c.cloud.CARoots() }

// CertPool is CARoots as a pool for the tls.Config of a client that talks to a load balancer. A managed
// certificate is valid on the cloud's clock: with a clock of its own, set tls.Config.Time to it.
func (c *Cloud) CertPool() *x509.CertPool { return c.cloud.CertPool() }
