// Package evidence decides whether something is gone that the API does not show: the same rules for the CCM and for the machine
// controller. It is pure: the caller has asked the API, and brings what it knows.
//
// An answer without an object proves little. It may be wrong, as in an incident of the API, or right but about another project, as
// with a wrong token. So it needs a witness, something else of the cluster that the API shows at the same time, or more time.
package evidence

import (
	"cmp"
	"fmt"
	"time"
)

const (
	// Again is the time between the first answer without an object and the one that is believed.
	Again = 10 * time.Second
	// Hold is the same time without a witness, and when many objects disappear at once.
	Hold = 5 * time.Minute

	// massDisappearance is the least number of objects that disappear at once, and massShare their least share
	// (1/massShare) of the cluster's, that are not believed at once.
	massDisappearance = 3
	massShare         = 3
)

// State is the answer to the question whether an object is gone.
type State int

// The answers. Doubtful is the zero value: then nothing is deleted, made or replaced.
const (
	Doubtful State = iota
	Exists
	Gone
)

// String returns the answer as a word.
func (s State) String() string {
	return cmp.Or(map[State]string{Exists: "exists", Gone: "gone"}[s], "doubtful")
}

// Verdict is an answer and why it is that one.
type Verdict struct {
	State    State
	Evidence string
	// Wait is the time after which a doubt may have ended.
	Wait time.Duration
}

// Case is what is known about an object that the API does not show.
type Case struct {
	// Name names the object, such as "server 42"; Kind those of its kind, such as "servers".
	Name, Kind string
	// Known is how many objects of the kind the cluster knows, and Missing how many of them the API does not show at this time.
	Known, Missing int
	// Recognised says that the token is known to be one of the cluster's project.
	Recognised bool
	// For is how long all answers have lacked the object.
	For time.Duration
	// Confirm says what a person does if all objects are gone.
	Confirm string
}

// Judge answers whether the object of the case is gone.
func Judge(c Case) Verdict {
	witnesses := c.Known - c.Missing
	if c.Known > 0 && witnesses == 0 && !c.Recognised {
		return Verdict{Wait: time.Minute, Evidence: fmt.Sprintf("none of the cluster's %d %s is visible with this token, which may belong "+
			"to another project: correct the token, or, if all of them are gone, %s", c.Known, c.Kind, c.Confirm)}
	}
	why := fmt.Sprintf("the API shows %d of the cluster's %d %s, and not %s", witnesses, c.Known, c.Kind, c.Name)
	wait := Again
	if witnesses == 0 || TooMany(c.Missing, c.Known) {
		wait = Hold
	}
	if c.For < wait {
		return Verdict{Wait: min(wait-c.For, time.Minute), Evidence: fmt.Sprintf("%s: wait until it has been missing for %v", why, wait)}
	}
	return Verdict{State: Gone, Evidence: fmt.Sprintf("%s, for %v or more", why, wait)}
}

// TooMany reports whether so many objects cannot have disappeared without a doubt.
func TooMany(missing, known int) bool {
	return missing >= massDisappearance && missing*massShare >= known
}
