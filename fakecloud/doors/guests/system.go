package guests

import (
	"cmp"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// systems are the flavors of images: the id and the name of each in os-release.
var systems = map[string][2]string{
	"alma": {"almalinux", "AlmaLinux"}, "centos": {"centos", "CentOS Stream"}, "debian": {"debian", "Debian GNU/Linux"},
	"fedora": {"fedora", "Fedora Linux"}, "opensuse": {"opensuse-leap", "openSUSE Leap"}, "rocky": {"rocky", "Rocky Linux"},
	"ubuntu": {"ubuntu", "Ubuntu"}, "": {"linux", "Linux"}, "unknown": {"linux", "Linux"},
}

// codenames are those that programs look for in os-release.
var codenames = map[string]string{"debian11": "bullseye", "debian12": "bookworm", "debian13": "trixie",
	"ubuntu20.04": "focal", "ubuntu22.04": "jammy", "ubuntu24.04": "noble"}

// newSystem returns the disk of a server that was just made, with the files of an image unless that is nil.
func newSystem(now func() time.Time, image *disk, about hypervisor.Guest, keys []string) *disk {
	d := cmp.Or(image, new(disk)).copy(now)
	for p := range strings.FieldsSeq("/ /etc /home /opt /root /root/.ssh /srv /tmp /usr /usr/local /usr/local/bin /var /var/lib " +
		"/var/lib/cloud /var/lib/cloud/instance /var/log") {
		_ = d.mkdir(p, 0o755) // it fits, or is there
	}
	s := systems[about.OSFlavor]
	release := fmt.Sprintf("NAME=%q\nID=%s\nVERSION_ID=%q\nVERSION_CODENAME=%s\nPRETTY_NAME=%q\n", s[1], s[0], about.OSVersion,
		codenames[about.OSFlavor+about.OSVersion], strings.TrimSpace(s[1]+" "+about.OSVersion))
	for _, f := range []struct {
		path, text string
		mode       fs.FileMode
	}{
		{"/etc/os-release", release, 0o644},
		{"/etc/hostname", about.Name + "\n", 0o644},
		{"/var/lib/cloud/instance/user-data.txt", about.UserData, 0o600},
		{authorizedKeys, strings.Join(keys, "\n") + "\n", 0o600},
	} {
		if opened, err := d.open(f.path, true, true); err == nil { // the disk of an image may be full
			_, _ = opened.WriteAt([]byte(f.text), 0)
			_ = d.chmod(f.path, f.mode)
		}
	}
	return d
}
