package remote_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// A test in one process steers a cloud in another one, such as in a container. Here, it is the same process.
func Example() {
	ctx := context.Background()
	container := fakecloud.New(fakecloud.Options{})
	defer container.Close()
	control := httptest.NewServer(container.ControlHandler()) // of the program: http://127.0.0.1:4243
	defer control.Close()

	cloud := remote.New(control.URL)
	before, err := cloud.Now(ctx)
	if err != nil {
		panic(err)
	}
	if err := cloud.Step(ctx, time.Hour); err != nil {
		panic(err)
	}
	after, err := cloud.Now(ctx)
	fmt.Println(after.Sub(before) >= time.Hour, err)
	// Output: true <nil>
}
