package api

import (
	"net/url"
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type isoJSON struct {
	ID           int64            `json:"id"`
	Name         *string          `json:"name"`
	Description  string           `json:"description"`
	Type         string           `json:"type"`
	Architecture *string          `json:"architecture"`
	Deprecation  *deprecationJSON `json:"deprecation"`
}

// isos are the public ISOs. Not modelled: private ISOs. Hetzner's support uploads those on request.
var isos = &staticList[cloud.ISO]{
	singular: "iso", plural: "isos",
	items: func(c *cloud.Catalogue) []*cloud.ISO { return c.ISOs },
	id:    func(i *cloud.ISO) int64 { return i.ID },
	name:  func(i *cloud.ISO) string { return i.Name },
	encode: func(_ Date, i *cloud.ISO) any {
		return isoJSON{i.ID, nullable(i.Name), i.Description, i.Type, nullable(i.Architecture), encodeDeprecation(i.Deprecation)}
	},
	retired: func(i *cloud.ISO, now time.Time) bool { return i.Deprecation.Retired(now) },
	filter:  isoFilter,
}

// isoFilter reads architecture and include_architecture_wildcard. The latter adds the ISOs for all architectures and
// needs the former.
func isoFilter(q url.Values) (func(*cloud.ISO) bool, error) {
	arch, err := oneOf(q, "architecture", "x86", "arm")
	if err != nil {
		return nil, err
	}
	wildcard, err := boolParam(q, "include_architecture_wildcard")
	if err != nil {
		return nil, err
	}
	if wildcard && len(q["architecture"]) == 0 {
		return nil, cloud.ErrField("include_architecture_wildcard", "needs the parameter architecture")
	}
	return func(i *cloud.ISO) bool { return arch(i.Architecture) || wildcard && i.Architecture == "" }, nil
}

// boolParam reads a boolean query parameter. If it is absent, it is false. Clients write it like their language:
// hcloud-go sends true, Python's requests sends True.
func boolParam(q url.Values, name string) (bool, error) {
	text := q.Get(name)
	if text == "" {
		return false, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, cloud.ErrField(name, "must be true or false")
	}
	return value, nil
}
