package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// Provider makes, finds and removes the instances of Machines in one cloud. All methods may be called at the same time
// for different Machines, and are called again after an error, or after the program has died at any point.
type Provider interface {
	// AddDefaults returns the spec with the provider's defaults for fields that are not set. It must not change other fields,
	// and must not call the cloud's API.
	AddDefaults(ctx context.Context, spec v1alpha1.MachineSpec) (v1alpha1.MachineSpec, error)

	// Validate returns an error if no instance can be made of the spec. If a person has to change the spec, that is a
	// [TerminalError]; if the operating system is not available, it wraps [ErrOSNotSupported]. The warnings say what will not be
	// possible some day, such as a type that retires.
	Validate(ctx context.Context, spec v1alpha1.MachineSpec) (warnings []string, err error)

	// Get returns the instance of a Machine. It returns [ErrInstanceNotFound] only if the cloud says that none exists. The controller
	// does not believe that at once. An error of the API, or an answer that lacks something, is another error.
	Get(ctx context.Context, m *v1alpha1.Machine) (Instance, error)

	// GetCloudConfig returns the configuration and the name of the cloud provider for the kubelet. The name is "external" where
	// a cloud-controller-manager does the work.
	GetCloudConfig(ctx context.Context, spec v1alpha1.MachineSpec) (config, name string, err error)

	// Create makes the instance of a Machine, or returns the one from an earlier call: it never makes a second
	// one. The instance need not run yet.
	Create(ctx context.Context, m *v1alpha1.Machine, data *Data, userData string) (Instance, error)

	// Account returns a text that stands for the credentials of the spec and does not contain them. The same text means the same
	// account. It must not call the cloud's API.
	Account(ctx context.Context, spec v1alpha1.MachineSpec) (string, error)

	// Shows lists what the credentials of the spec show. It returns, for each of the provider IDs that is one of this cloud,
	// whether the instance is there. It is called only when something is missing.
	Shows(ctx context.Context, spec v1alpha1.MachineSpec, providerIDs []string) (map[string]bool, error)

	// Cleanup removes the instance of a Machine, and everything that was made for it. It returns true when the cloud has
	// confirmed the removal, and false if it has to be called again. It returns [ErrInstanceNotFound] if it finds nothing, which
	// the controller does not believe at once, and [ErrInstanceNotOwned] for an instance that it leaves alone.
	Cleanup(ctx context.Context, m *v1alpha1.Machine, data *Data) (bool, error)

	// MachineMetricsLabels returns labels of the Machine for metrics. The label size, the type of the instance, is always
	// there. It must not call the cloud's API.
	MachineMetricsLabels(m *v1alpha1.Machine) (map[string]string, error)

	// MigrateUID makes everything that is found by the Machine's UID be found by the new one. Machines that are restored from
	// a backup have new UIDs. It returns [ErrInstanceNotFound] if it finds nothing by either of them.
	MigrateUID(ctx context.Context, m *v1alpha1.Machine, newUID types.UID) error

	// SetMetricsForMachines sets the provider's own metrics. It is called from time to time with all Machines of the
	// provider.
	SetMetricsForMachines(machines v1alpha1.MachineList) error
}

// Starter is a Provider that can start an instance.
type Starter interface {
	// Start asks the cloud to start the stopped instance of a Machine. The controller calls it once for an instance that is stopped before
	// it has joined the cluster.
	Start(ctx context.Context, m *v1alpha1.Machine) error
}

// Data is what a provider needs of the cluster.
type Data struct {
	// Client reads and writes objects of the cluster.
	Client client.Client
}

// Instance is the machine that a cloud runs for a Machine.
type Instance interface {
	Name() string
	// ID is the cloud's identifier.
	ID() string
	// ProviderID is the provider ID that the cloud-controller-manager gives the Node.
	ProviderID() string
	Addresses() []corev1.NodeAddress
	Status() Status
}

// Status is the state of an instance.
type Status string

// The states of an instance.
const (
	StatusCreating Status = "creating" // it is being made
	StatusRunning  Status = "running"
	StatusStopped  Status = "stopped"
	StatusDeleting Status = "deleting"
	StatusUnknown  Status = "unknown" // the cloud says something else
)

var (
	// ErrInstanceNotFound is returned if the cloud shows no instance of the Machine. It is the only error that says so.
	ErrInstanceNotFound = errors.New("instance not found")
	// ErrInstanceNotOwned is wrapped by the error of Get, Cleanup and MigrateUID if the instance of the Machine exists and no
	// longer says that it is the Machine's.
	ErrInstanceNotOwned = errors.New("instance not owned")
	// ErrRemovalUnknown is wrapped by the error of Cleanup if the cloud has got the request to remove the instance, and its answer was
	// lost. Then the instance is expected to be missing.
	ErrRemovalUnknown = errors.New("the answer was lost")
	// ErrOSNotSupported is returned by Validate if the cloud has no image of the operating system.
	ErrOSNotSupported = errors.New("operating system not supported")
	// ErrProviderNotFound is returned by [ForProvider] for a name that no provider has.
	ErrProviderNotFound = errors.New("provider not found")
)

// TerminalError is an error that does not go away by itself: a person has to change the Machine's spec.
type TerminalError struct {
	// Reason is one word, such as InvalidConfiguration.
	Reason string
	// Message names the mistake and its correction.
	Message string
	// Err is the cause. It may be nil.
	Err error
}

// The reasons of terminal errors.
const (
	ReasonInvalidConfiguration = "InvalidConfiguration"
	ReasonCreateFailed         = "CreateFailed"
)

// Error returns the message.
func (e *TerminalError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *TerminalError) Unwrap() error { return e.Err }

// Invalid returns a TerminalError about the configuration. The arguments are those of fmt.Errorf.
func Invalid(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &TerminalError{Reason: ReasonInvalidConfiguration, Message: err.Error(), Err: errors.Unwrap(err)}
}

var providers = map[string]func(*Resolver) Provider{}

// Register makes a provider known under a name. newProvider gets what reads configuration values. Register panics if the name
// is taken. It is called from init functions.
func Register(name string, newProvider func(*Resolver) Provider) {
	if _, taken := providers[name]; taken {
		panic("provider " + name + " is registered twice")
	}
	providers[name] = newProvider
}

// ForProvider returns a new value of the provider with that name. The caller keeps it, since providers keep connections. It
// returns an error that wraps [ErrProviderNotFound] for a name that no provider has.
func ForProvider(name string, r *Resolver) (Provider, error) {
	newProvider := providers[name]
	if newProvider == nil {
		return nil, fmt.Errorf("%w: cloudProvider %q must be one of %s", ErrProviderNotFound, name,
			strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
	}
	return newProvider(r), nil
}
