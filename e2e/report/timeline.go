package report

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

const (
	// timelineLines is how many lines the timeline of a failure has at most.
	timelineLines = 400
	// lineLength is how many bytes a line of it has at most.
	lineLength = 400
)

// The names of the report entries of failed specs: see e2e/framework/report.go.
const (
	logPrefix     = "log of "
	requestsEntry = "requests of the CCM"
	allCallsEntry = "requests to the cloud" // with those of other clients, from Hetzner's driver
	clusterEntry  = "cluster"
	stateEntry    = "the cloud's state"
)

// laneOf returns the lane that a report entry belongs to, "" if it belongs to none.
func laneOf(entry string) speclist.Lane {
	switch {
	case strings.HasPrefix(entry, logPrefix):
		return speclist.Log
	case entry == requestsEntry, entry == allCallsEntry:
		return speclist.Requests
	case entry == clusterEntry:
		return speclist.Events
	}
	return ""
}

// timeline returns the lines of a failed spec's report entries by time, and the number of lines that it left out.
func timeline(s types.SpecReport) (lines []speclist.Line, leftOut int) {
	logs, all := 0, false
	for _, e := range s.ReportEntries {
		all = all || e.Name == allCallsEntry
		if laneOf(e.Name) == speclist.Log {
			logs++
		}
	}
	c := clock{begin: s.StartTime, end: s.EndTime}
	for _, e := range s.ReportEntries {
		lane := laneOf(e.Name)
		if lane == "" || all && e.Name == requestsEntry {
			continue
		}
		text := Redact(e.StringRepresentation())
		if lane == speclist.Events {
			text = events(text)
		}
		prefix := ""
		if lane == speclist.Log && logs > 1 {
			prefix = "[" + strings.TrimPrefix(e.Name, logPrefix) + "] "
		}
		lines = append(lines, c.lines(lane, prefix, text)...)
	}
	// The cluster, and a CCM that specs share, also tell of the specs before. Events have times in whole seconds.
	lines = slices.DeleteFunc(lines, func(l speclist.Line) bool { return l.At < -2 })
	slices.SortStableFunc(lines, func(a, b speclist.Line) int { return cmp.Compare(a.At, b.At) })
	kept := latest(lines, timelineLines)
	return kept, len(lines) - len(kept)
}

// event matches the first line of an event in the report entry about the cluster. Nodes and Services come before the events there.
var event = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d (Normal|Warning) `)

func events(cluster string) string {
	first := event.FindStringIndex(cluster)
	if first == nil {
		return ""
	}
	return cluster[first[0]:]
}

// latest returns the last n lines. Each lane gets a fair share of them: the loudest does not drive the others out.
func latest(lines []speclist.Line, n int) []speclist.Line {
	if len(lines) <= n {
		return lines
	}
	there := map[speclist.Lane]int{}
	for _, l := range lines {
		there[l.Lane]++
	}
	lanes := []speclist.Lane{speclist.Log, speclist.Requests, speclist.Events}
	slices.SortStableFunc(lanes, func(a, b speclist.Lane) int { return cmp.Compare(there[a], there[b]) })
	room := map[speclist.Lane]int{}
	for i, lane := range lanes {
		room[lane] = min(there[lane], n/(len(lanes)-i))
		n -= room[lane]
	}
	var kept []speclist.Line
	for _, l := range slices.Backward(lines) {
		if room[l.Lane] > 0 {
			room[l.Lane]--
			kept = append(kept, l)
		}
	}
	slices.Reverse(kept)
	return kept
}

// clock finds the times of lines of logs. A line often lacks the date and the zone: clock chooses those nearest to the spec.
type clock struct{ begin, end time.Time }

// lines returns the lines of a text with their times. A line without a time has that of the line before it.
func (c clock) lines(lane speclist.Lane, prefix, text string) []speclist.Line {
	var lines []speclist.Line
	at, known := 0.0, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if t, ok := c.timeOf(line); ok {
			at = since(c.begin, t)
			if !known { // what came before it, too
				for i := range lines {
					lines[i].At = at
				}
			}
			known = true
		}
		lines = append(lines, speclist.Line{At: at, Lane: lane, Text: prefix + short(line, lineLength)})
	}
	return lines
}

// How lines say their time: in full, as structured logs do; in milliseconds or seconds since 1970; as klog does; by the time of day alone.
var (
	fullTime  = regexp.MustCompile(`^.{0,30}?(\d{4}[-/]\d\d[-/]\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(Z|[+-]\d\d:?\d\d)?`)
	unixTime  = regexp.MustCompile(`^.{0,30}?"(?:ts|time)":\s*"?(\d{10}(?:\d{3})?(?:\.\d{1,9})?)\b`)
	klogTime  = regexp.MustCompile(`^[IWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d{1,9})`)
	timeOfDay = regexp.MustCompile(`^(\d\d:\d\d:\d\d(?:\.\d{1,9})?)\s`)
)

// timeOf returns the time that a line carries.
func (c clock) timeOf(line string) (time.Time, bool) {
	if m := fullTime.FindStringSubmatch(line); m != nil {
		text := strings.ReplaceAll(m[1], "/", "-") + " " + strings.ReplaceAll(m[2], ",", ".")
		if m[3] != "" {
			t, err := time.Parse("2006-01-02 15:04:05Z0700", text+strings.ReplaceAll(m[3], ":", ""))
			return t, err == nil
		}
		return c.nearest(text, "")
	}
	if m := unixTime.FindStringSubmatch(line); m != nil {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if seconds > 1e11 { // milliseconds
			seconds /= 1000
		}
		return time.UnixMicro(int64(seconds * 1e6)), err == nil
	}
	if m := klogTime.FindStringSubmatch(line); m != nil {
		return c.nearest("", m[1]+"-"+m[2]+" "+m[3])
	}
	if m := timeOfDay.FindStringSubmatch(line); m != nil {
		return c.nearestDay(m[1])
	}
	return time.Time{}, false
}

// nearest returns the time of a text with or without a year in the zone that is nearest to the spec.
func (c clock) nearest(full, withoutYear string) (best time.Time, ok bool) {
	texts := []string{full}
	if full == "" {
		for _, year := range []int{c.begin.Year(), c.begin.Year() + 1, c.begin.Year() - 1} {
			texts = append(texts, strconv.Itoa(year)+"-"+withoutYear)
		}
	}
	for _, text := range texts {
		for _, zone := range []*time.Location{time.UTC, c.begin.Location()} {
			t, err := time.ParseInLocation("2006-01-02 15:04:05", text, zone)
			if err == nil && (!ok || c.distance(t) < c.distance(best)) {
				best, ok = t, true
			}
		}
	}
	return best, ok
}

// nearestDay returns the time of day on the day that is nearest to the spec.
func (c clock) nearestDay(text string) (best time.Time, ok bool) {
	for days := -1; days <= 1; days++ {
		t, found := c.nearest(c.begin.AddDate(0, 0, days).Format(time.DateOnly)+" "+text, "")
		if found && (!ok || c.distance(t) < c.distance(best)) {
			best, ok = t, true
		}
	}
	return best, ok
}

// distance returns how far a time is from the spec.
func (c clock) distance(t time.Time) time.Duration { return max(c.begin.Sub(t), t.Sub(c.end), 0) }
