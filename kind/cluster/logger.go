package cluster

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"sigs.k8s.io/kind/pkg/log"
)

// logger prints kind's messages for its user, and drops the rest.
type logger struct {
	mu  sync.Mutex
	out io.Writer
}

// silence prints one more line, and then nothing: while kind is being stopped, it only reports steps that fail because of that.
func (l *logger) silence(last string) {
	l.print(last)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = nil
}

var _ log.Logger = (*logger)(nil)

func (l *logger) print(text string) {
	// kind warns that the network is not its own. That is intended.
	if strings.Contains(text, networkVariable) || strings.HasPrefix(text, "WARNING: Here be dragons") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return
	}
	_, _ = io.WriteString(l.out, strings.TrimRight(text, "\n")+"\n")
}

func (l *logger) printf(format string, args ...any) { l.print(fmt.Sprintf(format, args...)) }

func (l *logger) Warn(text string)                  { l.print(text) }
func (l *logger) Warnf(format string, args ...any)  { l.printf(format, args...) }
func (l *logger) Error(text string)                 { l.print(text) }
func (l *logger) Errorf(format string, args ...any) { l.printf(format, args...) }

func (l *logger) V(level log.Level) log.InfoLogger {
	if level > 0 {
		return log.NoopInfoLogger{}
	}
	return (*infoLogger)(l)
}

// infoLogger is the part of the logger for messages that are not warnings.
type infoLogger logger

func (l *infoLogger) Info(text string)                 { (*logger)(l).print(text) }
func (l *infoLogger) Infof(format string, args ...any) { (*logger)(l).printf(format, args...) }
func (l *infoLogger) Enabled() bool                    { return true }
