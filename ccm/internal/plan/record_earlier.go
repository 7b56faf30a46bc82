package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// earlierLabels are those of versions that had a label, or several (key, key-2, …), for each part of the record. The next write
// replaces them.
var earlierLabels = []string{"ports", "guestports", "last-guest", "shared", "settings-of", "owner-settings", "selectors", "labels",
	"adopted", "foreign-servers", "found"}

func isEarlier(key string) bool {
	return slices.ContainsFunc(earlierLabels, func(name string) bool { return isPartOf(key, name) })
}

func isPartOf(key, name string) bool {
	return key == labelPrefix+name || strings.HasPrefix(key, labelPrefix+name+"-")
}

// readEarlier reads the labels of earlier versions into the record.
func (r *Record) readEarlier(lb *hcloud.LoadBalancer) {
	words := func(name string) (words []string) {
		for key, value := range lb.Labels {
			if isPartOf(key, name) {
				words = append(words, strings.Split(value, ".")...)
			}
		}
		slices.Sort(words)
		return words
	}
	has := func(name string) bool { return len(words(name)) > 0 }
	r.Shared, r.Lent, r.Found = has("shared"), has("adopted"), has("found")
	r.Ports, r.ForeignServers = numbers[int](words("ports")), numbers[int64](words("foreign-servers"))
	for key := range lb.Labels {
		if uid, is := strings.CutPrefix(key, labelPrefix+"last-guest-"); is {
			if r.Guests == nil {
				r.Guests = map[string][]int{}
			}
			r.Guests[uid] = numbers[int](words("guestports-" + uid))
		}
		if slices.Contains(words("labels"), hashOf(key)) && !isReserved(key) {
			r.UserLabels = append(r.UserLabels, key)
		}
	}
	slices.Sort(r.UserLabels)
	for _, t := range selectorsOf(lb) {
		if s := t.LabelSelector.Selector; slices.Contains(words("selectors"), hashOf(s)) {
			r.Selectors = append(r.Selectors, s)
		}
	}
	if r.Common.By = lb.Labels[labelPrefix+"settings-of"]; r.Common.By == "" {
		return
	}
	parts := words("owner-settings")
	for i, word := range parts {
		parts[i] = word[min(3, len(word)):] // it begins with its number
	}
	decoded, _ := recordEncoding.DecodeString(strings.Join(parts, ""))
	r.Common.Values = map[string]string{}
	for line := range strings.SplitSeq(string(decoded), "\n") {
		if name, value, is := strings.Cut(line, "="); is {
			r.Common.Values[name] = value
		}
	}
}

func numbers[N int | int64](words []string) (all []N) {
	for _, word := range words {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			all = append(all, N(n))
		}
	}
	slices.Sort(all)
	return all
}
