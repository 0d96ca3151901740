package enforce

// blockCases show what ipBlocks match. The pods of node1 are in 10.32.1.0/24 and fd10:32:0:1::/64, those of node2 in
// 10.32.2.0/24 and fd10:32:0:2::/64, outside is 192.0.2.10 and 2001:db8::10.
func blockCases() []testCase {
	ingress := func(from string) change {
		return policy("shop/p", "podSelector: {matchLabels: {app: web}}\ningress:\n- from:\n"+from)
	}
	egress := func(to string) change {
		return policy("shop/p", "podSelector: {matchLabels: {app: web}}\npolicyTypes: [Egress]\negress:\n- to:\n"+to)
	}
	return []testCase{
		{name: "S33_in_cidr_and_not_in_except", steps: []step{
			{do: ingress(`
  - ipBlock: {cidr: 192.0.2.0/24}
  - ipBlock: {cidr: "2001:db8::/32"}`), want: wants{"tcp 80": "-*>web +out>web", "icmp": "-*>web +out>web"}},
			{about: "excepted", do: ingress(`
  - ipBlock: {cidr: 192.0.0.0/16, except: [192.0.2.8/29]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::/120"]}`), want: wants{"tcp 80": "-*>web"}},
			{about: "something else is excepted", do: ingress(`
  - ipBlock: {cidr: 192.0.0.0/16, except: [192.0.2.0/29, 192.0.2.16/28]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::100/120"]}`), want: wants{"tcp 80": "-*>web +out>web"}},
			{about: "egress", do: egress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "::/0", except: ["2001:db8::10/128"]}`), want: wants{"tcp 80": "-web>out", "udp 53": "-web>out"}},
		}},
		{name: "S34_excepted_here_and_covered_there", steps: []step{
			{about: "by another item", do: ingress(`
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::10/128"]}
  - ipBlock: {cidr: 192.0.2.8/29}
  - ipBlock: {cidr: "2001:db8::/64"}`), want: wants{"tcp 80": "-*>web +out>web"}},
			{about: "by another rule", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from:
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::10/128"]}
- from: [{ipBlock: {cidr: 192.0.2.10/32}}, {ipBlock: {cidr: "2001:db8::10/128"}}]`),
				want: wants{"tcp 80": "-*>web +out>web"}},
			{about: "by another policy", do: do(ingress(`
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.10/32]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::10/128"]}`), policy("shop/q", `
podSelector: {}
ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: 80}]}]`)),
				want: wants{"tcp 80": "-*>shop +out>shop", "tcp 81": "-*>shop"}},
		}},
		{name: "S35_blocks_that_share_a_part_do_not_mix", steps: []step{
			{about: "the same except list, different cidrs", do: do(policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from:
  - ipBlock: {cidr: 10.32.0.0/16, except: [10.32.1.0/24]}
  - ipBlock: {cidr: "fd10:32::/32", except: ["fd10:32:0:1::/64"]}
  ports: [{port: 81}]
- from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.32.1.0/24]}}, {ipBlock: {cidr: "::/0", except: ["fd10:32:0:1::/64"]}}]
  ports: [{port: 82}]`)), want: wants{"tcp 81": "-*>web +api,copy>web", "tcp 82": "-db,mon>web", "tcp 83": "-*>web"}},
			{about: "the same cidr, different excepts", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{ipBlock: {cidr: 10.32.0.0/16, except: [$db4/32]}}, {ipBlock: {cidr: "fd10:32::/32", except: [$db6/128]}}]
  ports: [{port: 81}]
- from: [{ipBlock: {cidr: 10.32.0.0/16, except: [$mon4/32]}}, {ipBlock: {cidr: "fd10:32::/32", except: [$mon6/128]}}]
  ports: [{port: 82}]
- from: [{ipBlock: {cidr: 10.32.0.0/16}}, {ipBlock: {cidr: "fd10:32::/32"}}]
  ports: [{port: 83}]`), want: wants{"tcp 81": "-*>web +mon,api,copy>web", "tcp 82": "-*>web +db,api,copy>web",
				"tcp 83": "-*>web +pods>web"}},
		}},
		{name: "S36_everything_of_one_family", steps: []step{
			{about: "all of IPv4", do: ingress(`  - ipBlock: {cidr: 0.0.0.0/0}`),
				want: wants{"tcp 80 /4": "", "icmp /4": "", "tcp 80 /6": "-*>web", "icmp /6": "-*>web"}},
			{about: "all of IPv6, unique-local addresses too", do: ingress(`  - ipBlock: {cidr: "::/0"}`),
				want: wants{"tcp 80 /4": "-*>web", "tcp 80 /6": ""}},
			{about: "less a half", do: ingress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [128.0.0.0/1]}
  - ipBlock: {cidr: "::/0", except: ["8000::/1"]}`),
				want: wants{"tcp 80 /4": "-n2,out>web", "tcp 80 /6": "-*>web +out>web"}},
			{about: "less the other half", do: ingress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1]}
  - ipBlock: {cidr: "::/0", except: ["::/1"]}`),
				want: wants{"tcp 80 /4": "-pods>web", "tcp 80 /6": "-out>web"}},
			{about: "less both halves", do: ingress(`
  - ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1, 128.0.0.0/1]}
  - ipBlock: {cidr: "::/0", except: ["::/1", "8000::/1"]}`), want: wants{"tcp 80": "-*>web"}},
			{about: "egress", do: egress(`  - ipBlock: {cidr: 0.0.0.0/0}`), want: wants{"tcp 80 /4": "", "tcp 80 /6": "-web>*"}},
		}},
		{name: "S37_host_bits_are_normalised_and_leading_zeros_read", steps: []step{
			{about: "host bits", do: ingress(`
  - ipBlock: {cidr: 192.0.2.77/24, except: [192.0.2.99/28]}
  - ipBlock: {cidr: "2001:db8::99/64", except: ["2001:db8::ff99/112"]}`),
				want: wants{"tcp 80 /4": "-*>web +out>web", "tcp 80 /6": "-*>web"}},
			{about: "leading zeros, as decimals", do: ingress(`  - ipBlock: {cidr: 192.000.002.010/32}`),
				want: wants{"tcp 80 /4": "-*>web +out>web", "tcp 80 /6": "-*>web"}},
		}},
		{name: "S37_S61_an_ipv4_mapped_cidr_makes_the_policy_invalid", says: []string{"policy is invalid.*shop/p"},
			steps: []step{
				{do: ingress("  - ipBlock: {cidr: \"::ffff:192.0.2.0/120\"}\n  - podSelector: {}"),
					want: wants{"tcp 80": "-*>web"}},
				{about: "another policy is not harmed", do: policy("shop/q", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}]}]`), want: wants{"tcp 80": "-*>web +shop>web"}},
				{about: "valid again", do: do(without("shop/q"), ingress(`  - ipBlock: {cidr: 192.0.2.0/24}`)),
					want: wants{"tcp 80 /4": "-*>web +out>web", "tcp 80 /6": "-*>web"}},
			}},
		{name: "S38_a_block_that_covers_pod_addresses_matches_pods", steps: []step{
			{do: ingress(`
  - ipBlock: {cidr: $db4/32}
  - ipBlock: {cidr: $db6/128}
  - ipBlock: {cidr: 10.32.2.0/24}
  - ipBlock: {cidr: "fd10:32:0:2::/64"}`), want: wants{"tcp 80": "-*>web +db,api,copy>web"}},
			{about: "egress", do: egress(`
  - ipBlock: {cidr: 10.32.2.0/24, except: [$copy4/32]}
  - ipBlock: {cidr: "fd10:32:0:2::/64", except: [$copy6/128]}`), want: wants{"tcp 80": "-web>* +web>api"}},
		}},
	}
}
