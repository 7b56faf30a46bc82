package dataplane

import (
	"crypto/tls"
	"fmt"
)

// serverTLS prepares TLS with clients. With several certificates crypto/tls picks the one that fits
// the server name and the algorithms that the client sent, or the first.
//
// HTTP/2 is offered. That the real load balancer does so, towards clients only, is not in the
// documents at hand; targets get HTTP/1.1 in any case. Which TLS versions and ciphers the real one
// accepts is not modelled either: these are Go's defaults, TLS 1.2 and later.
func serverTLS(certificates []Certificate) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	for i, c := range certificates {
		pair, err := tls.X509KeyPair([]byte(c.Chain), []byte(c.PrivateKey))
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", i, err)
		}
		conf.Certificates = append(conf.Certificates, pair)
	}
	return conf, nil
}

// listenerTLS is the configuration of the service's TLS listener: each handshake gets the
// certificates that the service has at that moment.
func (s *service) listenerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if conf := s.conf.Load(); conf.tls != nil {
				return conf.tls, nil
			}
			return nil, fmt.Errorf("service %d does not terminate TLS any more", s.port)
		},
	}
}
