package ccm

// What the external tests need of the package's insides.

// NewAutoClock returns a clock on which every wait of the provider is over at once.
func NewAutoClock() *autoClock { return newAutoClock() }

// WithoutJitter makes backoff predictable.
func WithoutJitter() Option { return withJitter(func() float64 { return 1 }) }

// The labels and annotations that tests look at.
const (
	AnnotationPrefix = annotationPrefix
	LabelServiceUID  = labelServiceUID
	LabelPorts       = labelPorts
)
