package cloud

import (
	"slices"
	"testing"
	"time"
)

// backedUp returns a running server with daily backups.
func backedUp(t *testing.T, o Options) (p Project, step func(time.Duration), id int64) {
	t.Helper()
	p, clk := serverCloud(t, o)
	id = runningServer(t, p, clk, smallServer("a")).ID
	enableBackups(t, p, id)
	clk.Step(time.Second)
	return p, clk.Step, id
}

func enableBackups(t *testing.T, p Project, server int64) {
	t.Helper()
	did(p.EnableServerBackup(server))(t)
}

func wantNoBackups(t *testing.T, p Project, when string) {
	t.Helper()
	if got := backupTimes(p); len(got) != 0 {
		t.Fatalf("%s, there are backups of %s", when, got)
	}
}

// backupTimes returns when the backups were made, oldest first.
func backupTimes(p Project) (times []time.Time) {
	for i := range p.View().Images.All() {
		if i.Type == ImageBackup {
			times = append(times, i.Created)
		}
	}
	return times
}

func TestABackupLiesInItsWindow(t *testing.T) {
	t.Parallel()
	hours := map[string][]int{"22-02": {22, 23, 0, 1}, "02-06": {2, 3, 4, 5}, "06-10": {6, 7, 8, 9}, "10-14": {10, 11, 12, 13},
		"14-18": {14, 15, 16, 17}, "18-22": {18, 19, 20, 21}}
	for id := range int64(1000) {
		b := newBackups(id)
		next := b.next(testNow)
		if wait := next.Sub(testNow); !slices.Contains(hours[b.Window], next.Hour()) || wait <= 0 || wait > 24*time.Hour {
			t.Errorf("server %d: a backup at %s, window %s", id, next, b.Window)
		}
		if again := b.next(next); again.Sub(next) != 24*time.Hour {
			t.Errorf("server %d: a backup at %s, and then at %s", id, next, again)
		}
	}
}

func TestADailyBackupWaitsForTheServersAction(t *testing.T) {
	t.Parallel()
	p, step, id := backedUp(t, Options{})
	due := server(t, p, id).Backups.next(p.cloud.Now())
	step(due.Sub(p.cloud.Now()) - time.Second)
	if _, _, _, err := p.WithOutcome(&ActionOutcome{Duration: 5 * time.Minute}).CreateServerImage(id,
		CreateServerImage{Type: ImageSnapshot}); err != nil {
		t.Fatal(err)
	}
	step(4 * time.Minute)
	wantNoBackups(t, p, "while an action locks the server")
	step(2 * time.Minute)
	if got := backupTimes(p); len(got) != 1 || got[0].Before(due) {
		t.Fatalf("after the action, there are backups of %s; want one after %s", got, due)
	}
	step(24 * time.Hour)
	if got := backupTimes(p); len(got) != 2 || !got[1].Equal(due.Add(24*time.Hour)) {
		t.Errorf("backups of %s; want the second one at its usual time %s", got, due.Add(24*time.Hour))
	}
}

func TestBackupsThatAreEnabledAgainAreMadeOnceADay(t *testing.T) {
	t.Parallel()
	p, step, id := backedUp(t, Options{})
	enableBackups(t, p, id)
	step(time.Second)
	did(p.DisableServerBackup(id))(t)
	step(time.Second)
	enableBackups(t, p, id)
	step(24*time.Hour + time.Second)
	if got := backupTimes(p); len(got) != 1 {
		t.Errorf("backups of %s after one day", got)
	}
}

func TestADailyBackupNeedsRoom(t *testing.T) {
	t.Parallel()
	p, step, id := backedUp(t, Options{Limits: Limits{KindImage: 1}})
	snapshot, _, _, err := p.CreateServerImage(id, CreateServerImage{Type: ImageSnapshot})
	check(t, err)
	step(24 * time.Hour)
	wantNoBackups(t, p, "in a project without room for another image")
	check(t, p.DeleteImage(snapshot.ID))
	step(24 * time.Hour)
	if got := backupTimes(p); len(got) != 1 {
		t.Errorf("backups of %s on the day after; want one", got)
	}
}

func TestADeletedServerHasNoMoreBackups(t *testing.T) {
	t.Parallel()
	p, step, id := backedUp(t, Options{})
	did(p.DeleteServer(id))(t)
	step(48 * time.Hour)
	wantNoBackups(t, p, "after the server was deleted")
	if n := len(p.cloud.queue); n != 0 {
		t.Errorf("%d jobs wait", n)
	}
}
