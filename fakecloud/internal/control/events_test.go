package control

import (
	"net/http/httptest"
	"testing"
)

func TestAStreamThatWaitsKeepsNoLargeBuffer(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := newStream(w, httptest.NewRequest("GET", "/events", nil))
	s.add("existing", 0, make([]byte, maxWrite-10))
	s.flush()
	if w.Body.Len() < maxWrite-10 || cap(s.lines) > idleLines {
		t.Errorf("%d bytes were written, and there is room for %d", w.Body.Len(), cap(s.lines))
	}
}
