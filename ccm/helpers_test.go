package ccm

import (
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

// cloudOf returns a provider for the API, on an ccmtest.AutoClock and without randomness.
func cloudOf(a *ccmtest.API, cfg Config, options ...Option) (*Cloud, *ccmtest.AutoClock) {
	clk := ccmtest.NewAutoClock()
	if cfg.Token == "" && cfg.TokenFile == "" {
		cfg.Token = "secret"
	}
	cfg.Endpoint = a.URL
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	options = append([]Option{WithClock(clk), WithJitter(func() float64 { return 1 })}, options...)
	return New(cfg, options...), clk
}
