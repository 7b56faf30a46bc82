package framework

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// report adds explanations of a failure to the spec's report: the CCM's log, the cloud's requests, and the
// cluster's events, nodes and Services.
func (e *Env) report(ctx context.Context) {
	e.recordRequests()
	if !CurrentSpecReport().Failed() {
		return
	}
	e.setup.report(ctx)
	AddReportEntry("requests of the CCM", ReportEntryVisibilityFailureOrVerbose, e.CCM.requestsText())
	AddReportEntry("cluster", ReportEntryVisibilityFailureOrVerbose, e.clusterText(ctx))
}

func (e *Env) clusterText(ctx context.Context) string {
	var b strings.Builder
	show := func(title string, v any, err error) {
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", title, err)
			return
		}
		text, err := yaml.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "# %s\n%s\n", title, text)
	}
	nodes, err := e.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	var brief []map[string]any
	if err == nil {
		for _, n := range nodes.Items {
			brief = append(brief, map[string]any{
				"name": n.Name, "providerID": n.Spec.ProviderID, "taints": n.Spec.Taints, "podCIDR": n.Spec.PodCIDR,
				"addresses": n.Status.Addresses, "ready": IsReady(&n),
			})
		}
	}
	show("nodes", brief, err)
	services, err := e.Kube.CoreV1().Services(e.Services.Namespace).List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range services.Items {
			services.Items[i].ManagedFields = nil
		}
		show("services", services.Items, nil)
	} else {
		show("services", nil, err)
	}
	var events []corev1.Event
	for _, namespace := range []string{e.Services.Namespace, metav1.NamespaceDefault} { // the latter has those of nodes
		list, err := e.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			show("events", nil, err)
			return b.String()
		}
		events = append(events, list.Items...)
	}
	return b.String() + eventsText(events, CurrentSpecReport().StartTime)
}

// eventsText returns the last events since a time, a line each.
func eventsText(events []corev1.Event, since time.Time) string {
	at := func(e corev1.Event) time.Time { return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time) }
	since = since.Truncate(time.Second) // the precision of LastTimestamp
	events = slices.DeleteFunc(events, func(e corev1.Event) bool { return at(e).Before(since) })
	slices.SortFunc(events, func(a, b corev1.Event) int { return at(a).Compare(at(b)) })
	var b strings.Builder
	for _, e := range events[max(0, len(events)-60):] {
		fmt.Fprintf(&b, "%s %s %s/%s %s: %s\n", at(e).Format("15:04:05"), e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name,
			e.Reason, e.Message)
	}
	return b.String()
}

func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return LastLines(withoutNoise(string(text)), lines)
}

func withoutNoise(log string) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(log, "\n"), isNoise), "")
}

// isNoise reports whether a line of a log is about the flags and feature gates of a Kubernetes program.
func isNoise(line string) bool {
	return strings.Contains(line, "] FLAG: --") || strings.Contains(line, `"Feature gate default state"`)
}

// LastLines returns the last n lines of a text.
func LastLines(text string, n int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-n-1):], "")
}
