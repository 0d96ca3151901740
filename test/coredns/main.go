// Command coredns is CoreDNS with the plugins of a release, as clusters run it. Tests of domain names start it; go.mod
// pins the version, and `make resolvers` builds it.
package main

import (
	_ "github.com/coredns/coredns/core/plugin" // the plugins of a release
	"github.com/coredns/coredns/coremain"
)

func main() { coremain.Run() }
