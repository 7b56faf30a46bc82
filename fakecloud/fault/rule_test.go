package fault

import (
	"encoding/json"
	"testing"
	"time"
)

func TestADurationMayHaveDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"250ms": 250 * time.Millisecond, "0": 0, "-1h": -time.Hour, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "30d": 720 * time.Hour,
		"0d1m": time.Minute, "65535d": 65535 * 24 * time.Hour,
	} {
		var d, fromJSON Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v, %v, want %v", text, time.Duration(d), err, want)
		}
		again, err := json.Marshal(d)
		if err != nil || json.Unmarshal(again, &fromJSON) != nil || fromJSON != d || json.Unmarshal([]byte(`"`+text+`"`), &fromJSON) != nil || fromJSON != d {
			t.Errorf("%s: as JSON %s, %v", text, again, err)
		}
	}
	for _, text := range []string{"", "d", "soon", "1", "1d2", "1d1d", "1h1d", "-1d", "1.5d", "1d-2h", "65536d", "65535d2000000h", "1 d"} {
		d := Duration(7)
		if err := d.UnmarshalText([]byte(text)); err == nil || d != 7 {
			t.Errorf("%q: %v, want an error", text, time.Duration(d))
		}
	}
}
