package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// typesAtOnce opens a view and types into fields, by their labels, as soon as they are drawn: before the cloud has answered what the
// fields show.
const typesAtOnce = `new Promise(done => {
	addEventListener('hashchange', () => {
		for (const [label, value] of Object.entries(%FIELDS%)) {
			const field = [...document.querySelectorAll('#main input')].find(e => e.labels[0]?.innerText.trim().startsWith(label));
			field.value = value;
			field.dispatchEvent(new Event('input', {bubbles: true}));
		}
		done(true);
	}, {once: true});
	location.hash = '#/clock';
})`

// TestWhatIsTypedStays is about a person who is faster than the cloud, and about a clock that changes while they type.
func TestWhatIsTypedStays(t *testing.T) {
	s := open(t, fakecloud.Options{})
	const value = "[...document.querySelectorAll('#main input')].find(e => e.labels[0]?.innerText.trim().startsWith(%LABEL%)).value"
	field := func(label string) string {
		return Eval[string](s.Page, strings.ReplaceAll(value, "%LABEL%", quote(label)))
	}
	typed := func(what, label, want string) {
		t.Helper()
		if got := field(label); got != want {
			t.Errorf("%s: the field %q has %q, want %q, which was typed", what, label, got, want)
		}
	}
	s.Sees("The cloud is empty")
	Eval[chromedp.Void](s.Page, strings.ReplaceAll(typesAtOnce, "%FIELDS%", `{'Actions take': '7s', 'Let pass': '2h'}`))
	s.Await("show the rate limit", strings.ReplaceAll(value, "%LABEL%", quote("Requests per hour"))+" === '0'") // the last answer
	Eval[chromedp.Void](s.Page, "fetch('profile').then(r => r.text())")                                         // so has the other one
	typed("the settings are read", "Actions take", "7s")

	s.Fill("Requests per hour", "55")
	s.Fill("Speed", "3")
	s.must(s.cloud.SetSpeed(t.Context(), 60)) // by another client
	s.Await("show the speed", "document.getElementById('time').innerText.includes('×60')")
	typed("another client sets the speed", "Speed", "3")

	// The person types on while the button's request is under way.
	Eval[chromedp.Void](s.Page, `{
		[...document.querySelectorAll('button')].find(b => b.innerText === 'Real time').click();
		const field = [...document.querySelectorAll('#main input')].find(e => e.labels[0]?.innerText.trim().startsWith('Speed'));
		field.value = '9';
		field.dispatchEvent(new Event('input', {bubbles: true}));
	}`)
	s.Sees("the clock runs at 1")
	s.Await("show real time", "!document.getElementById('time').innerText.includes('×60')")
	typed("a button sets the speed", "Speed", "9")
	typed("a button sets the speed", "Actions take", "7s")
	typed("a button sets the speed", "Let pass", "2h")
	typed("a button sets the speed", "Requests per hour", "55")

	// What was typed and set is the cloud's, and follows it again.
	s.Click("Set the speed")
	s.Sees("the clock runs at 9")
	s.Click("A minute each second")
	s.Await("show the speed that the button has set", strings.ReplaceAll(value, "%LABEL%", quote("Speed"))+" === '60'")
	s.Click("Real time")
	s.Sees("the clock runs at 1")

	// So does a field that was not touched.
	s.Click("Map")
	s.Click("Clock and state")
	s.Await("show the speed that is", strings.ReplaceAll(value, "%LABEL%", quote("Speed"))+" === '1'")
	s.Click("A minute each second")
	s.Await("show the speed that the button has set", strings.ReplaceAll(value, "%LABEL%", quote("Speed"))+" === '60'")
}
