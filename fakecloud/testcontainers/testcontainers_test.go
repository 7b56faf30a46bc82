package testcontainers_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	tc "github.com/testcontainers/testcontainers-go"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/testcontainers"
)

// TestACloudInAContainer needs an image that Docker has: FAKECLOUD_TEST_IMAGE=fakecloud:dev after make image.
func TestACloudInAContainer(t *testing.T) {
	image := os.Getenv("FAKECLOUD_TEST_IMAGE")
	if image == "" {
		t.Skip("FAKECLOUD_TEST_IMAGE is not set: make image, and set it to fakecloud:dev")
	}
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true") // its image would be pulled
	cloud, err := testcontainers.Run(t.Context(), image, tc.WithEnv(map[string]string{"FAKECLOUD_RATE_LIMIT": "77"}))
	tc.CleanupContainer(t, cloud)
	if err != nil {
		t.Fatal(err)
	}
	for url, say := range map[string]string{cloud.APIEndpoint + "/locations": "fsn1", cloud.ControlURL + "/rate_limit": `"limit": 77`} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+cloud.Token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(body), say) {
			t.Errorf("%s: %s, %v; want %s", url, body, err, say)
		}
	}
}
