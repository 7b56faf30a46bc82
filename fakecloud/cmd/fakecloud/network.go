package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane/netdev"
)

// networkOptions reads the flags about addresses and about the network of this machine.
func (s *settings) networkOptions(o *fakecloud.Options, devices *devices, log *slog.Logger) (err error) {
	if s.dataPlane || s.lbInterface != "" {
		o.DataPlane = &fakecloud.DataPlaneOptions{Logger: log}
	}
	switch {
	case s.lbInterface != "" && s.lbIPv4 == "":
		return fmt.Errorf("--data-plane-interface %s: needs --load-balancer-ipv4; set it to a free part of that interface's network",
			s.lbInterface)
	case s.routerNetwork != "" && s.routerInterface == "":
		return errors.New("--router-network: needs --router-interface; set it, too")
	}
	if o.PublicIPv4, err = parseRange("--public-ipv4", s.publicIPv4); err != nil {
		return err
	}
	if o.LoadBalancerIPv4, err = parseRange("--load-balancer-ipv4", s.lbIPv4); err != nil {
		return err
	}
	for _, r := range s.reserved {
		if a, err := netip.ParseAddr(r); err == nil {
			r = netip.PrefixFrom(a, a.BitLen()).String()
		}
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return fmt.Errorf("--reserved %q: must be a range or an address, such as 172.30.0.0/24", r)
		}
		o.Reserved = append(o.Reserved, p.Masked())
	}
	return s.openDevices(o, devices, log)
}

// openDevices prepares the network interfaces of the data plane and the router.
func (s *settings) openDevices(o *fakecloud.Options, devices *devices, log *slog.Logger) error {
	if s.lbInterface != "" {
		binder, err := netdev.NewBinder(netdev.BinderOptions{Interface: s.lbInterface, Logger: log})
		if err != nil {
			return fmt.Errorf("--data-plane-interface: %w", err)
		}
		devices.add(binder.Close)
		o.DataPlane.Binder = binder
	}
	if s.routerInterface != "" {
		router, err := netdev.NewRouter(netdev.RouterOptions{Interface: s.routerInterface})
		if err != nil {
			return fmt.Errorf("--router-interface: %w", err)
		}
		devices.add(router.Close)
		o.Router = &fakecloud.RouterOptions{Table: router, Network: s.routerNetwork, Logger: log}
	}
	return nil
}

// devices are functions that undo changes of this machine's network interfaces.
type devices []func() error

func (d *devices) add(undo func() error) { *d = append(*d, undo) }

// close undoes everything, the latest first.
func (d *devices) close(log *slog.Logger) {
	for _, undo := range slices.Backward(*d) {
		if err := undo(); err != nil {
			log.Error("cannot undo a change of this machine's network; undo it by hand", "error", err)
		}
	}
}

// parseRange reads a range of addresses. "" means no range.
func parseRange(flag, text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("%s %q: must be an IPv4 range such as 127.65.0.0/16", flag, text)
	}
	return p.Masked(), nil
}
