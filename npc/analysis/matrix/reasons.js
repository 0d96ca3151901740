// resolve returns the pod that an end of a flow is, as the node of the other end sees it: a subject with the pod's name, or null.
function resolve(data, end, node) {
  if (end.alone) {
    const a = end.alone, owner = a.rs && Object.hasOwn(a.rs, node) ? a.rs[node] : a.r;
    return owner < 0 ? null : named(data, end, owner);
  }
  return end.subject ? {subject: end.subject, name: end.name} : null;
}

// named returns a subject that stands for one pod. The first pod of a class stands for the others.
function named(data, end, number) {
  const subject = data.subjects[number];
  return {subject, name: subject.n === data.classes[end.cls].n ? end.name : subject.n};
}

function podOf(data, end, d) {
  if (!end.alone) return resolve(data, end, -1);
  const number = end.alone.w[d].s;
  return number < 0 ? null : named(data, end, number);
}

// decide reports whether a flow is allowed, null if that is not known. If trace is a list, decide appends the reasons as lines.
function decide(data, from, to, service, trace) {
  const out = decideSide(data, from, to, service, EGRESS, trace);
  if (out === false && trace === null) return false;
  return decideSide(data, to, from, service, INGRESS, trace) && out;
}

// decideSide asks the policies of one end. Only those of the source may leave open whether a flow is allowed.
function decideSide(data, own, peer, service, d, trace) {
  const pod = podOf(data, own, d), head = d === EGRESS ? "egress from " : "ingress to ";
  const report = (allowed, sentence) => {
    if (trace) trace.push(head + (pod ? pod.name : endText(own)) + ": " + (allowed ? "allowed" : "denied") + sentence);
    return allowed;
  };
  if (!pod) return report(true, ": it is no pod, so that no policy isolates it");
  const other = resolve(data, peer, pod.subject.o);
  const itself = other !== null && other.name === pod.name || own.text !== "" && own.text === peer.text;
  const toNode = !other && peer.alone !== null && (peer.alone.at || []).includes(pod.subject.o);
  const contest = own.alone ? own.alone.w[d] : {};
  const close = (allowed, sentence) => {
    report(allowed, sentence);
    if (trace && contest.c) trace.push("  conflict: " + contest.c);
    return allowed;
  };
  const tiered = (data.cluster || []).length > 0, destination = d === EGRESS ? peer : own;
  if (itself) return close(true, ": a pod reaches itself");
  if (toNode && d === INGRESS) return close(true, ": " + ownNode(tiered, d));
  if (destination.alone && destination.alone.m) return close(true, ": multicast passes, unless weave-npc runs with --allow-mcast=false");
  const closed = toNode ? contest.xn : contest.x;
  if (closed) return close(false, ": " + closed);
  const [subject, name] = other ? [other.subject, other.name] : [null, ""];
  const q = {data, pod, peer: {text: peer.text, addr: peer.addr, nodes: peer.nodes, stands: peer.stands, subject, name, end: peer}, service, d, toNode, tiered};
  q.destination = d === EGRESS ? q.peer.subject : pod.subject;
  const names = d === EGRESS && !subject && !peer.stands ? namesOf(q) : [];
  const a = answer(q, null, trace !== null);
  const open = names.length > 0 && answer({...q, peer: {...q.peer, named: true}}, null, false).allowed !== a.allowed;
  if (!trace) return open ? null : a.allowed;
  if (open) {
    trace.push(head + pod.name + ": unknown: it may be an address of " + names.join(", ") + ": no node's learned addresses of domain names are known here");
    if (contest.c) trace.push("  conflict: " + contest.c);
  } else {
    close(a.allowed, outcomeText(q, a, a));
  }
  trace.push(...a.cluster, ...a.policies);
  if (open) return null;
  if (a.by && names.length === 0) {
    const without = answer(q, a.by, true);
    trace.push("  without it: " + (without.allowed ? "allowed" : "denied") + outcomeText(q, without, a));
  }
  return a.allowed;
}

// namesOf returns the domain names that cluster network policies of a pod accept, once each.
function namesOf(q) {
  const c = q.pod.subject.c[q.d], rules = [...c.a || [], ...c.b || []].flatMap(i => q.data.cluster[i].r[q.d] || []);
  return [...new Set(rules.flatMap(r => (r.e || []).map(i => q.data.peers[i].d).filter(Boolean)))];
}

