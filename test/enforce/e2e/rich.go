package e2e

import (
	"fmt"
)

// Churn changes what the flows of TestS62 and TestS63 do not depend on: both versions allow, or deny, the same of them.
func Churn(i int) Change {
	return Do(
		Policy(fmt.Sprintf("shop/extra-%d", i), `
podSelector: {matchLabels: {app: api}}
policyTypes: [Egress]
egress: [{}]`),
		Policy("shop/p", fmt.Sprintf(`
podSelector: {matchExpressions: [{key: app, operator: In, values: [web, w%d]}]}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, d%d]}]}}]
- from: [{ipBlock: {cidr: 192.0.0.0/%d}}, {ipBlock: {cidr: "2001:db8::/%d"}}]
egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a, z%d]}]}}]}]`,
			i, i, 8+i%16, 32+i%16, i)))
}

// Rich makes a state of the cluster that needs sets of every type.
func Rich() Change {
	return Do(Base(), Pod("shop/web", Port("http", 80, "")), Pod("shop/api", Port("http", 81, "")),
		RichPolicies(`{port: http}, {port: 53, protocol: UDP}`, `{port: http}`))
}

// RichPolicies makes policies with peers of every kind. Some of their rules are for the given ports.
func RichPolicies(ingress, egress string) Change {
	return Do(Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]
  ports: [`+ingress+`]
- from:
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8:1::/48"]}
egress:
- to: [{namespaceSelector: {matchLabels: {team: b}}}]
- to: [{podSelector: {}}]
  ports: [`+egress+`]`), Policy("ops/p", `
podSelector: {}
ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}]`))
}

// RichWants returns what arrives in that state.
func RichWants() Wants {
	const ops = " -*>ops +web,copy>ops"
	return Wants{
		"tcp 80": "-*>web +db,out>web -web>*" + ops + " +web>ops",
		"tcp 81": "-*>web +out>web -web>*" + ops + " +web>ops,api",
		"udp 53": "-*>web +db,out>web -web>*" + ops + " +web>ops",
		"icmp":   "-*>web +out>web -web>*" + ops + " +web>ops",
	}
}
