package dns

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of a TTL in seconds (API document, create_zone).
const (
	MinTTL = 60
	MaxTTL = 1<<31 - 1
)

// FormatFile returns a zone in the form of RFC 1035. It changes the order of sets.
func FormatFile(zone string, ttl int, sets []RRSet) string {
	var out strings.Builder
	fmt.Fprintf(&out, "$ORIGIN\t%s.\n$TTL\t%d\n\n", zone, ttl)
	soaFirst(sets)
	for _, s := range sets {
		own := ""
		if s.TTL != nil {
			own = strconv.Itoa(*s.TTL) + "\t"
		}
		for _, r := range s.Records {
			comment := ""
			if r.Comment != "" {
				comment = "\t; " + strings.NewReplacer("\n", " ", "\r", " ").Replace(r.Comment)
			}
			fmt.Fprintf(&out, "%s\t%sIN\t%s\t%s%s\n", s.Name, own, s.Type, r.Value, comment)
		}
	}
	return out.String()
}

// soaFirst moves the SOA record to the front.
func soaFirst(sets []RRSet) {
	slices.SortStableFunc(sets, func(a, b RRSet) int {
		switch {
		case a.Type == "SOA":
			return -1
		case b.Type == "SOA":
			return 1
		}
		return 0
	})
}

// ParseFile reads a zone file (API document, Zone file import). ttl is 0 if the file has no $TTL.
func ParseFile(zone, text string) (ttl int, sets []RRSet, err error) {
	lines, err := zonefileLines(text)
	if err != nil {
		return 0, nil, err
	}
	owner := ""
	known := map[[2]string]int{} // the place in sets, by name and type
	for _, l := range lines {
		switch l.fields[0] {
		case "$ORIGIN":
			if len(l.fields) != 2 || l.fields[1] != zone+"." {
				return 0, nil, fmt.Errorf("line %d: $ORIGIN must be %s", l.number, zone+".")
			}
			continue
		case "$TTL":
			if ttl, err = parseTTL(l.fields[len(l.fields)-1]); err != nil || len(l.fields) != 2 {
				return 0, nil, fmt.Errorf("line %d: $TTL must be between %d and %d", l.number, MinTTL, MaxTTL)
			}
			continue
		}
		s, err := l.record(zone, owner)
		if err != nil {
			return 0, nil, fmt.Errorf("line %d: %w", l.number, err)
		}
		owner = s.Name
		key := [2]string{s.Name, s.Type}
		i, ok := known[key]
		if !ok {
			known[key] = len(sets)
			sets = append(sets, s)
			continue
		}
		sets[i].Records = append(sets[i].Records, s.Records...)
	}
	return ttl, sets, nil
}

func parseTTL(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < MinTTL || n > MaxTTL {
		return 0, fmt.Errorf("the TTL %q must be between %d and %d", text, MinTTL, MaxTTL)
	}
	return n, nil
}

// zonefileLine is an entry of a zone file. In parentheses, it may continue on several lines.
type zonefileLine struct {
	number   int
	indented bool // it has the name of the entry before
	fields   []string
}

// zonefileLines splits a file into its entries, without comments.
func zonefileLines(text string) (lines []zonefileLine, err error) {
	open := false
	for i, raw := range strings.Split(text, "\n") {
		fields, depth, err := zonefileFields(strings.TrimSuffix(raw, "\r"))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if open {
			last := &lines[len(lines)-1]
			last.fields = append(last.fields, fields...)
		} else if len(fields) > 0 || depth > 0 {
			lines = append(lines, zonefileLine{i + 1, raw[0] == ' ' || raw[0] == '\t', fields})
		}
		switch {
		case depth > 0 && !open:
			open = true
		case depth < 0 && open:
			open = false
		case depth != 0:
			return nil, fmt.Errorf("line %d: the parentheses do not match", i+1)
		}
	}
	if open {
		return nil, fmt.Errorf("line %d: the parenthesis has no end", lines[len(lines)-1].number)
	}
	lines = slices.DeleteFunc(lines, func(l zonefileLine) bool { return len(l.fields) == 0 })
	return lines, nil
}

// zonefileFields splits one line. depth is the number of parentheses that it opens, less those that it closes.
func zonefileFields(line string) (fields []string, depth int, err error) {
	var bare strings.Builder
	quoted, escaped := false, false
scan:
	for _, c := range line {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ';':
			break scan
		case c == '(' || c == ')':
			if depth++; c == ')' {
				depth -= 2
			}
			c = ' '
		}
		bare.WriteRune(c)
	}
	if strings.TrimSpace(bare.String()) == "" {
		return nil, depth, nil
	}
	fields, problem := SplitRecord(bare.String())
	if problem != "" {
		return nil, 0, fmt.Errorf("it %s", problem)
	}
	return fields, depth, nil
}

// record returns the entry as a set of one record. owner is the name of the entry before.
func (l zonefileLine) record(zone, owner string) (s RRSet, err error) {
	fields := l.fields
	s.Name = owner
	if !l.indented {
		s.Name, fields = relativeName(fields[0], zone), fields[1:]
	}
	if s.Name == "" {
		return s, fmt.Errorf("the record has no name in the zone %s", zone)
	}
	// Class and TTL may come in both orders, and both may be missing.
	for len(fields) > 0 && !isType(strings.ToUpper(fields[0])) {
		switch f := strings.ToUpper(fields[0]); {
		case f == "IN":
		case f[0] >= '0' && f[0] <= '9':
			ttl, err := parseTTL(f)
			if err != nil {
				return s, err
			}
			s.TTL = &ttl
		case f == "CH" || f == "HS" || f == "CS":
			return s, fmt.Errorf("the class %s must be IN", f)
		default:
			return s, fmt.Errorf("the type %s must be one of %s", f, strings.Join(Types, ", "))
		}
		fields = fields[1:]
	}
	if len(fields) < 2 {
		return s, fmt.Errorf("the record has no type or no value")
	}
	s.Type = strings.ToUpper(fields[0])
	s.Records = []Record{{Value: strings.Join(fields[1:], " ")}}
	return s, nil
}

// relativeName returns a name without its zone, or "" if it is not in the zone.
func relativeName(name, zone string) string {
	name = strings.ToLower(name)
	absolute, ok := strings.CutSuffix(name, ".")
	switch {
	case !ok:
		return name
	case absolute == zone:
		return "@"
	}
	relative, ok := strings.CutSuffix(absolute, "."+zone)
	if !ok {
		return ""
	}
	return relative
}