function ownNode(tiered, d) {
  if (!tiered) return "a pod and its own node always reach each other";
  return d === INGRESS ? "its own node always reaches a pod" : "a pod reaches its own node, unless a cluster network policy denies it";
}

function outcomeText(q, outcome, of) {
  if (outcome.by) return " by " + outcome.by.text;
  switch (outcome.reason) {
    case "own node": return ": " + ownNode(q.tiered, q.d);
    case "not isolated": return ": " + (of.cluster.length > 0 ? "no cluster network policy decides it, and " : "") + "no policy isolates it";
  }
  return ": " + outcome.reason;
}

// answer asks the policies, without one of the rules of tiers if that is not null. If report is set, it adds what they say.
function answer(q, without, report) {
  const c = q.pod.subject.c[q.d], a = {allowed: true, reason: "", by: null, cluster: [], policies: []};
  const of = (numbers, list) => (numbers || []).flatMap(i => (list[i].r[q.d] || []).map((rule, n) => ({rule, n, policy: list[i], a: rule.a})));
  const [one, none] = [Uint32Array.of(1), Uint32Array.of(0)];
  let asked = null;
  const matched = item => {
    const {rule, policy, n} = item, fits = matches(q, rule);
    if (policy.t && report) {
      if (asked !== policy) a.cluster.push(tierHead(policy) + "selects it");
      asked = policy;
      a.cluster.push("    rule " + (n + 1) + (rule.n || "") + ", " + rule.a + ": " + clusterRuleText(q, rule, fits));
    }
    return fits && !(without && without.rule === rule && without.policy === policy) ? one : none;
  };
  const rules = {admin: of(c.a, q.data.cluster), allowing: of(c.p, q.data.policies), baseline: of(c.b, q.data.cluster), isolated: c.i};
  ask(rules, q.toNode, one, matched, (action, item, flows, cause) => {
    if (action === "Pass") return;
    a.allowed = action === "Accept";
    a.reason = {"exempt": "own node", "no rule": "no rule allows it"}[cause] || cause || "a rule allows it";
    if (item && item.policy.t) {
      a.by = {rule: item.rule, policy: item.policy, text: item.policy.t + " policy " + item.policy.k + "/rule " + (item.n + 1) + (item.rule.n || "")};
    }
  });
  if (report && !a.by && c.i) {
    for (const i of c.b || []) a.cluster.push(tierHead(q.data.cluster[i]) + "is not asked, for a NetworkPolicy isolates the pod");
    if (!q.toNode) reportPolicies(q, a, c.p);
  }
  return a;
}

function tierHead(p) { return "  " + p.t + " policy " + p.k + " (priority " + p.y + "): "; }

function clusterRuleText(q, rule, fits) {
  if (rule.x) return fits ? "matches everything, for it fails closed: " + rule.x : "matches nothing, for it is invalid: " + rule.x;
  if (!fits) return "no: " + misses(q, rule);
  if (rule.a === "Pass") return "matches, and passes it to the next tier";
  const named = (rule.e || []).map(i => q.data.peers[i]).some(p => p.d && mismatch(q.data, p, q.peer) === "");
  return named ? "matches the domain name" : "matches";
}

// reportPolicies adds what the policies say that isolate a pod.
function reportPolicies(q, a, policies) {
  for (const i of policies || []) {
    const p = q.data.policies[i], rules = p.r[q.d] || [];
    const end = p.x ? ", and allows nothing: it is invalid: " + p.x : rules.length === 0 ? ", and has no rule" : "";
    a.policies.push("  policy " + p.k + ": isolates" + end);
    for (const [n, rule] of rules.entries()) {
      a.policies.push("    rule " + (n + 1) + ": " + (matches(q, rule) ? "allows it" : "no: " + misses(q, rule)));
    }
  }
}

function peersFit(q, rule) { return !rule.e || rule.e.some(i => mismatch(q.data, q.data.peers[i], q.peer) === ""); }

function matches(q, rule) { return portsFit(q.data, rule, q.service, q.destination) && peersFit(q, rule); }

// misses returns why a rule does not match, in words.
function misses(q, rule) {
  const why = [];
  if (!peersFit(q, rule)) why.push(...rule.e.map(i => peerText(q, q.data.peers[i])));
  if (!portsFit(q.data, rule, q.service, q.destination)) why.push(...rule.p.map(i => portText(q, q.data.ports[i])));
  return why.join("; ");
}

