package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestAServerShowsItsImageAsItIsNow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	id := func(a answer, of string) int64 {
		var made map[string]json.RawMessage
		var object struct{ ID int64 }
		if err := errors.Join(json.Unmarshal([]byte(a.body), &made), json.Unmarshal(made[of], &object)); err != nil || object.ID == 0 {
			t.Fatal(err, a.body)
		}
		return object.ID
	}
	const server = `{"name": "%s", "server_type": "cx23", "image": "%s", "location": "fsn1"}`
	first := id(f.do(t, "one", http.MethodPost, "/v1/servers", fmt.Sprintf(server, "first", "debian-13")), "server")
	image := id(f.do(t, "one", http.MethodPost, fmt.Sprintf("/v1/servers/%d/actions/create_image", first), `{"type": "snapshot"}`), "image")
	path := fmt.Sprintf("/v1/servers/%d",
		id(f.do(t, "one", http.MethodPost, "/v1/servers", fmt.Sprintf(server, "second", strconv.FormatInt(image, 10))), "server"))
	cached := func() (n int) {
		f.offers.Load().json.Range(func(any, any) bool { n++; return true })
		return n
	}
	before := cached()
	for i := range 20 {
		description := fmt.Sprintf("version %d", i)
		f.do(t, "one", http.MethodPut, fmt.Sprintf("/v1/images/%d", image), fmt.Sprintf(`{"description": %q}`, description))
		if got := f.do(t, "one", http.MethodGet, path, "").body; !strings.Contains(got, fmt.Sprintf(`"description": %q`, description)) {
			t.Fatalf("want the image's %s: %s", description, got)
		}
	}
	if now := cached(); now != before {
		t.Errorf("%d versions of the image stay in memory", now-before)
	}
	f.do(t, "one", http.MethodDelete, fmt.Sprintf("/v1/images/%d", image), "")
	if got := f.do(t, "one", http.MethodGet, path, "").body; !strings.Contains(got, `"image": null`) {
		t.Errorf("after the deletion of the image, want null: %s", got)
	}
}
