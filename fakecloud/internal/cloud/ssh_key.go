package cloud

import (
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindSSHKey is the kind of SSH keys.
const KindSSHKey store.Kind = "ssh_key"

// SSHKey is a public key for new servers.
//
// Reproduced: name and fingerprint are unique in a project; the key is parsed, and its type is checked.
type SSHKey struct {
	store.Meta
	Fingerprint string `json:"fingerprint,omitzero"` // MD5, colon separated
	PublicKey   string `json:"public_key,omitzero"`
}

// SSHKeyTable holds a project's SSH keys.
type SSHKeyTable struct {
	store.Table[*SSHKey]
	fingerprints store.Ascending[fingerprintID]
}

// fingerprintID is the fingerprint of a key, and its id. Both never change.
type fingerprintID struct {
	fingerprint string
	id          int64
}

// Init is [store.Table.Init], for the index, too.
func (t *SSHKeyTable) Init(kind store.Kind) {
	less := func(a, b fingerprintID) bool { return a.fingerprint < b.fingerprint }
	*t = SSHKeyTable{Table: store.NewTable[*SSHKey](kind), fingerprints: store.NewAscending(less)}
}

// Publish is [store.Table.Publish], for the index, too.
func (t *SSHKeyTable) Publish() { t.Begin(nil) }

// Begin is [store.Table.Begin], for the index, too.
func (t *SSHKeyTable) Begin(l *store.ChangeLog) {
	t.Table.Begin(l)
	t.fingerprints.Share()
}

// Put stores a new key.
func (t *SSHKeyTable) Put(k *SSHKey) {
	t.Table.Put(k)
	t.fingerprints.Set(fingerprintID{k.Fingerprint, k.ID})
}

// Delete removes a key, if it is there.
func (t *SSHKeyTable) Delete(id int64) {
	if k, ok := t.Get(id); ok {
		t.fingerprints.Delete(fingerprintID{fingerprint: k.Fingerprint})
		t.Table.Delete(id)
	}
}

// ByFingerprint returns the key with a fingerprint.
func (t *SSHKeyTable) ByFingerprint(fingerprint string) (*SSHKey, bool) {
	found, ok := t.fingerprints.Get(fingerprintID{fingerprint: fingerprint})
	if !ok {
		return nil, false
	}
	return t.Get(found.id)
}

// Clone implements Object.
func (k *SSHKey) Clone() *SSHKey { return new(*k) }

// sshKeyTypes are the types of SSH keys that the real API's error lists (mysticaltech/terraform-hcloud-kube-hetzner issue 310).
const sshKeyTypes = "ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384, ecdsa-sha2-nistp521, ssh-dss, sk-ssh-ed25519, " +
	"sk-ecdsa-sha2-nistp256, sk-ecdsa-sha2-nistp384, sk-ecdsa-sha2-nistp521"

// CreateSSHKey is the input of POST /ssh_keys.
type CreateSSHKey struct {
	Name      string
	PublicKey string
	Labels    map[string]string
}

// CreateSSHKey stores a public key.
// Errors: invalid_input, uniqueness_error (name, fingerprint), resource_limit_exceeded.
func (p Project) CreateSSHKey(in CreateSSHKey) (*SSHKey, *State, error) {
	var created *SSHKey
	st, err := p.update(func(tx *Tx) error {
		kind, _, _ := strings.Cut(strings.TrimSpace(in.PublicKey), " ")
		if !slices.Contains(strings.Split(sshKeyTypes, ", "), strings.TrimSuffix(kind, "@openssh.com")) {
			return ErrField("public_key", "SSH key type is invalid (supported types: "+sshKeyTypes+")")
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(in.PublicKey))
		if err != nil {
			return ErrField("public_key", "is not an SSH public key")
		}
		if err := checkNew(tx, &tx.SSHKeys.Table, in.Name, in.Labels); err != nil {
			return err
		}
		fingerprint := ssh.FingerprintLegacyMD5(key)
		if _, taken := tx.SSHKeys.ByFingerprint(fingerprint); taken {
			return ErrUniqueness("public_key", "SSH key not unique") // since 2026: wgmesh pull request 283, frappe/press pull request 6706
		}
		created = &SSHKey{
			Meta: tx.NewMeta(in.Name, in.Labels), Fingerprint: fingerprint,
			PublicKey: strings.TrimSpace(in.PublicKey),
		}
		tx.SSHKeys.Put(created)
		return nil
	})
	return created, st, err
}

// UpdateSSHKey changes name and labels. Errors: not_found, invalid_input, uniqueness_error.
func (p Project) UpdateSSHKey(id int64, in UpdateResource) (*State, error) {
	return updateMeta(p, inSSHKeys, id, in)
}

// DeleteSSHKey removes a key. Servers that were created with it do not change. Errors: not_found.
func (p Project) DeleteSSHKey(id int64) error {
	_, err := onFree(p, inSSHKeys, id, func(tx *Tx, _ *SSHKey) error {
		tx.SSHKeys.Delete(id)
		return nil
	})
	return err
}
