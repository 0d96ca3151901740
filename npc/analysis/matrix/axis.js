// The levels to which rows and columns are unfolded.
const NAMESPACES = 0, KINDS = 1, PODS = 2;
const isRow = 1, isColumn = 2;

// podName returns the name of one of a row's pods, or of the other pod of a workload that one stands for.
function podName(row, pod) { return row.p === undefined && !row.d ? "" : (row.p || "") + (row.d[pod] ?? row.t); }

// several reports whether a row has two pods, or one that stands for all of a workload.
function several(row) { return (row.d || []).length > 1 || Boolean(row.t); }

// endsOf returns the ends of one of a row's pods, or of its address.
function endsOf(data, row, pod) {
  const ends = data.classes[row.c].ends;
  if (!row.d) return ends;
  return ends.map((e, i) => {
    const text = row.a[pod * ends.length + i];
    return {...e, text, addr: parseAddr(text), name: podName(row, pod)};
  });
}

// newAxis returns the rows or the columns: namespaces that unfold to kinds of pods, and those to pods.
function newAxis(data, axis) {
  const groups = [];
  data.rows.forEach((row, number) => {
    if (!(row.x & axis)) return;
    const name = row.s < 0 ? row.s === -1 ? "addresses" : "domain names" : data.namespaces[row.s].n;
    if (groups.length === 0 || groups.at(-1).s !== row.s) groups.push({s: row.s, name, rows: []});
    groups.at(-1).rows.push(number);
  });
  const isOpen = (depth, key, state) => depth < state.level !== state.toggled.has(key);
  const podsOf = row => (row.d || []).map((_, i) => i);

  // items returns what is shown. Wanted is a part of names in lower case; others are left out.
  function items(state, wanted) {
    const out = [];
    const fits = name => name.toLowerCase().includes(wanted);
    for (const g of groups) {
      const rows = g.rows.filter(n => fits(data.rows[n].n) || podsOf(data.rows[n]).some(i => fits(podName(data.rows[n], i))));
      if (rows.length === 0) continue;
      const key = g.name + "/", open = isOpen(0, key, state);
      out.push({key, depth: 0, label: g.name, title: g.s < 0 ? g.name : "namespace " + g.name, rows, pod: -1, fold: true, open});
      if (!open) continue;
      for (const n of rows) {
        const row = data.rows[n], fold = podsOf(row).length > 1, unfolded = fold && isOpen(1, row.n, state);
        const label = row.n.startsWith(key) ? row.n.slice(key.length) : row.n;
        out.push({key: row.n, depth: 1, label, title: row.n, rows: [n], pod: -1, fold, open: unfolded});
        if (!unfolded) continue;
        for (const pod of podsOf(row)) {
          const name = podName(row, pod);
          if (!fits(row.n) && !fits(name)) continue;
          const short = name.startsWith(key) ? name.slice(key.length) : name;
          out.push({key: name, depth: 2, label: short, title: name, rows: [n], pod, fold: false, open: false});
        }
      }
    }
    return out;
  }
  return {items};
}

// newCells returns the letters of cells between items: a allowed, d denied, p partly, u unknown, n never, x not asked for.
function newCells(data, relation) {
  const known = new Map(); // keys of two items -> the letter
  const classes = new Map();
  const between = (a, b) => {
    const key = a * data.classes.length + b;
    let letter = classes.get(key);
    if (letter === undefined) classes.set(key, letter = relation.between(a, b));
    return letter;
  };
  const asked = (a, b) => !data.either || [a, b].some(r => r.s >= 0 && data.namespaces[r.s].n === data.either);

  // pair returns the letter of two rows, or of one of their pods; s for one pod with itself.
  function pair(from, fromPod, to, toPod) {
    const a = data.rows[from], b = data.rows[to];
    if (!asked(a, b)) return "x";
    if (from === to && (!several(a) || fromPod >= 0 && fromPod === toPod)) return "s";
    return between(a.c, b.c);
  }

  // count returns how many pairs of rows have each letter.
  function count(from, to) {
    const n = {a: 0, d: 0, p: 0, u: 0, n: 0, x: 0, s: 0};
    for (const i of from.rows) for (const j of to.rows) n[pair(i, from.pod, j, to.pod)]++;
    return n;
  }

  function together(from, to) {
    const seen = new Set();
    for (const i of from.rows) {
      for (const j of to.rows) {
        seen.add(pair(i, from.pod, j, to.pod));
        if (seen.has("p") || seen.has("a") && (seen.has("d") || seen.has("u"))) return "p";
      }
    }
    const found = [..."audsnx"].find(letter => seen.has(letter));
    return found === "s" ? "a" : found;
  }

  function letter(from, to) {
    const key = from.key + "\n" + to.key + "\n" + from.rows.length + "\n" + to.rows.length;
    if (!known.has(key)) known.set(key, together(from, to));
    return known.get(key);
  }
  return {letter, count};
}
