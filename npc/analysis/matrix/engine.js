"use strict";
// newEngine returns what decides reachability by the policies of the page. It holds for each peer of a rule the ends that match it, as bits,
// and makes of them for a service, for each end, the ends that it reaches.
const INGRESS = 0, EGRESS = 1;

// parseAddr returns the words of 16 bits of an address; null for none.
function parseAddr(text) {
  if (!text || text.includes("%")) return null;
  if (!text.includes(":")) {
    const b = text.split(".").map(Number);
    return [b[0] << 8 | b[1], b[2] << 8 | b[3]];
  }
  const words = part => part ? part.split(":").map(w => parseInt(w, 16)) : [];
  const [head, tail] = text.split("::").map(words);
  return tail ? [...head, ...Array(8 - head.length - tail.length).fill(0), ...tail] : head;
}

function parsePrefix(text) {
  const [addr, bits] = text.split("/");
  return {addr: parseAddr(addr), bits: Number(bits)};
}

function contains(prefix, addr) {
  if (addr === null || prefix.addr.length !== addr.length) return false;
  for (let i = 0, left = prefix.bits; left > 0; i++, left -= 16) {
    const mask = left >= 16 ? 0xffff : 0xffff << 16 - left & 0xffff;
    if ((prefix.addr[i] & mask) !== (addr[i] & mask)) return false;
  }
  return true;
}

function requirementMet(r, labels) {
  const has = Object.hasOwn(labels, r.k);
  switch (r.o) {
    case "exists": return has;
    case "!": return !has;
    case "notin": case "!=": return !has || !(r.v || []).includes(labels[r.k]);
  }
  return has && (r.v || []).includes(labels[r.k]);
}

function selects(selector, labels) {
  return !selector.x && (selector.r || []).every(r => requirementMet(r, labels || {}));
}

// hasName reports whether a domain name of a peer, which may begin with *., stands for another one.
function hasName(peer, name) { return peer.d === name || peer.d.startsWith("*") && name.endsWith(peer.d.slice(1)); }

// mismatch returns why a peer does not match an end; empty if it does. An end has an address or null, the subject that owns it
// or null, the Nodes there, and the domain name that the address stands for. Those of most addresses are not known; named assumes that it has all.
function mismatch(data, peer, end) {
  if (peer.b !== undefined) {
    if (!end.text) return "no address";
    peer.prefix ??= parsePrefix(peer.b);
    peer.excepts ??= (peer.x || []).map(parsePrefix);
    if (!contains(peer.prefix, end.addr)) return "outside block";
    return peer.excepts.some(e => contains(e, end.addr)) ? "excepted" : "";
  }
  if (peer.o !== undefined) {
    const nodes = end.nodes || [];
    if (nodes.length === 0) return "not a node";
    return nodes.some(n => selects(data.selectors[peer.o], n.l)) ? "" : "node labels";
  }
  if (peer.d !== undefined) {
    if (end.named || end.stands && hasName(peer, end.stands)) return "";
    return end.subject || end.stands ? "not named" : "name unknown";
  }
  if (peer.s === undefined && peer.p === undefined) return "unknown kind";
  if (!end.subject) return "not a pod";
  const namespace = data.namespaces[end.subject.s];
  if (peer.s === undefined) {
    if (namespace.n !== (peer.n || "")) return "other namespace";
  } else if (!namespace.k) {
    return "namespace unknown";
  } else if (!selects(data.selectors[peer.s], namespace.l)) {
    return "namespace labels";
  }
  return peer.p === undefined || selects(data.selectors[peer.p], end.subject.l) ? "" : "pod labels";
}

// portFits reports whether an item of a rule's ports matches a service of a destination, null if that is no pod.
function portFits(port, service, destination) {
  if (!port.n) return port.p === service.p && (!port.f || port.f <= service.port && service.port <= port.l);
  return (port.p === 0 || port.p === service.p) && destination !== null &&
    (destination.p || []).some(n => n.n === port.n && n.p === service.p && n.f === service.port);
}

function portsFit(data, rule, service, destination) {
  return !rule.p || rule.p.some(i => portFits(data.ports[i], service, destination));
}

