package refmodel_test

import "testing"

func TestS84_Peers(t *testing.T) {
	egress := func(peers string) string {
		return `a: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [` + peers + `]}]}`
	}
	run(t, []scenario{
		{"namespaces match pods only", egress(`{namespaces: {}}`), "", map[string]verdict{webDBTCP: notOut, "web6>mon6 icmp": notOut,
			"web>outside tcp/80": passes, "web>node2 tcp/80": passes, "web6>node26 tcp/80": passes}},
		{"namespaces by label", egress(`{namespaces: {matchLabels: {team: b}}}`), "", map[string]verdict{webDBTCP: passes, "web>mon tcp/80": notOut}},
		{"pods match pods only", egress(`{pods: {namespaceSelector: {}, podSelector: {}}}`), "", map[string]verdict{webDBTCP: notOut,
			"web>mon tcp/80": notOut, "web>outside tcp/80": passes, "web>node2 tcp/80": passes}},
		{"pods by both labels", egress(`{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: db}}}}`), "",
			map[string]verdict{webDBTCP: notOut, dbWebTCP: passes, "web>mon tcp/80": passes}},
		{"networks match any address of their family", egress(`{networks: [0.0.0.0/0]}`), "", map[string]verdict{webDBTCP: notOut,
			"web>outside tcp/80": notOut, "web>node2 tcp/80": notOut, "web6>db6 tcp/80": passes, "web6>outside6 tcp/80": passes}},
		{"networks of IPv6", egress(`{networks: ["::/0"]}`), "", map[string]verdict{webDBTCP: passes, "web>outside tcp/80": passes,
			"web6>db6 tcp/80": notOut, "web6>outside6 tcp/80": notOut, "web6>node26 icmp": notOut}},
		{"a network of some pods", egress(`{networks: [10.32.1.3/32, "fd32:2::/64"]}`), "", map[string]verdict{webDBTCP: notOut,
			"web>mon tcp/80": passes, "web6>mon6 tcp/80": notOut, "web6>db6 tcp/80": passes}},
		{"a network with host bits", egress(`{networks: [10.32.2.77/24]}`), "", map[string]verdict{"web>mon tcp/80": notOut, webDBTCP: passes}},
		{"an IPv4-mapped network is refused, which fails closed", egress(`{networks: ["::ffff:198.51.100.0/120"]}`), "",
			map[string]verdict{webDBTCP: notOut, "web6>outside6 tcp/80": notOut}},
		{"all nodes", egress(`{nodes: {}}`), "", map[string]verdict{"web>node2 tcp/80": notOut, "mon>node1 tcp/80": notOut, "mon>also1 tcp/80": notOut,
			"web6>node26 icmp": notOut, "web>outside tcp/80": passes, webDBTCP: passes}},
		{"nodes by label", egress(`{nodes: {matchLabels: {role: edge}}}`), "", map[string]verdict{"web>node2 tcp/80": passes,
			"mon>node1 tcp/80": notOut, "mon6>node16 tcp/80": notOut, "mon>also1 tcp/80": notOut}},
	})
	run(t, []scenario{{"sources are pods only", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
		ingress: [{action: Deny, from: [{namespaces: {}}, {pods: {namespaceSelector: {}, podSelector: {}}}]}]}`, "",
		map[string]verdict{webDBTCP: notIn, "outside>web tcp/80": passes, "node2>web tcp/80": passes}}})
}

func TestS85_PeersOrProtocolsOr(t *testing.T) {
	rule := func(peers, protocols string) string {
		return `a: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [` + peers + `]` + protocols + `}]}`
	}
	const db, mon = `{networks: [10.32.1.3/32]}`, `{namespaces: {matchLabels: {team: b}}}`
	everything := map[string]verdict{webDBTCP: notOut, "web>db udp/53": notOut, "web>db sctp/9": notOut, "web>db icmp": notOut, "web>db gre": notOut}
	run(t, []scenario{
		{"peers are or", rule(db+", "+mon, ""), "", map[string]verdict{webDBTCP: notOut, "web>mon tcp/80": notOut, dbWebTCP: passes}},
		{"no protocols", rule(db, ""), "", everything},
		{"an empty list of protocols", rule(db, ", protocols: []"), "", everything},
		{"protocols are or, with peers and", rule(db, `, protocols: [{tcp: {destinationPort: {number: 80}}}, {udp: {destinationPort: {number: 53}}}]`), "",
			map[string]verdict{webDBTCP: notOut, "web>db udp/53": notOut, "web>db tcp/53": passes, "web>db udp/80": passes,
				"web>mon tcp/80": passes, "web>db icmp": passes}},
		{"all ports of TCP", rule(db, `, protocols: [{tcp: {}}]`), "",
			map[string]verdict{"web>db tcp/1": notOut, "web>db tcp/65535": notOut, "web>db udp/80": passes, "web>db sctp/80": passes, "web>db icmp": passes}},
		{"all ports of UDP", rule(db, `, protocols: [{udp: {}}]`), "", map[string]verdict{"web>db udp/53": notOut, webDBTCP: passes}},
		{"all ports of SCTP", rule(db, `, protocols: [{sctp: {}}]`), "", map[string]verdict{"web>db sctp/80": notOut, webDBTCP: passes}},
		{"a number of SCTP", rule(db, `, protocols: [{sctp: {destinationPort: {number: 80}}}]`), "",
			map[string]verdict{"web>db sctp/80": notOut, "web>db sctp/81": passes, webDBTCP: passes}},
		{"a range includes both ends", rule(db, `, protocols: [{tcp: {destinationPort: {range: {start: 80, end: 90}}}}]`), "",
			map[string]verdict{"web>db tcp/79": passes, webDBTCP: notOut, "web>db tcp/85": notOut, "web>db tcp/90": notOut, "web>db tcp/91": passes,
				"web>db udp/85": passes}},
		{"a range of UDP", rule(db, `, protocols: [{udp: {destinationPort: {range: {start: 1, end: 65535}}}}]`), "",
			map[string]verdict{"web>db udp/1": notOut, "web>db udp/65535": notOut, webDBTCP: passes}},
	})
}

func TestS86_DestinationNamedPort(t *testing.T) {
	run(t, []scenario{
		{"the subject's own number on ingress", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			ingress: [{action: Deny, ` + fromAll + `, protocols: [{destinationNamedPort: http}]}]}`, "",
			map[string]verdict{"mon>web tcp/80": notIn, "mon>web tcp/8080": passes, "mon>db tcp/8080": notIn, "mon>db tcp/80": passes,
				"mon>web udp/80": passes, "web>mon tcp/80": passes}},
		{"the destination's on egress", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			egress: [{action: Deny, ` + toAll + `, protocols: [{destinationNamedPort: http}]}]}`, "",
			map[string]verdict{"mon>web tcp/80": notOut, "web>db tcp/8080": notOut, webDBTCP: passes, "db>web tcp/8080": passes}},
		{"its own protocol", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			egress: [{action: Deny, ` + toAll + `, protocols: [{destinationNamedPort: dns}]}]}`, "",
			map[string]verdict{"mon>web udp/53": notOut, "mon>web tcp/53": passes}},
		{"no pod has it, the other entry stands", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			egress: [{action: Deny, ` + toAll + `, protocols: [{destinationNamedPort: none}, {udp: {}}]}]}`, "",
			map[string]verdict{webDBTCP: passes, "web>db udp/53": notOut}},
		{"networks: pods inside them", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			egress: [{action: Deny, to: [{networks: [10.32.1.0/31, 10.32.1.3/32, 198.51.100.0/24]}], protocols: [{destinationNamedPort: http}]}]}`, "",
			map[string]verdict{"mon>db tcp/8080": notOut, "mon>web tcp/80": passes, "web>outside tcp/80": passes, "web>outside tcp/8080": passes}},
	})
}
