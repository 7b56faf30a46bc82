package gone

import (
	"fmt"
	"time"
)

// Again is the time between the first answer without an object and the one that is believed.
const Again = 10 * time.Second

// Finding is an answer.
type Finding struct {
	Answer
	// Wait is the least time until a doubt may end.
	Wait time.Duration
}

// Case holds the facts about an object that the API does not show, for a caller that records itself how long it has been missing: the
// machine controller does. An answer without an object proves little. It may be wrong, as in an incident
// of the API, or right but about another project, as with a wrong token. So it needs a witness, something else of the cluster that
// the API shows at the same time, or more time.
type Case struct {
	// Name names the object, such as "server 42"; Kind those of its kind, such as "servers".
	Name, Kind string
	// Known is how many objects of the kind the cluster knows, and Missing how many of them the API does not show at this time.
	Known, Missing int
	// Recognised says that the token is known to be one of the cluster's project.
	Recognised bool
	// Asked says that the API was asked to delete the object, and has or may have done so: then it is expected to be missing.
	Asked bool
	// For is how long all answers have lacked the object.
	For time.Duration
	// Confirm says what a person does if all objects are gone.
	Confirm string
}

// Judge answers whether the object of the case is gone.
func (c Case) Judge() Finding {
	witnesses := c.Known - c.Missing
	if c.Known > 0 && witnesses == 0 && !c.Recognised {
		return Finding{Wait: time.Minute, Answer: Answer{Doubtful, fmt.Sprintf("none of the cluster's %d %s is visible with this "+
			"token, which may belong to another project: correct the token, or, if all of them are gone, %s", c.Known, c.Kind, c.Confirm)}}
	}
	why := fmt.Sprintf("the API shows %d of the cluster's %d %s, and not %s", witnesses, c.Known, c.Kind, c.Name)
	wait := Again
	if expected := c.Asked && c.Recognised; !expected && (witnesses == 0 || Many(c.Missing, c.Known)) {
		wait = Hold
	}
	if c.For < wait {
		return Finding{Answer{Doubtful, fmt.Sprintf("%s: wait until it has been missing for %v", why, wait)}, min(wait-c.For, time.Minute)}
	}
	return Finding{Answer: Answer{Gone, fmt.Sprintf("%s, for %v or more", why, wait)}}
}
