package auth

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// api answers reviews.
type api struct {
	mu    sync.Mutex
	asked int
	away  bool
	users map[string]string // token -> user
}

// Review implements Reviewer.
func (a *api) Review(_ context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.away {
		return nil, errors.New("away")
	}
	out := &authenticationv1.TokenReview{}
	if user := a.users[r.Spec.Token]; user != "" {
		out.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences, User: authenticationv1.UserInfo{Username: user}}
	}
	if r.Spec.Token == "for everything" {
		out.Status.Audiences = []string{"https://kubernetes.default.svc"}
	}
	return out, nil
}

// jwt returns a token that expires.
func jwt(expires time.Time) string {
	return "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix())) + ".c2ln"
}

// harness is a relay's tokens with a clock.
type harness struct {
	*Tokens
	api     *api
	clock   time.Time
	refused map[string]int
}

func newHarness() *harness {
	w := &harness{clock: time.Unix(1_000_000, 0), refused: map[string]int{}}
	const agent = "system:serviceaccount:kube-system:weave-npc"
	w.api = &api{users: map[string]string{"good": agent, "for everything": agent, "other": "system:serviceaccount:kube-system:other",
		jwt(w.clock.Add(10 * time.Minute)): agent, "admin": "admin"}}
	w.Tokens = New(w.api, Config{Audience: "relay", Accounts: []string{"kube-system:weave-npc"}}, func(reason string) { w.refused[reason]++ })
	w.now = func() time.Time { return w.clock }
	return w
}

// ask returns the status of a request.
func (w *harness) ask(header string) int {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	answer := httptest.NewRecorder()
	w.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })).ServeHTTP(answer, r)
	return answer.Code
}

func TestOnlyAgentsAreLetIn(t *testing.T) {
	for _, c := range []struct {
		name, header string
		status       int
		reason       string
	}{
		{"an_agent", "Bearer good", http.StatusTeapot, ""},
		{"no_token", "", http.StatusUnauthorized, ReasonAbsent},
		{"an_empty_token", "Bearer ", http.StatusUnauthorized, ReasonAbsent},
		{"another_scheme", "Basic good", http.StatusUnauthorized, ReasonAbsent},
		{"a_forged_token", "Bearer bad", http.StatusUnauthorized, ReasonInvalid},
		{"another_audience", "Bearer for everything", http.StatusUnauthorized, ReasonInvalid},
		{"another_account", "Bearer other", http.StatusForbidden, ReasonAccount},
		{"an_admin", "Bearer admin", http.StatusForbidden, ReasonAccount},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness()
			if got := w.ask(c.header); got != c.status {
				t.Errorf("status %d", got)
			}
			if c.reason != "" && w.refused[c.reason] != 1 || c.reason == "" && len(w.refused) > 0 {
				t.Errorf("refused: %v", w.refused)
			}
		})
	}
}

// TestAnAnswerIsKeptForAMinute, and a refusal for ten seconds; after that the API server may say otherwise.
func TestAnAnswerIsKeptForAMinute(t *testing.T) {
	w := newHarness()
	step := func(after time.Duration, header string, status, asked int) {
		t.Helper()
		w.clock = w.clock.Add(after)
		if got := w.ask(header); got != status || w.api.asked != asked {
			t.Errorf("%s: status %d, asked %d times", header, got, w.api.asked)
		}
	}
	step(0, "Bearer good", http.StatusTeapot, 1)
	step(59*time.Second, "Bearer good", http.StatusTeapot, 1)
	step(time.Second, "Bearer good", http.StatusTeapot, 2)
	delete(w.api.users, "good")
	step(time.Minute, "Bearer good", http.StatusUnauthorized, 3)
	step(9*time.Second, "Bearer good", http.StatusUnauthorized, 3)
	w.api.users["good"] = "system:serviceaccount:kube-system:weave-npc"
	step(time.Second, "Bearer good", http.StatusTeapot, 4)
}

// TestWhileTheAPIServerIsAway tokens that it has accepted within the hour are taken, until they expire.
func TestWhileTheAPIServerIsAway(t *testing.T) {
	w := newHarness()
	expiring := "Bearer " + jwt(w.clock.Add(10*time.Minute))
	for _, header := range []string{"Bearer good", expiring} {
		if got := w.ask(header); got != http.StatusTeapot {
			t.Fatalf("%s: status %d", header, got)
		}
	}
	w.api.away = true
	step := func(after time.Duration, header string, status int) {
		t.Helper()
		w.clock = w.clock.Add(after)
		if got := w.ask(header); got != status {
			t.Errorf("%s: status %d", header, got)
		}
	}
	step(0, "Bearer other", http.StatusServiceUnavailable)
	step(9*time.Minute, "Bearer good", http.StatusTeapot)
	step(0, expiring, http.StatusTeapot)
	step(time.Minute, expiring, http.StatusUnauthorized)
	step(45*time.Minute, "Bearer good", http.StatusTeapot)
	step(5*time.Minute, "Bearer good", http.StatusServiceUnavailable)
	w.api.away = false
	step(0, "Bearer good", http.StatusTeapot)
}

// TestAStreamEndsWithItsToken by its context.
func TestAStreamEndsWithItsToken(t *testing.T) {
	w := newHarness()
	expires := time.Now().Add(5 * time.Second) // enough for a busy machine to begin
	token := jwt(expires)
	w.now = time.Now
	w.api.users[token] = "system:serviceaccount:kube-system:weave-npc"
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	ended := false
	w.Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			ended = true
		case <-time.After(time.Minute):
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
	if !ended || time.Now().Before(time.Unix(expires.Unix(), 0)) {
		t.Errorf("ended: %t", ended)
	}
}

// TestAFloodOfTokens leaves what is remembered bounded, and agents in it.
func TestAFloodOfTokens(t *testing.T) {
	w := newHarness()
	w.ask("Bearer good")
	for i := range most + 10 {
		w.ask(fmt.Sprintf("Bearer forged-%d", i))
	}
	asked := w.api.asked
	if got := w.ask("Bearer good"); got != http.StatusTeapot || w.api.asked != asked || len(w.known) > most {
		t.Errorf("status %d, asked %d times more, %d tokens", got, w.api.asked-asked, len(w.known))
	}
}
