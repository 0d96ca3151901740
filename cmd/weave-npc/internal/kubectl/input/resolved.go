package input

import (
	"net/netip"
	"strings"

	"github.com/pkg/errors"
)

// Resolved returns the domain names of addresses that texts give as NAME=ADDRESS[,ADDRESS]; nil without texts.
func Resolved(texts []string) (names map[netip.Addr][]string, err error) {
	for _, text := range texts {
		name, addrs, ok := strings.Cut(text, "=")
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		if !ok || name == "" || strings.ContainsAny(name, "*/ ") {
			return nil, errors.Errorf("--resolve: %q is not NAME=ADDRESS[,ADDRESS], such as api.example.com=203.0.113.7", text)
		}
		for _, addr := range strings.Split(addrs, ",") {
			a, err := netip.ParseAddr(addr)
			if err != nil || a.Zone() != "" {
				return nil, errors.Errorf("--resolve: %q of %s is no address; give NAME=ADDRESS[,ADDRESS]", addr, name)
			}
			if names == nil {
				names = map[netip.Addr][]string{}
			}
			names[a.Unmap()] = append(names[a.Unmap()], name)
		}
	}
	return names, nil
}
