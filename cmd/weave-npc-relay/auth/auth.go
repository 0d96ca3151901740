// Package auth authenticates agents by their tokens.
//
//	config := auth.Config{Audience: "weave-npc-relay", Accounts: []string{"kube-system:weave-npc"}}
//	tokens := auth.New(reviewer, config, observer)
//	handler = tokens.Protect(handler)
//
// The API server is asked for each token, by a TokenReview for the relay's own audience, so that a token that was made
// for something else, or that a relay was given, is worth nothing elsewhere. What it answers is kept for a minute.
// While it cannot be asked, tokens that it has accepted within the hour are taken, until they expire.
package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// The reasons to refuse a token, as metrics name them.
const (
	ReasonAbsent      = "absent"      // the request has none
	ReasonInvalid     = "invalid"     // the API server refuses it: forged, expired, for another audience or pod gone
	ReasonAccount     = "account"     // it is another account's
	ReasonUnavailable = "unavailable" // the API server cannot be asked, and has not accepted the token lately
)

const (
	// keep is how long an answer is taken for true.
	keep = time.Minute
	// keepRefusal is how long a refusal is: a token may become valid, for an account that was made after its first use.
	keepRefusal = 10 * time.Second
	// outage is how long a token that was accepted is taken while the API server cannot be asked.
	outage = time.Hour
	// most is how many tokens are cached. Refusals are evicted first, if an unknown client sends more.
	most = 20_000
	// asking is how many reviews there are at the same time.
	asking = 10
	// longest is the length of the longest token that is looked at.
	longest = 16 << 10
)

// Reviewer asks an API server for a token.
type Reviewer interface {
	Review(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
}

// Config is whose tokens are accepted.
type Config struct {
	// Audience is the one that tokens are made for.
	Audience string
	// Accounts are the service accounts of agents, NAMESPACE:NAME.
	Accounts []string
}

// Tokens knows the tokens of agents. Its methods may be called by several goroutines.
type Tokens struct {
	reviewer Reviewer
	config   Config
	refused  func(reason string)
	now      func() time.Time
	slots    chan struct{}

	mu    sync.Mutex // guards the fields below
	known map[[sha256.Size]byte]*verdict
}

// verdict is what is known of a token.
type verdict struct {
	mu       sync.Mutex // guards the fields below; held while the API server is asked for this token
	reason   string     // empty if it is accepted
	asked    time.Time
	accepted time.Time // when it was accepted last
	expires  time.Time // zero if that is not known
}

// New returns a Tokens that knows none. It calls refused with the reason of each refusal.
func New(reviewer Reviewer, config Config, refused func(reason string)) *Tokens {
	return &Tokens{reviewer: reviewer, config: config, refused: refused, now: time.Now,
		slots: make(chan struct{}, asking), known: make(map[[sha256.Size]byte]*verdict)}
}

// Protect returns a handler that passes on to next what comes from agents. The context of a request ends with its
// token.
func (t *Tokens) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expires, reason := t.check(r)
		switch reason {
		case "":
		case ReasonAccount:
			t.refused(reason)
			http.Error(w, "this account may not read from the relay", http.StatusForbidden)
			return
		case ReasonUnavailable:
			t.refused(reason)
			http.Error(w, "the API server cannot be asked for the token", http.StatusServiceUnavailable)
			return
		default:
			t.refused(reason)
			http.Error(w, "no token, or none that is valid here", http.StatusUnauthorized)
			return
		}
		if !expires.IsZero() {
			ctx, cancel := context.WithDeadline(r.Context(), expires)
			defer cancel()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// check returns until when a request's token is valid, or the reason why it is not.
func (t *Tokens) check(r *http.Request) (time.Time, string) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return time.Time{}, ReasonAbsent
	}
	if len(token) > longest {
		return time.Time{}, ReasonInvalid
	}
	v := t.verdict(sha256.Sum256([]byte(token)))
	v.mu.Lock()
	defer v.mu.Unlock()
	now := t.now()
	if !v.expires.IsZero() && !now.Before(v.expires) {
		return time.Time{}, ReasonInvalid
	}
	if !v.asked.IsZero() && now.Sub(v.asked) < map[bool]time.Duration{true: keep, false: keepRefusal}[v.reason == ""] {
		return v.expires, v.reason
	}
	t.ask(r.Context(), token, v)
	return v.expires, v.reason
}

// ask asks the API server for a token. v.mu is held.
func (t *Tokens) ask(ctx context.Context, token string, v *verdict) {
	reason, err := t.review(ctx, token)
	now := t.now()
	switch {
	case err == nil && reason == "":
		v.asked, v.accepted, v.reason, v.expires = now, now, "", expiry(token)
	case err == nil:
		v.asked, v.accepted, v.reason = now, time.Time{}, reason
	case !v.accepted.IsZero() && now.Sub(v.accepted) < outage:
		v.asked, v.reason = now.Add(keepRefusal-keep), "" // and is asked for again soon
	default:
		v.asked, v.reason = time.Time{}, ReasonUnavailable
	}
}

// review asks the API server for a token, and returns why it is refused.
func (t *Tokens) review(ctx context.Context, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return "", errors.Wrap(ctx.Err(), "waiting to ask the API server for a token")
	}
	answer, err := t.reviewer.Review(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{t.config.Audience}}})
	if err != nil {
		return "", errors.Wrap(err, "asking the API server for a token")
	}
	s := &answer.Status
	switch {
	case !s.Authenticated, !slices.Contains(s.Audiences, t.config.Audience):
		return ReasonInvalid, nil
	case !slices.ContainsFunc(t.config.Accounts, func(a string) bool {
		return s.User.Username == "system:serviceaccount:"+a
	}):
		return ReasonAccount, nil
	}
	return "", nil
}

// verdict returns what is known of a token, and makes room for it.
func (t *Tokens) verdict(digest [sha256.Size]byte) *verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.known[digest]; ok {
		return v
	}
	if len(t.known) >= most {
		t.forget()
	}
	v := &verdict{}
	t.known[digest] = v
	return v
}

// forget makes room: for it forgets what is refused, or expired, and if there is nothing else the half of all. t.mu is
// held.
func (t *Tokens) forget() {
	now := t.now()
	for digest, v := range t.known {
		if !v.mu.TryLock() {
			continue // being asked for
		}
		old := v.reason != "" || v.accepted.IsZero() || now.Sub(v.accepted) > outage ||
			!v.expires.IsZero() && now.After(v.expires)
		v.mu.Unlock()
		if old {
			delete(t.known, digest)
		}
	}
	for digest := range t.known {
		if len(t.known) < most/2 {
			return
		}
		delete(t.known, digest)
	}
}

// expiry returns when a token that the API server has accepted expires. It is zero if it does not expire or
// does not contain the time.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}
