package netdev

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// protocol marks the routes of this package. rtnetlink(7) leaves numbers above RTPROT_STATIC to users;
// no list of well-known numbers contains this one.
const protocol = 142

// kernelTable is a routing table of the kernel and its rules.
type kernelTable struct {
	*link
	number int
	socket *nl.NetlinkSocket // for requests without a function in the netlink package
	// undo holds functions that undo the changes of open; close calls them in reverse order.
	undo []func() error
}

func openTable(name string, number int) (table, error) {
	l, err := openLink(name)
	if err != nil {
		return nil, err
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return &kernelTable{link: l, number: number, socket: socket}, nil
}

// open directs the packets of the interface to the table.
func (t *kernelTable) open() error {
	if err := t.stopRedirects(); err != nil {
		return err
	}
	if err := t.forward(); err != nil {
		return err
	}
	for _, rule := range t.rules() {
		if err := t.handle.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the rule %s: %w", rule, err)
		}
		t.undo = append(t.undo, func() error {
			if err := t.handle.RuleDel(rule); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("removing the rule %s: %w", rule, err)
			}
			return nil
		})
	}
	return nil
}

// rules returns the rules that direct packets to the table. Packets that arrive on the interface use
// only the table. Packets of this machine itself (answers to pods, ICMP errors) use its routes except a
// default route.
func (t *kernelTable) rules() []*netlink.Rule {
	rule := func(offset int, from string, change func(*netlink.Rule)) *netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Priority, r.IifName = netlink.FAMILY_V4, RulePriority(t.number)+offset, from
		change(r)
		return r
	}
	name := t.link.link.Attrs().Name
	return []*netlink.Rule{
		rule(0, name, func(r *netlink.Rule) { r.Table = t.number }),
		rule(1, name, func(r *netlink.Rule) { r.Type = unix.FR_ACT_UNREACHABLE }),
		rule(2, "lo", func(r *netlink.Rule) { r.Table, r.SuppressPrefixlen = t.number, 0 }),
	}
}

func (t *kernelTable) close() error {
	var errs []error
	for _, undo := range slices.Backward(t.undo) {
		errs = append(errs, undo())
	}
	t.socket.Close()
	return errors.Join(append(errs, t.link.close())...)
}

// conf reads an IPv4 setting from /proc/sys. Most containers can read it but not write it.
func conf(scope, name string) (bool, error) {
	b, err := os.ReadFile(confFile(scope, name))
	return strings.TrimSpace(string(b)) != "0", err
}

func confFile(scope, name string) string {
	return filepath.Join("/proc/sys/net/ipv4/conf", scope, name)
}

// stopRedirects switches off ICMP redirects of "all". A redirect tells a node to send packets directly
// to its neighbour, so that the node would bypass the cloud's routes. The kernel sends redirects if the
// setting of the interface or of "all" is on; the latter can be changed only through /proc/sys.
func (t *kernelTable) stopRedirects() error {
	on, err := conf("all", "send_redirects")
	if err != nil || !on {
		return err
	}
	file := confFile("all", "send_redirects")
	if err := os.WriteFile(file, []byte("0"), 0); err != nil {
		return fmt.Errorf("switching off the sysctl net.ipv4.conf.all.send_redirects, with which nodes bypass the router: "+
			"run the container with --sysctl net.ipv4.conf.all.send_redirects=0: %w", err)
	}
	t.undo = append(t.undo, func() error { return os.WriteFile(file, []byte("1"), 0) })
	return nil
}

// forward switches forwarding on and redirects off, only on the interface. It uses netlink, since
// /proc/sys may be read-only. Forwarding between other interfaces does not change.
func (t *kernelTable) forward() error {
	name := t.link.link.Attrs().Name
	forwarding, err := conf(name, "forwarding")
	if err != nil {
		return err
	}
	redirects, err := conf(name, "send_redirects")
	if err != nil {
		return err
	}
	if forwarding && !redirects {
		return nil
	}
	if err := t.setConf(true, false); err != nil {
		return fmt.Errorf("switching on forwarding on %s: %w", name, err)
	}
	t.undo = append(t.undo, func() error { return t.setConf(forwarding, redirects) })
	return nil
}

// Numbers of settings in linux/ip.h.
const (
	ipv4DevconfForwarding    = 1
	ipv4DevconfSendRedirects = 6
	iflaInetConf             = 1 // linux/if_link.h
)

// setConf sets the interface's IPv4 settings by RTM_SETLINK with IFLA_AF_SPEC.
func (t *kernelTable) setConf(forwarding, redirects bool) error {
	flag := func(on bool) []byte {
		if on {
			return nl.Uint32Attr(1)
		}
		return nl.Uint32Attr(0)
	}
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(t.link.link.Attrs().Index)
	request.AddData(msg)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	settings := spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(iflaInetConf, nil)
	settings.AddRtAttr(ipv4DevconfForwarding, flag(forwarding))
	settings.AddRtAttr(ipv4DevconfSendRedirects, flag(redirects))
	request.AddData(spec)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: t.socket}}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func (t *kernelTable) list() ([]dataplane.Route, error) {
	filter := &netlink.Route{Table: t.number, Protocol: protocol}
	all, err := t.handle.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, err
	}
	var out []dataplane.Route
	for _, k := range all {
		r := dataplane.Route{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Kind: dataplane.OnLink}
		if k.Dst != nil {
			a, _ := netip.AddrFromSlice(k.Dst.IP.To4())
			bits, _ := k.Dst.Mask.Size()
			r.Destination = netip.PrefixFrom(a, bits)
		}
		switch {
		case k.Type == unix.RTN_UNREACHABLE:
			r.Kind = dataplane.Unreachable
		case k.Gw != nil:
			r.Kind = dataplane.Via
			r.Gateway, _ = netip.AddrFromSlice(k.Gw.To4())
		}
		out = append(out, r)
	}
	return out, nil
}

func (t *kernelTable) route(r dataplane.Route) *netlink.Route {
	k := &netlink.Route{Table: t.number, Protocol: protocol, Dst: ipNet(r.Destination), Type: unix.RTN_UNICAST}
	switch r.Kind {
	case dataplane.Unreachable:
		k.Type = unix.RTN_UNREACHABLE
	case dataplane.OnLink:
		k.LinkIndex, k.Scope = t.link.link.Attrs().Index, netlink.SCOPE_LINK
	case dataplane.Via:
		k.LinkIndex, k.Gw = t.link.link.Attrs().Index, r.Gateway.AsSlice()
		// The gateway is a neighbour even if the interface has no address in its range.
		k.Flags = int(netlink.FLAG_ONLINK)
	}
	return k
}

func (t *kernelTable) set(r dataplane.Route) error { return t.handle.RouteReplace(t.route(r)) }

func (t *kernelTable) remove(r dataplane.Route) error {
	err := t.handle.RouteDel(t.route(r))
	if errors.Is(err, unix.ESRCH) {
		return nil // already removed, for example with its interface
	}
	return err
}
