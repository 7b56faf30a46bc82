package dataplane

import (
	"crypto/tls"
	"fmt"
)

// serverTLS returns the TLS configuration for clients. With several certificates, crypto/tls chooses one
// that fits the client's server name and algorithms, or the first.
//
// Clients can use HTTP/2 (an inference: no document at hand describes it); targets always get HTTP/1.1.
// The TLS versions and ciphers of the real load balancer are not modelled: these are Go's defaults, TLS
// 1.2 and later.
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

// listenerTLS returns the configuration of the service's TLS listener. Each handshake uses the current
// certificates of the service.
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