// word returns 32 bits of a set of flows; null is all of them.
function word(set, w) { return set === null ? 0xffffffff : set[w]; }

function isEmpty(set) { return set.every(w => w === 0); }

// ask asks rules about a set of flows of a subject, in the order of policy.Question.Ask: those of the Admin tier, those of NetworkPolicies
// if they isolate the subject, and those of the Baseline tier if they do not. It calls decide with each decision and its flows.
function ask({admin, allowing, baseline, isolated}, exempt, flows, matches, decide) {
  const rules = (list, rest) => {
    const passed = new Uint32Array(rest.length);
    for (const rule of list) {
      if (isEmpty(rest)) break;
      const matched = matches(rule), action = rule.a || "Accept", both = rest.map((bits, w) => bits & word(matched, w));
      if (isEmpty(both)) continue;
      decide(action, rule, both, "");
      rest = rest.map((bits, w) => bits & ~both[w]);
      if (action === "Pass") both.forEach((bits, w) => { passed[w] |= bits; });
    }
    return rest.map((bits, w) => bits | passed[w]);
  };
  const rest = rules(admin, flows), end = (action, set, cause) => { if (!isEmpty(set)) decide(action, null, set, cause); };
  if (isolated && exempt) end("Accept", rest, "exempt");
  else if (isolated) end("Deny", rules(allowing, rest), "no rule");
  else end("Accept", rules(baseline, rest), exempt ? "exempt" : "not isolated");
}

