// Package catalogue describes changes of the cloud's offers. They rehearse events of the real cloud for its clients: a server type is sold
// out, retires, costs more, or appears.
//
//	err := cloud.OfferServerType(ctx, "cx23", "fsn1", catalogue.Offer{Available: new(false)})
//
// A change applies to all projects at once. It publishes no events, since no resource changes.
package catalogue

import (
	"errors"
	"time"
)

// ErrNotFound is the error if a server type or a location does not exist, ErrExists the error if the name of a new server
// type is taken.
var (
	ErrNotFound = errors.New("does not exist")
	ErrExists   = errors.New("exists already")
)

// Offer is a change of a server type's offer in a location. A field that is nil stays as it is.
type Offer struct {
	// Offered says whether the type exists in the location. If not, creating a server there fails with invalid_input,
	// "unsupported location for server type". A type that begins to exist there is available, and has the price of its first
	// location unless PriceMonthly is set. It must stay in one location at least.
	Offered *bool `json:"offered,omitempty"`
	// Available is false if the type is sold out: creating a server there fails with resource_unavailable.
	Available *bool `json:"available,omitempty"`
	// Recommended is only shown.
	Recommended *bool `json:"recommended,omitempty"`
	// Deprecation says when the type retires in the location. The zero value takes a deprecation back.
	Deprecation *Deprecation `json:"deprecation,omitempty"`
	// PriceMonthly is the net price in EUR of a month, at most [MaxPrice]. The hourly price follows from it.
	PriceMonthly *float64 `json:"price_monthly,omitempty"`
}

// MaxPrice is the largest price of a month.
const MaxPrice = 1_000_000

// Deprecation is the time between an announcement and a retirement, on the cloud's clock.
type Deprecation struct {
	// Announced is at most the present, and before UnavailableAfter. The zero value means the present, or 90 days before
	// UnavailableAfter if that is earlier.
	Announced time.Time `json:"announced,omitzero"`
	// UnavailableAfter is when the type retires. Until then it can be ordered. From then on, creating a server in the location
	// fails with invalid_input; a type that is retired everywhere is in no list. Existing servers stay.
	UnavailableAfter time.Time `json:"unavailable_after,omitzero"`
}

// NewServerType is a new server type, made from a copy of another one. A field that is empty or 0 has the other type's value. The locations
// and prices are the other type's, too; OfferServerType changes them.
type NewServerType struct {
	// Name has lower-case letters, digits and dashes, and begins with a letter.
	Name string `json:"name"`
	// CopyOf is the name or id of an existing server type.
	CopyOf string `json:"copy_of"`
	// Description is the name in capitals if it is empty.
	Description string `json:"description,omitempty"`
	// Category is a text of at most 64 characters, such as "cost_optimized".
	Category string  `json:"category,omitempty"`
	Cores    int     `json:"cores,omitempty"`
	Memory   float64 `json:"memory,omitempty"` // GB
	Disk     int     `json:"disk,omitempty"`   // GB
	// CPUType is "shared" or "dedicated".
	CPUType string `json:"cpu_type,omitempty"`
	// Architecture is "x86" or "arm".
	Architecture string `json:"architecture,omitempty"`
}
