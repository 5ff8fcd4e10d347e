package waiting

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = 60 * time.Second

// sender is a body whose bytes the test sends; a past deadline ends it.
type sender struct {
	bytes chan []byte
	reads chan struct{}
	over  chan struct{}
	once  sync.Once
}

func newSender() *sender {
	return &sender{
		bytes: make(chan []byte), reads: make(chan struct{}, 10_000), over: make(chan struct{}),
	}
}

// awaited returns after a number of further reads, when the room has processed the bytes before.
func (s *sender) awaited(t *testing.T, reads int) {
	t.Helper()
	for range reads {
		select {
		case <-s.reads:
		case <-time.After(patience):
			t.Fatal("no reader")
		}
	}
}

type late struct{ error }

func (late) Timeout() bool   { return true }
func (late) Temporary() bool { return true }

func (s *sender) Read(into []byte) (int, error) {
	select {
	case s.reads <- struct{}{}:
	default: // of some they are not counted
	}
	select {
	case more, open := <-s.bytes:
		if !open {
			return 0, io.EOF
		}
		return copy(into, more), nil
	case <-s.over:
		return 0, late{errors.New("too late")}
	}
}

func (s *sender) Close() error { return nil }

// deadlines lets the room set read deadlines of the sender.
type deadlines struct {
	http.ResponseWriter
	sender *sender
}

func (d deadlines) SetReadDeadline(until time.Time) error {
	if !until.IsZero() && time.Until(until) <= 0 {
		d.sender.once.Do(func() { close(d.sender.over) })
	}
	return nil
}

type outcome struct {
	content []byte
	err     error
}

// begin makes the room read a sender's body.
func begin(r *Room, address string, s *sender, most int64) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		request := httptest.NewRequest(http.MethodPost, "/", s)
		content, err := r.Read(deadlines{httptest.NewRecorder(), s}, request, address, most)
		ended <- outcome{content, err}
	}()
	return ended
}

func (s *sender) send(t *testing.T, content string) {
	t.Helper()
	select {
	case s.bytes <- []byte(content):
	case <-time.After(patience):
		t.Fatal("no reader")
	}
}

func end(t *testing.T, ended <-chan outcome) outcome {
	t.Helper()
	select {
	case one := <-ended:
		return one
	case <-time.After(patience):
		t.Fatal("still waiting")
		return outcome{}
	}
}

func waits(t *testing.T, ended <-chan outcome) {
	t.Helper()
	select {
	case one := <-ended:
		t.Errorf("ended: %+v", one)
	default:
	}
}

func room(bodies int, bytes int64) *Room {
	return New(Limits{Bodies: bodies, Bytes: bytes, Within: time.Hour, Rate: 1, Grace: time.Hour})
}

func TestAddressThatFillsTheRoomLosesOnlyItsOwnBodies(t *testing.T) {
	r := room(4, 1<<30)
	honest := newSender()
	kept := begin(r, "10.0.0.1", honest, 1000)
	honest.send(t, "{")
	var flood []<-chan outcome
	for range 50 {
		one := newSender()
		flood = append(flood, begin(r, "10.0.0.2", one, 1000))
		one.send(t, "{")
	}
	cut := 0
	for cut < 47 { // three of them fit beside it
		for i, each := range flood {
			if each == nil {
				continue
			}
			select {
			case one := <-each:
				if !errors.Is(one.err, ErrCut) {
					t.Fatal(one)
				}
				flood[i] = nil
				cut++
			default:
			}
		}
	}
	waits(t, kept)
	honest.send(t, "}")
	close(honest.bytes)
	if one := end(t, kept); one.err != nil || string(one.content) != "{}" {
		t.Errorf("%+v", one)
	}
}

func TestBodyOfAnAddressWithTheOldestProgressIsCut(t *testing.T) {
	r := room(2, 1<<30)
	moving, still, third := newSender(), newSender(), newSender()
	first := begin(r, "", moving, 1000)
	moving.send(t, "{")
	second := begin(r, "", still, 1000)
	still.send(t, "{")
	still.awaited(t, 2)
	moving.send(t, " ") // older, and yet it is this one that comes on
	moving.awaited(t, 3)
	begin(r, "", third, 1000)
	if one := end(t, second); !errors.Is(one.err, ErrCut) {
		t.Errorf("%+v", one)
	}
	waits(t, first)
}

func TestAmongAddressesTheOldestProgressIsCutAndNeverTheNewest(t *testing.T) {
	const places = 20
	r := room(places, 1<<30)
	var waiting []<-chan outcome
	for i := range 3 * places {
		one := newSender()
		waiting = append(waiting, begin(r, strings.Repeat("x", i), one, 1000))
		one.awaited(t, 1)
		if i >= places {
			if cut := end(t, waiting[i-places]); !errors.Is(cut.err, ErrCut) {
				t.Fatalf("%d: %+v", i, cut)
			}
		}
	}
	for _, each := range waiting[2*places:] {
		waits(t, each)
	}
}

func TestLargestShareOfBytesIsCut(t *testing.T) {
	r := room(1000, 256*1024)
	small := newSender()
	kept := begin(r, "10.0.0.1", small, 1<<20)
	small.send(t, "{")
	large := newSender()
	cut := begin(r, "10.0.0.2", large, 1<<30)
	piece := strings.Repeat("x", 1024)
	var one outcome
	for ended := false; !ended; {
		select {
		case large.bytes <- []byte(piece):
		case one = <-cut:
			ended = true
		case <-time.After(patience):
			t.Fatal("it takes everything")
		}
	}
	if !errors.Is(one.err, ErrCut) {
		t.Error(one.err)
	}
	waits(t, kept)
}

func TestBytesAndPlacesAreReleased(t *testing.T) {
	r := room(3, 1<<20)
	for range 100 {
		one := newSender()
		ended := begin(r, "10.0.0.1", one, 1<<20)
		one.send(t, strings.Repeat("x", 1024))
		close(one.bytes)
		if got := end(t, ended); got.err != nil || len(got.content) != 1024 {
			t.Fatalf("%v", got.err)
		}
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.bodies != 0 || r.bytes != 0 || len(r.shares) != 0 {
		t.Errorf("%d bodies, %d bytes, %d shares", r.bodies, r.bytes, len(r.shares))
	}
}

func TestMinimumRate(t *testing.T) {
	for name, one := range map[string]struct {
		limits Limits
		want   error
	}{
		"slower than the rate": {Limits{Within: time.Hour, Rate: 1e12}, ErrSlow},
		"longer than its time": {Limits{Within: 0, Rate: 1, Grace: time.Hour}, ErrSlow},
		"within the grace":     {Limits{Within: time.Hour, Rate: 1e12, Grace: time.Hour}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			one.limits.Bodies, one.limits.Bytes = 10, 1<<20
			content := newSender()
			if one.want == nil {
				go func() {
					for range 5 {
						content.bytes <- []byte("x")
					}
					close(content.bytes)
				}()
			}
			got := end(t, begin(New(one.limits), "", content, 1000))
			if !errors.Is(got.err, one.want) {
				t.Errorf("%v", got.err)
			}
		})
	}
}

func TestBodyIsAcceptedUpToTheMaximumSize(t *testing.T) {
	for size, fits := range map[int]bool{70_000: true, 70_001: false} {
		request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, size)))
		content, err := room(1, 1<<20).Read(httptest.NewRecorder(), request, "", 70_000)
		var large *http.MaxBytesError
		if fits && (err != nil || len(content) != size) || !fits && !errors.As(err, &large) {
			t.Errorf("%d: %v", size, err)
		}
	}
}
