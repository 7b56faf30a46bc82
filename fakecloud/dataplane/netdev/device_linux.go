package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// labelSuffix marks the addresses that this package adds to an interface. Their label is the interface's
// name and this suffix, for example "eth0:cloud".
const labelSuffix = ":cloud"

// link is an interface in the network namespace of the thread that opened it.
type link struct {
	handle *netlink.Handle
	link   netlink.Link
	label  string
	packet int // socket for ARP; -1 without CAP_NET_RAW
}

func openDevice(name string) (device, error) { return openLink(name) }

// openLink opens an interface for changes. It returns an error if the interface does not exist or
// CAP_NET_ADMIN is missing.
func openLink(name string) (*link, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	l, err := h.LinkByName(name)
	if err != nil {
		err = fmt.Errorf("interface %q: %w: must be one of %s", name, err, linkNames(h))
		h.Close()
		return nil, err
	}
	if err := requireNetAdmin(); err != nil {
		h.Close()
		return nil, err
	}
	label := name[:min(len(name), unix.IFNAMSIZ-1-len(labelSuffix))] + labelSuffix
	d := &link{handle: h, link: l, label: label}
	if d.packet, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		d.packet = -1
	}
	return d, nil
}

func linkNames(h *netlink.Handle) string {
	links, err := h.LinkList()
	if err != nil {
		return "the machine's interfaces, which cannot be listed: " + err.Error()
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return strings.Join(names, ", ")
}

// requireNetAdmin returns an error with advice if CAP_NET_ADMIN is missing. The kernel would later
// report only "operation not permitted".
func requireNetAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading the capabilities of this process: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return errors.New("CAP_NET_ADMIN is missing: run the container with --user 0 --cap-add NET_ADMIN, or the program as root")
	}
	return nil
}

func (d *link) close() error {
	d.handle.Close()
	if d.packet >= 0 {
		return unix.Close(d.packet)
	}
	return nil
}

func (d *link) given() ([]netip.Addr, error) {
	// IPv6 addresses have no label: those of a killed process are not found.
	all, err := d.handle.AddrList(d.link, netlink.FAMILY_V4)
	var out []netip.Addr
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP.To4()); ok && a.Label == d.label {
			out = append(out, addr)
		}
	}
	return out, err
}

func (d *link) address(a netip.Addr) *netlink.Addr {
	out := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen()))}
	if a.Is4() {
		out.Label = d.label
	} else {
		out.Flags = unix.IFA_F_NODAD // without it the address cannot be bound for a second
	}
	return out
}

func (d *link) add(a netip.Addr) (bool, error) {
	err := d.handle.AddrAdd(d.link, d.address(a))
	if !errors.Is(err, unix.EEXIST) {
		return err == nil, err
	}
	ours, err := d.given()
	return slices.Contains(ours, a), err // it is ours if a killed process has added it
}

func (d *link) remove(a netip.Addr) error {
	err := d.handle.AddrDel(d.link, d.address(a))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil // already removed
	}
	return err
}

// announce sends a gratuitous ARP request (RFC 5227, ARP announcement): "who has a? tell a". Neighbours
// with another owner of the address in their cache replace it. IPv6 addresses are not announced: the
// kernel sends no announcement for an address without duplicate address detection.
func (d *link) announce(a netip.Addr) error {
	mac := d.link.Attrs().HardwareAddr
	if !a.Is4() || len(mac) != 6 || d.link.Attrs().Flags&net.FlagLoopback != 0 {
		return nil
	}
	if d.packet < 0 {
		return errors.New("CAP_NET_RAW is missing")
	}
	return unix.Sendto(d.packet, announcement(mac, a), 0, &unix.SockaddrLinklayer{
		Ifindex: d.link.Attrs().Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	})
}

// announcement returns the Ethernet frame of a gratuitous ARP request.
func announcement(mac net.HardwareAddr, a netip.Addr) []byte {
	ip := a.As4()
	var f []byte
	f = append(f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // broadcast
	f = append(f, mac...)
	f = append(f, 0x08, 0x06)    // ARP
	f = append(f, 0, 1, 8, 0)    // Ethernet, IPv4
	f = append(f, 6, 4, 0, 1)    // lengths of addresses, request
	f = append(f, mac...)        // sender
	f = append(f, ip[:]...)      //
	f = append(f, 0, 0, 0, 0, 0) // target: unknown
	f = append(f, 0)
	return append(f, ip[:]...)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
