// Package e2e runs the weave-npc command on nodes made of network namespaces, and asks what happens to packets. The tests
// are in the folders next to it, one for each group of promises; a test's name begins with the promises that it shows, by
// their numbers (S17).
//
//	w := e2e.Start(t, lab.NFT, e2e.Do(e2e.Base(), e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`)))
//	w.Expect(t, e2e.Wants{"tcp 80": "-*>web"})
package e2e