function newEngine(data) {
  const ends = [];
  data.classes.forEach((c, number) => {
    c.subject = c.s < 0 ? null : data.subjects[c.s];
    c.ends = c.a.map((text, i) => {
      ends.push({number: ends.length, cls: number, i, text, addr: parseAddr(text), subject: c.subject, name: c.n || "",
        nodes: c.o && c.o[i] || null, stands: c.d || "", alone: null});
      return ends.at(-1);
    });
  });
  for (const a of data.alone || []) {
    const end = data.classes[a.c].ends[a.e];
    end.alone = a;
    const owner = a.r < 0 ? null : data.subjects[a.r];
    end.subject = owner || end.subject;
  }
  let rules = 0;
  for (const p of [...data.policies || [], ...data.cluster || []]) for (const d of p.r) for (const r of d || []) r.id = rules++;
  const size = (ends.length + 31) >> 5, has = (set, i) => set === null || (set[i >> 5] & 1 << (i & 31)) !== 0;
  const empty = () => new Uint32Array(size);
  const matching = new Map(); // rule -> ends that match its peers

  function peersOf(rule) {
    if (!rule.e) return null;
    let set = matching.get(rule);
    if (set) return set;
    set = empty();
    for (const i of rule.e) {
      const peer = data.peers[i];
      if (!peer.set) {
        peer.set = empty();
        for (const e of ends) if (mismatch(data, peer, e) === "") peer.set[e.number >> 5] |= 1 << (e.number & 31);
      }
      for (let w = 0; w < size; w++) set[w] |= peer.set[w];
    }
    matching.set(rule, set);
    return set;
  }

  // matched returns the ends that match a rule with its ports; those of ingress have been compared.
  function matched(rule, d, service) {
    const peers = peersOf(rule);
    if (d === INGRESS || !rule.p) return peers;
    if (!rule.p.some(i => data.ports[i].n)) return portsFit(data, rule, service, null) ? peers : empty();
    const set = empty();
    for (const e of ends) if (has(peers, e.number) && portsFit(data, rule, service, e.subject)) set[e.number >> 5] |= 1 << (e.number & 31);
    return set;
  }

  // side returns the ends that policies allow a subject to exchange flows with in a direction; null for all.
  function side(subject, d, service, known) {
    const c = subject.c[d];
    if (!c.i && !c.a && !c.b) return null;
    const counts = rule => d === EGRESS || portsFit(data, rule, service, subject);
    const rulesOf = (of, list) => (of || []).flatMap(i => list[i].r[d] || []).filter(counts);
    const of = {admin: rulesOf(c.a, data.cluster), allowing: rulesOf(c.p, data.policies), baseline: rulesOf(c.b, data.cluster), isolated: c.i};
    const key = [of.admin, of.allowing, c.i ? [] : of.baseline].map(rules => rules.map(r => r.id).join()).join(c.i ? " i " : " o ");
    let fit = known.get(key);
    if (fit) return fit;
    fit = empty();
    ask(of, false, empty().fill(0xffffffff), rule => matched(rule, d, service), (action, rule, flows) => {
      if (action === "Accept") flows.forEach((bits, w) => { fit[w] |= bits; });
    });
    known.set(key, fit);
    return fit;
  }

  const aloneEnds = ends.filter(e => e.alone), addresses = data.peers.some(p => p.d) ? ends.filter(e => !e.subject && !e.stands) : [];

  // rowsOf returns for each end the ends that it reaches on a service. It adds those of which that is not known to a list for each end.
  function rowsOf(service, unknown) {
    const knownIn = new Map(), knownOut = new Map(), open = empty(), bySet = new Map();
    const sideOf = (e, d, known, seen) => {
      if (!data.classes[e.cls].subject) return null;
      const of = data.classes[e.cls].subject;
      if (!seen.has(of)) seen.set(of, side(of, d, service, known));
      return seen.get(of);
    };
    const seenIn = new Map(), seenOut = new Map();
    for (const e of ends) {
      const set = sideOf(e, INGRESS, knownIn, seenIn);
      if (set === null) {
        open[e.number >> 5] |= 1 << (e.number & 31);
      } else {
        if (!bySet.has(set)) bySet.set(set, []);
        bySet.get(set).push(e.number);
      }
    }
    const rows = ends.map(() => open.slice());
    for (const [set, targets] of bySet) {
      for (let w = 0; w < size; w++) {
        for (let bits = set[w]; bits !== 0; bits &= bits - 1) {
          const from = (w << 5) + 31 - Math.clz32(bits & -bits);
          if (from >= ends.length) continue;
          const row = rows[from];
          for (const t of targets) row[t >> 5] |= 1 << (t & 31);
        }
      }
    }
    for (const e of ends) {
      const set = sideOf(e, EGRESS, knownOut, seenOut);
      if (set !== null) for (let w = 0; w < size; w++) rows[e.number][w] &= set[w];
    }
    const put = (a, b) => {
      const bit = 1 << (b.number & 31), at = b.number >> 5, allowed = decide(data, a, b, service, null);
      if (allowed) rows[a.number][at] |= bit; else rows[a.number][at] &= ~bit;
      if (allowed === null) unknown[a.number].add(b.number);
    };
    for (const e of aloneEnds) for (const f of ends) { put(e, f); put(f, e); }
    for (const e of addresses) for (const f of ends) put(f, e);
    return rows;
  }

  // relation returns reachability on every one of some services, and on any of them.
  function relation(services) {
    const unknown = ends.map(() => new Set());
    let every = null, any = null;
    for (const s of services) {
      const rows = rowsOf(s, unknown);
      if (!every) {
        [every, any] = services.length === 1 ? [rows, rows] : [rows, rows.map(r => r.slice())];
        continue;
      }
      rows.forEach((row, i) => {
        for (let w = 0; w < size; w++) { every[i][w] &= row[w]; any[i][w] |= row[w]; }
      });
    }
    // between returns the letter of a pair of classes: a allowed, d denied, p partly, u unknown, n never.
    const between = (from, to) => {
      let flows = 0, allowed = 0, some = 0, open = false;
      for (const a of data.classes[from].ends) {
        for (const b of data.classes[to].ends) {
          if (a.addr && b.addr && a.addr.length !== b.addr.length) continue;
          flows++;
          if (has(every[a.number], b.number)) allowed++;
          if (has(any[a.number], b.number)) some++;
          open ||= unknown[a.number].has(b.number);
        }
      }
      return flows === 0 ? "n" : allowed === flows ? "a" : some > 0 ? "p" : open ? "u" : "d";
    };
    return {between};
  }
  return {relation};
}
