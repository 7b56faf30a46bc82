package cloud

import (
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindSSHKey is the kind of SSH keys.
const KindSSHKey store.Kind = "ssh_key"

// SSHKey is a public key for new servers.
//
// Reproduced: name and fingerprint are unique in a project; the key is parsed. Left out: types of keys that
// can be parsed, but that the real API refuses.
type SSHKey struct {
	store.Meta
	Fingerprint string // MD5, colon separated
	PublicKey   string
}

// Clone implements Object.
func (k *SSHKey) Clone() *SSHKey {
	c := *k
	return &c
}

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
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(in.PublicKey))
		if err != nil {
			return ErrField("public_key", "is not an SSH public key")
		}
		if err := ValidateLabels(in.Labels); err != nil {
			return err
		}
		if err := tx.checkLimit(&tx.SSHKeys); err != nil {
			return err
		}
		if err := RequireUniqueName(&tx.SSHKeys, in.Name, 0); err != nil {
			return err
		}
		fingerprint := ssh.FingerprintLegacyMD5(key)
		for k := range tx.SSHKeys.All() {
			if k.Fingerprint == fingerprint {
				return ErrUniqueness("public_key", "SSH key with the same fingerprint already exists")
			}
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
	return updateMeta(p, func(tx *Tx) *store.Table[*SSHKey] { return &tx.SSHKeys }, id, in)
}

// DeleteSSHKey removes a key. Servers that were created with it do not change. Errors: not_found.
func (p Project) DeleteSSHKey(id int64) error {
	_, err := p.update(func(tx *Tx) error {
		if _, err := Find(&tx.SSHKeys, id); err != nil {
			return err
		}
		tx.SSHKeys.Delete(id)
		return nil
	})
	return err
}
