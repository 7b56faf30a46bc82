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
	name, ours := strings.CutPrefix(key, labelPrefix)
	return ours && slices.ContainsFunc(earlierLabels, func(e string) bool { return name == e || strings.HasPrefix(name, e+"-") })
}

// readEarlier reads the labels of earlier versions into the record.
func (r *Record) readEarlier(lb *hcloud.LoadBalancer) {
	words := func(name string) (words []string) {
		for key, value := range lb.Labels {
			if key == labelPrefix+name || strings.HasPrefix(key, labelPrefix+name+"-") {
				words = append(words, strings.Split(value, ".")...)
			}
		}
		slices.Sort(words)
		return words
	}
	has := func(name string) bool { return lb.Labels[labelPrefix+name] != "" }
	r.Ports = numbers[int](words("ports"))
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
	r.Shared, r.Lent, r.Found = has("shared"), has("adopted"), has("found")
	r.ForeignServers = numbers[int64](words("foreign-servers"))
	if has("settings-of") {
		r.Common = commonSettings{By: lb.Labels[labelPrefix+"settings-of"], Values: map[string]string{}}
		var text strings.Builder
		for _, word := range words("owner-settings") { // each begins with its number
			text.WriteString(word[min(3, len(word)):])
		}
		decoded, _ := recordEncoding.DecodeString(text.String())
		for line := range strings.SplitSeq(string(decoded), "\n") {
			if name, value, is := strings.Cut(line, "="); is {
				r.Common.Values[name] = value
			}
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