function peerText(q, peer) {
  const of = q.peer.name || endText(q.peer.end), why = mismatch(q.data, peer, q.peer), selector = i => q.data.selectors[i];
  const space = q.peer.subject ? q.data.namespaces[q.peer.subject.s] : null;
  switch (why) {
    case "not a pod": return "peer wants pods, " + of + " is none";
    case "name unknown": return "not known: peer wants addresses of " + peer.d + ", which nodes learn";
    case "not named": return "peer wants addresses of " + peer.d + ", no answer gave " + of;
    case "not a node": return "peer wants nodes, " + of + " is no address of one";
    case "node labels": {
      const node = q.peer.nodes[0], [wants, has] = missing(selector(peer.o), node.l);
      return "peer wants nodes with " + wants + ", node " + node.n + " has " + has;
    }
    case "other namespace": return "peer wants namespace " + (peer.n || "") + ", " + of + " has " + space.n;
    case "namespace labels": {
      const [wants, has] = missing(selector(peer.s), space.l);
      return "peer wants namespace with " + wants + ", namespace " + space.n + " has " + has;
    }
    case "namespace unknown": return "peer wants a namespace's labels, namespace " + space.n + " has no object";
    case "pod labels": {
      const [wants, has] = missing(selector(peer.p), q.peer.subject.l);
      return "peer wants " + wants + ", " + of + " has " + has;
    }
    case "no address": return "peer wants addresses in " + peer.b + ", " + of + " has none yet";
    case "outside block": return "peer wants addresses in " + peer.b + ", " + of + " is not there";
    case "excepted": return "peer wants addresses in " + peer.b + ", " + of + " is excepted by " +
      peer.x[peer.excepts.findIndex(e => contains(e, q.peer.addr))];
  }
  return "peer is of an unknown kind, which matches no pod";
}

// missing returns the requirements that labels do not meet, and what the labels have for the same keys.
function missing(selector, labels) {
  if (selector.x) return ["a value that no label can have", "other labels"];
  const unmet = (selector.r || []).filter(r => !requirementMet(r, labels || {}));
  const present = unmet.map(r => Object.hasOwn(labels || {}, r.k) ? r.k + "=" + labels[r.k] : "no label " + r.k);
  return [list(unmet.map(r => r.t)), list([...new Set(present)].sort())];
}

// list joins words as a sentence does.
function list(words) {
  return words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words.at(-1);
}

function portText(q, port) {
  const asked = q.service.a;
  if (portFits(port, q.service, q.destination)) return "port fits " + asked;
  if (port.n) {
    const there = q.destination === null ? [] : (q.destination.p || []).filter(n => n.n === port.n && (port.p === 0 || n.p === port.p));
    if (there.length === 0) return "port wants " + port.t + ", the destination has no port of that name";
    return "port wants " + port.t + ", which is " + there.at(-1).f + " there, asked for is " + asked;
  }
  return "port wants " + port.t + ", asked for is " + asked;
}

// endText returns an end as a verdict names it.
function endText(end) {
  if (end.stands) return end.stands;
  if (!end.name) return end.text;
  return end.text ? end.name + " (" + end.text + ")" : end.name;
}

// explainPair returns the verdicts between the ends of two pods or addresses in lines, in the families that both have. If the reasons of all are the
// same, it returns them once, without addresses.
function explainPair(data, from, to, service) {
  const verdicts = [];
  for (const a of from) {
    for (const b of to) {
      if (a.text && b.text && a.text.includes(":") !== b.text.includes(":")) continue;
      const reasons = [], allowed = decide(data, a, b, service, reasons);
      verdicts.push({a, b, allowed, reasons});
    }
  }
  const same = verdicts.length > 1 && verdicts.every(v => v.reasons.join("\n") === verdicts[0].reasons.join("\n"));
  return (same ? verdicts.slice(0, 1) : verdicts).flatMap(v => {
    const name = e => same && e.name ? e.name : endText(e), word = v.allowed ? "allowed" : v.allowed === null ? "unknown" : "denied";
    return [name(v.a) + " -> " + name(v.b) + ", " + service.a + ": " + word, ...v.reasons];
  });
}
