package apiclient

import (
	"maps"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Access is an API server and the user that asks it, by the values of kubectl's flags. The zero Access is what kubectl
// uses without them.
type Access struct {
	Kubeconfig, Context, Cluster, User, As, Timeout string
	Groups                                          []string
}

// config returns what the kubeconfig says with these values.
func (a Access) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.Context, Timeout: a.Timeout,
		Context:  api.Context{Cluster: a.Cluster, AuthInfo: a.User},
		AuthInfo: api.AuthInfo{Impersonate: a.As, ImpersonateGroups: a.Groups}}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// Contexts returns the names of the contexts of the kubeconfig, sorted; none if it cannot be read.
func (a Access) Contexts() []string {
	config, err := a.config().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(config.Contexts))
}

// Server returns which context the values select, or else what else leads to an API server.
func (a Access) Server() string {
	if a.Context != "" {
		return "context " + a.Context
	}
	if config, err := a.config().RawConfig(); err == nil && config.CurrentContext != "" {
		return "context " + config.CurrentContext
	}
	return "the API server"
}

// Arguments returns the flags that give kubectl the same access.
func (a Access) Arguments() (out []string) {
	for _, f := range [][2]string{{"kubeconfig", a.Kubeconfig}, {"context", a.Context}, {"cluster", a.Cluster},
		{"user", a.User}, {"as", a.As}, {"request-timeout", a.Timeout}} {
		if f[1] != "" {
			out = append(out, "--"+f[0]+"="+f[1])
		}
	}
	for _, g := range a.Groups {
		out = append(out, "--as-group="+g)
	}
	return out
}
