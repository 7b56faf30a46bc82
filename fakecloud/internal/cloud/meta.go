package cloud

import (
	"cmp"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// ParseID reads an id as the API writes it: a decimal number of at least 1, without a sign or leading
// zeros. ok is false for any other text.
func ParseID(text string) (id int64, ok bool) {
	if text == "" || text[0] < '1' || text[0] > '9' {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil
}

// UpdateResource is the input of the PUT operations that change only name and labels. A nil field
// changes nothing. Labels are replaced as a whole.
type UpdateResource struct {
	Name   *string
	Labels map[string]string
}

// Find returns a resource of a table. Errors: not_found.
func Find[T store.Object[T]](t *store.Table[T], id int64) (T, error) {
	v, ok := t.Get(id)
	if !ok {
		return v, ErrNotFound(t.Kind(), id)
	}
	return v, nil
}

var noLabels = map[string]string{}

// labelsOrNone returns labels, or none for nil. Labels are never changed in place.
func labelsOrNone(m map[string]string) map[string]string {
	if len(m) == 0 {
		return noLabels
	}
	return m
}

// ValidateLabels checks labels by the rules of the API document's chapter Labels. It returns nil or an
// invalid_input error on the field `labels`.
func ValidateLabels(labels map[string]string) error {
	if problem := store.LabelProblem(labels); problem != "" {
		return ErrField("labels", problem)
	}
	return nil
}

// setMeta applies a change of name and labels to a resource of a table.
// Errors: not_found, invalid_input on labels, uniqueness_error on name.
func setMeta[T store.Object[T]](t *store.Table[T], id int64, in UpdateResource) error {
	if _, err := Find(t, id); err != nil {
		return err
	}
	if err := ValidateLabels(in.Labels); err != nil {
		return err
	}
	if in.Name != nil {
		if err := RequireUniqueName(t, *in.Name, id); err != nil {
			return err
		}
	}
	t.Update(id, func(v T) {
		m := v.Header()
		set(&m.Name, in.Name)
		if in.Labels != nil {
			m.Labels = labelsOrNone(in.Labels)
		}
	})
	return nil
}

// updateMeta is the PUT operation of a resource with no other fields to change.
func updateMeta[T store.Object[T]](p Project, table func(*State) *store.Table[T], id int64, in UpdateResource) (*State, error) {
	return p.update(func(tx *Tx) error { return setMeta(table(tx.State), id, in) })
}

// checkNew checks what all new resources have. Errors: invalid_input on labels, resource_limit_exceeded, uniqueness_error on name.
func checkNew[T store.Object[T]](tx *Tx, t *store.Table[T], name string, labels map[string]string) error {
	return cmp.Or(ValidateLabels(labels), tx.checkLimit(t), RequireUniqueName(t, name, 0))
}

// protection is the effect of change_protection. A server's deletion and rebuild are protected together.
type protection struct {
	Of Ref
	On bool
}

// protectionOf returns the effect of a request that may leave the protection as it is.
func protectionOf(r Ref, on *bool) effect {
	if on == nil {
		return nil
	}
	return protection{r, *on}
}

func (e protection) end(tx *Tx) {
	switch id := e.Of.ID; e.Of.Kind {
	case KindServer:
		tx.Servers.Update(id, func(s *Server) { s.DeleteProtection, s.RebuildProtection = e.On, e.On })
	case KindLoadBalancer:
		tx.LoadBalancers.Update(id, func(lb *LoadBalancer) { lb.DeleteProtection = e.On })
	case KindNetwork:
		tx.Networks.Update(id, func(n *Network) { n.DeleteProtection = e.On })
	case KindVolume:
		tx.Volumes.Update(id, func(v *Volume) { v.DeleteProtection = e.On })
	case KindFloatingIP:
		tx.FloatingIPs.Update(id, func(f *FloatingIP) { f.DeleteProtection = e.On })
	case KindPrimaryIP:
		tx.PrimaryIPs.Update(id, func(p *PrimaryIP) { p.DeleteProtection = e.On })
	case KindImage:
		tx.changeImage(id, func(i *Image) { i.DeleteProtection = e.On })
	}
}
