// Package auth authenticates agents by their tokens.
//
//	config := auth.Config{Audience: "weave-npc-relay", Accounts: []string{"kube-system:weave-npc"}}
//	tokens := auth.New(reviewer, config, observer)
//	handler = tokens.Protect(handler)
//
// The API server is asked for each token, by a TokenReview for the relay's own audience, so that a token that was made
// for something else, or that a relay was given, is worth nothing elsewhere. What it answers is kept for a minute.
// While it cannot be asked, tokens that it has accepted within the hour are taken, until they expire. Who sends forged
// tokens waits behind all others (queue).
package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
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
	ReasonBusy        = "busy"        // too many unknown tokens of its address are to be asked for
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
	queue    *queue

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
	failed   time.Time // when it could not be asked for last
	agent    string    // whose it is
}

// agentKey is the key of the agent in the context of a request.
type agentKey struct{}

// Agent returns which agent a request comes from that Protect has passed on: the UID of its pod, or where the API server
// does not report that, its token's digest. A pod may have any number of tokens.
func Agent(ctx context.Context) string {
	agent, _ := ctx.Value(agentKey{}).(string)
	return agent
}

// New returns a Tokens that knows none. It calls refused with the reason of each refusal.
func New(reviewer Reviewer, config Config, refused func(reason string)) *Tokens {
	return &Tokens{reviewer: reviewer, config: config, refused: refused, now: time.Now,
		queue: newQueue(), known: make(map[[sha256.Size]byte]*verdict)}
}

// Protect returns a handler that passes on to next what comes from agents. The context of a request ends with its
// token.
func (t *Tokens) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expires, agent, reason := t.check(r)
		if reason != "" {
			t.refused(reason)
			w.Header().Set("Connection", "close")
			status, text := refusal(reason)
			http.Error(w, text, status)
			return
		}
		ctx := context.WithValue(r.Context(), agentKey{}, agent)
		if !expires.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, expires)
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// refusal returns the answer to a request that is refused for a reason.
func refusal(reason string) (status int, text string) {
	switch reason {
	case ReasonAccount:
		return http.StatusForbidden, "this account may not read from the relay"
	case ReasonUnavailable:
		return http.StatusServiceUnavailable, "the API server cannot be asked for the token"
	case ReasonBusy:
		return http.StatusTooManyRequests, "too many unknown tokens of this address are to be asked for"
	}
	return http.StatusUnauthorized, "no token, or none that is valid here"
}

// check returns until when a request's token is valid, and whose it is, or the reason why it is not.
func (t *Tokens) check(r *http.Request) (expires time.Time, agent, reason string) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return time.Time{}, "", ReasonAbsent
	}
	if len(token) > longest {
		return time.Time{}, "", ReasonInvalid
	}
	v, came := t.verdict(sha256.Sum256([]byte(token))), t.now()
	v.mu.Lock()
	defer v.mu.Unlock()
	now := t.now()
	if !v.expires.IsZero() && !now.Before(v.expires) {
		return time.Time{}, "", ReasonInvalid
	}
	if v.failed.After(came) { // others with this token have waited in vain meanwhile
		return time.Time{}, "", v.reason
	}
	if !v.asked.IsZero() && now.Sub(v.asked) < map[bool]time.Duration{true: keep, false: keepRefusal}[v.reason == ""] {
		return v.expires, v.agent, v.reason
	}
	t.ask(r, token, v)
	return v.expires, v.agent, v.reason
}

// ask asks the API server for a token. v.mu is held.
func (t *Tokens) ask(r *http.Request, token string, v *verdict) {
	agent, reason, err := t.review(r, token, !v.accepted.IsZero())
	now := t.now()
	switch {
	case err == nil && reason == "":
		v.asked, v.accepted, v.reason, v.expires, v.agent = now, now, "", expiry(token), agent
	case err == nil:
		v.asked, v.accepted, v.reason = now, time.Time{}, reason
	case !v.accepted.IsZero() && now.Sub(v.accepted) < outage:
		v.asked, v.reason = now.Add(keepRefusal-keep), "" // and is asked for again soon
	case errors.Is(err, errBusy):
		v.asked, v.failed, v.reason = time.Time{}, now, ReasonBusy
	default:
		v.asked, v.failed, v.reason = time.Time{}, now, ReasonUnavailable
	}
}

// review asks the API server for a token, and returns whose it is, or why it is refused.
func (t *Tokens) review(r *http.Request, token string, known bool) (agent, reason string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	turn, err := t.queue.enter(ctx, clientOf(r), known)
	if err != nil {
		return "", "", err
	}
	defer func() { t.queue.leave(turn, agent != "", reason != "") }()
	answer, err := t.reviewer.Review(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{t.config.Audience}}})
	if err != nil {
		return "", "", errors.Wrap(err, "asking the API server for a token")
	}
	s := &answer.Status
	switch {
	case !s.Authenticated, !slices.Contains(s.Audiences, t.config.Audience):
		return "", ReasonInvalid, nil
	case !slices.ContainsFunc(t.config.Accounts, func(a string) bool {
		return s.User.Username == "system:serviceaccount:"+a
	}):
		return "", ReasonAccount, nil
	}
	if uid := s.User.Extra["authentication.kubernetes.io/pod-uid"]; len(uid) == 1 {
		return uid[0], "", nil
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(token))), "", nil
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
