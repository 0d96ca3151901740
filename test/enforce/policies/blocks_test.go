package policies

import (
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// blockCases show what ipBlocks match. The pods of node1 are in 10.32.1.0/24 and fd10:32:0:1::/64, those of node2 in
// 10.32.2.0/24 and fd10:32:0:2::/64, outside is 192.0.2.10 and 2001:db8::10.
func blockCases() []e2e.Case {
	ingress := func(from string) e2e.Change {
		return e2e.Policy("shop/p", "podSelector: {matchLabels: {app: web}}\ningress:\n- from:\n"+from)
	}
	egress := func(to string) e2e.Change {
		return e2e.Policy("shop/p", "podSelector: {matchLabels: {app: web}}\npolicyTypes: [Egress]\negress:\n- to:\n"+to)
	}
	return []e2e.Case{
		{Name: "S33_in_cidr_and_not_in_except", Steps: []e2e.Step{
			{Do: ingress(`
  - ipBlock: {cidr: 192.0.2.0/24}
  - ipBlock: {cidr: "2001:db8::/32"}`), Want: e2e.Wants{"tcp 80": "-*>web +out>web", "icmp": "-*>web +out>web"}},
			{About: "excepted", Do: ingress(`
  - ipBlock: {cidr: 192.0.0.0/16, except: [192.0.2.8/29]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::/120"]}`), Want: e2e.Wants{"tcp 80": "-*>web"}},
			{About: "something else is excepted", Do: ingress(`
  - ipBlock: {cidr: 192.0.0.0/16, except: [192.0.2.0/29, 192.0.2.16/28]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::100/120"]}`), Want: e2e.Wants{"tcp 80": "-*>web +out>web"}},
			{About: "egress", Do: egress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "::/0", except: ["2001:db8::10/128"]}`), Want: e2e.Wants{"tcp 80": "-web>out", "udp 53": "-web>out"}},
		}},
		{Name: "S34_excepted_here_and_covered_there", Steps: []e2e.Step{
			{About: "by another item", Do: ingress(`
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::10/128"]}
  - ipBlock: {cidr: 192.0.2.8/29}
  - ipBlock: {cidr: "2001:db8::/64"}`), Want: e2e.Wants{"tcp 80": "-*>web +out>web"}},
			{About: "by another rule", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from:
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::10/128"]}
- from: [{ipBlock: {cidr: 192.0.2.10/32}}, {ipBlock: {cidr: "2001:db8::10/128"}}]`),
				Want: e2e.Wants{"tcp 80": "-*>web +out>web"}},
			{About: "by another policy", Do: e2e.Do(ingress(`
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::10/128"]}`), e2e.Policy("shop/q", `
podSelector: {}
ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: 80}]}]`)),
				Want: e2e.Wants{"tcp 80": "-*>shop +out>shop", "tcp 81": "-*>shop"}},
		}},
		{Name: "S35_blocks_that_share_a_part_do_not_mix", Steps: []e2e.Step{
			{About: "the same except list, different cidrs", Do: e2e.Do(e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from:
  - ipBlock: {cidr: 10.32.0.0/16, except: [10.32.1.0/24]}
  - ipBlock: {cidr: "fd10:32::/32", except: ["fd10:32:0:1::/64"]}
  ports: [{port: 81}]
- from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.32.1.0/24]}}, {ipBlock: {cidr: "::/0", except: ["fd10:32:0:1::/64"]}}]
  ports: [{port: 82}]`)), Want: e2e.Wants{"tcp 81": "-*>web +api,copy>web", "tcp 82": "-db,mon>web", "tcp 83": "-*>web"}},
			{About: "the same cidr, different excepts", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{ipBlock: {cidr: 10.32.0.0/16, except: [$db4/32]}}, {ipBlock: {cidr: "fd10:32::/32", except: [$db6/128]}}]
  ports: [{port: 81}]
- from: [{ipBlock: {cidr: 10.32.0.0/16, except: [$mon4/32]}}, {ipBlock: {cidr: "fd10:32::/32", except: [$mon6/128]}}]
  ports: [{port: 82}]
- from: [{ipBlock: {cidr: 10.32.0.0/16}}, {ipBlock: {cidr: "fd10:32::/32"}}]
  ports: [{port: 83}]`), Want: e2e.Wants{"tcp 81": "-*>web +mon,api,copy>web", "tcp 82": "-*>web +db,api,copy>web",
				"tcp 83": "-*>web +pods>web"}},
		}},
		{Name: "S36_everything_of_one_family", Steps: []e2e.Step{
			{About: "all of IPv4", Do: ingress(`  - ipBlock: {cidr: 0.0.0.0/0}`),
				Want: e2e.Wants{"tcp 80 /4": "", "icmp /4": "", "tcp 80 /6": "-*>web", "icmp /6": "-*>web"}},
			{About: "all of IPv6, unique-local addresses too", Do: ingress(`  - ipBlock: {cidr: "::/0"}`),
				Want: e2e.Wants{"tcp 80 /4": "-*>web", "tcp 80 /6": ""}},
			{About: "less a half", Do: ingress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [128.0.0.0/1]}
  - ipBlock: {cidr: "::/0", except: ["8000::/1"]}`),
				Want: e2e.Wants{"tcp 80 /4": "-n2,out>web", "tcp 80 /6": "-*>web +out>web"}},
			{About: "less the other half", Do: ingress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1]}
  - ipBlock: {cidr: "::/0", except: ["::/1"]}`),
				Want: e2e.Wants{"tcp 80 /4": "-pods>web", "tcp 80 /6": "-out>web"}},
			{About: "less both halves", Do: ingress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1, 128.0.0.0/1]}
  - ipBlock: {cidr: "::/0", except: ["::/1", "8000::/1"]}`), Want: e2e.Wants{"tcp 80": "-*>web"}},
			{About: "egress", Do: egress(`  - ipBlock: {cidr: 0.0.0.0/0}`), Want: e2e.Wants{"tcp 80 /4": "",
				"tcp 80 /6": "-web>*"}},
		}},
		{Name: "S37_host_bits_are_normalised_and_leading_zeros_read", Steps: []e2e.Step{
			{About: "host bits", Do: ingress(`
  - ipBlock: {cidr: 192.0.2.77/24, except: [192.0.2.99/28]}
  - ipBlock: {cidr: "2001:db8::99/64", except: ["2001:db8::ff99/112"]}`),
				Want: e2e.Wants{"tcp 80 /4": "-*>web +out>web", "tcp 80 /6": "-*>web"}},
			{About: "leading zeros, as decimals", Do: ingress(`  - ipBlock: {cidr: 192.000.002.010/32}`),
				Want: e2e.Wants{"tcp 80 /4": "-*>web +out>web", "tcp 80 /6": "-*>web"}},
		}},
		{Name: "S37_S61_an_ipv4_mapped_cidr_makes_the_policy_invalid", Says: []string{"policy is invalid.*shop/p"},
			Steps: []e2e.Step{
				{Do: ingress("  - ipBlock: {cidr: \"::ffff:192.0.2.0/120\"}\n  - podSelector: {}"),
					Want: e2e.Wants{"tcp 80": "-*>web"}},
				{About: "another policy is not harmed", Do: e2e.Policy("shop/q", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}]}]`), Want: e2e.Wants{"tcp 80": "-*>web +shop>web"}},
				{About: "valid again", Do: e2e.Do(e2e.Without("shop/q"), ingress(`  - ipBlock: {cidr: 192.0.2.0/24}`)),
					Want: e2e.Wants{"tcp 80 /4": "-*>web +out>web", "tcp 80 /6": "-*>web"}},
			}},
		{Name: "S38_a_block_that_covers_pod_addresses_matches_pods", Steps: []e2e.Step{
			{Do: ingress(`
  - ipBlock: {cidr: $db4/32}
  - ipBlock: {cidr: $db6/128}
  - ipBlock: {cidr: 10.32.2.0/24}
  - ipBlock: {cidr: "fd10:32:0:2::/64"}`), Want: e2e.Wants{"tcp 80": "-*>web +db,api,copy>web"}},
			{About: "egress", Do: egress(`
  - ipBlock: {cidr: 10.32.2.0/24, except: [$copy4/32]}
  - ipBlock: {cidr: "fd10:32:0:2::/64", except: [$copy6/128]}`), Want: e2e.Wants{"tcp 80": "-web>* +web>api"}},
		}},
	}
}
