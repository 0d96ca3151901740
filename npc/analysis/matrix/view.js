const SIZE = 24, MAX_HEAD = 190, MAX_SIDE = 230, SPARE = 6; // pixels of a cell, of the headings at most, and cells drawn beyond the window
const SIGNS = {a: "+", d: "\u00d7", p: "~", u: "?", n: "\u2013", x: ""};
const byId = id => document.getElementById(id);

function element(name, attributes, text) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// readData returns what the page holds. A list that is empty is null there.
function readData() {
  const data = JSON.parse(byId("data").textContent);
  for (const [name, list] of Object.entries(data)) data[name] = list ?? [];
  return data;
}

function main() {
  const data = readData(), engine = newEngine(data), axes = [newAxis(data, isRow), newAxis(data, isColumn)];
  // TCP comes first, and the ports that rules name before the others.
  const rank = g => [6, 17, 132, 1].indexOf(g.p) * 2 + (g.t.includes("every") ? 1 : 0);
  const groups = data.services.map(g => ({...g, port: g.r ? g.r[0][0] : 0})).sort((a, b) => rank(a) - rank(b));
  const state = {};
  let items = [[], []], services = groups, head = MAX_HEAD, side = MAX_SIDE, cells = null, active = [0, 0], drawn = "", selected = null;
  const relations = new Map(); // port -> cells

  // service returns what a text such as tcp/80 means, or null.
  function service(text) {
    const [name, port] = text.split("/"), number = {tcp: 6, udp: 17, sctp: 132, icmp: 1}[name], n = Number(port || 0);
    const group = groups.find(g => g.p === number && (!g.r || g.r.some(r => r[0] <= n && n <= r[1])));
    return group ? {...group, port: n, a: text} : null;
  }

  function words(letter) {
    if (letter === "p") return "allowed in part";
    const every = state.port === "all" ? " on every port" : "";
    return {a: "allowed" + every, d: "denied" + every, u: "unknown", n: "no address family in common", x: "not asked for"}[letter];
  }

  // read takes the state from the address of the page.
  function read() {
    const p = new URLSearchParams(location.hash.slice(1)), level = Number(p.get("level") ?? data.level);
    const first = data.port || "all", port = p.get("port") || first;
    Object.assign(state, {port: port === "all" || service(port) ? port : first, from: p.get("from") || "", to: p.get("to") || "",
      level: [NAMESPACES, KINDS, PODS].includes(level) ? level : data.level, rows: new Set(p.getAll("row")), columns: new Set(p.getAll("column")),
      source: p.get("source"), destination: p.get("destination"), why: p.has("why"),
      theme: ["light", "dark"].includes(p.get("theme")) ? p.get("theme") : ""});
  }

  // write puts the state into the address of the page.
  function write() {
    const p = new URLSearchParams({port: state.port, level: state.level});
    for (const name of ["from", "to", "source", "destination", "theme"]) if (state[name]) p.set(name, state[name]);
    for (const key of state.rows) p.append("row", key);
    for (const key of state.columns) p.append("column", key);
    if (state.why) p.set("why", "1");
    history.replaceState(null, "", "#" + p);
  }

  function choosePort() {
    const one = state.port === "all" ? null : service(state.port);
    services = one ? [one] : groups;
    if (!relations.has(state.port)) {
      if (relations.size > 8) relations.clear();
      relations.set(state.port, newCells(data, engine.relation(services)));
    }
    cells = relations.get(state.port);
    const select = byId("port"), options = [["all", "every port"], ...groups.map(g => [g.a, g.t])];
    if (one && !groups.some(g => g.a === one.a)) options.splice(1, 0, [one.a, one.a]);
    select.replaceChildren(...options.map(([value, text]) => element("option", {value}, text)));
    select.value = state.port;
    byId("unknown").hidden = !data.peers.some(p => p.d);
    for (const letter of "apd") byId("word-" + letter).textContent = words(letter);
    document.title = "Reachability: " + (one ? one.a : "every port");
  }

  // lay makes the lists of rows and columns anew. The cell that is active stays so if it is there.
  function lay() {
    const lists = [[axes[0], state.rows, state.from], [axes[1], state.columns, state.to]];
    items = lists.map(([axis, toggled, text]) => axis.items({level: state.level, toggled}, text.trim().toLowerCase()));
    const at = (list, key) => Math.max(0, list.findIndex(i => i.key === key));
    active = [at(items[0], state.source), at(items[1], state.destination)];
    state.why = state.why && items.every(list => list.length > 0);
    byId("count").textContent = items[0].length + " rows \u00d7 " + items[1].length + " columns";
    const longest = items[1].reduce((n, i) => Math.max(n, i.label.length + 2 * i.depth), 8);
    head = Math.round(Math.min(MAX_HEAD, 30 + 7.5 * longest, Math.max(90, innerHeight / 5)));
    side = Math.round(Math.min(MAX_SIDE, Math.max(110, innerWidth / 3)));
    const sheet = byId("sheet"), width = side + items[1].length * SIZE;
    sheet.style.width = width + "px";
    sheet.style.height = head + items[0].length * SIZE + "px";
    byId("grid").setAttribute("aria-rowcount", items[0].length + 1);
    byId("grid").setAttribute("aria-colcount", items[1].length + 1);
    drawn = "";
    draw();
  }

  // range returns the first and the last item of an axis that are in the window, and some beyond.
  function range(scrolled, visible, count) {
    const first = Math.max(0, Math.floor(scrolled / SIZE / SPARE) * SPARE - SPARE);
    return [first, Math.min(count, Math.ceil((scrolled + visible) / SIZE / SPARE) * SPARE + SPARE)];
  }

  function heading(item, role, at) {
    const sign = item.fold ? item.open ? "\u25be " : "\u25b8 " : "";
    const e = element("div", {role, class: "d" + item.depth + (item.fold ? " fold" : ""), title: item.title, id: role[0] + at}, sign + item.label);
    e.setAttribute("aria-label", item.title);
    if (item.fold) e.setAttribute("aria-expanded", item.open);
    return e;
  }

  function draw() {
    const grid = byId("grid");
    const [top, bottom] = range(grid.scrollTop, grid.clientHeight || innerHeight, items[0].length);
    const [left, right] = range(grid.scrollLeft, grid.clientWidth || innerWidth, items[1].length);
    const now = [top, bottom, left, right].join();
    if (now === drawn) return mark();
    drawn = now;
    const heads = element("div", {id: "heads", role: "row", "aria-rowindex": 1}), rows = element("div", {id: "rows", role: "rowgroup"});
    heads.style.height = head + "px";
    const corner = element("div", {id: "corner", role: "presentation"}, "from \u2193  to \u2192");
    corner.style.width = side + "px";
    heads.append(corner);
    for (let j = left; j < right; j++) {
      const h = heading(items[1][j], "columnheader", j);
      h.style.left = side + j * SIZE + "px";
      h.setAttribute("aria-colindex", j + 2);
      heads.append(h);
    }
    for (let i = top; i < bottom; i++) rows.append(rowOf(i, left, right));
    rows.append(element("div", {class: "band", id: "band-row"}), element("div", {class: "band", id: "band-column"}));
    const group = element("div", {role: "rowgroup"});
    group.style.display = "contents";
    group.append(heads);
    byId("sheet").replaceChildren(group, rows);
    mark();
  }

  function rowOf(i, left, right) {
    const item = items[0][i], row = element("div", {role: "row", "aria-rowindex": i + 2});
    row.style.top = i * SIZE + "px";
    row.style.width = side + items[1].length * SIZE + "px";
    const head = heading(item, "rowheader", i);
    head.style.width = side + "px";
    head.setAttribute("aria-colindex", 1);
    row.append(head);
    for (let j = left; j < right; j++) {
      const letter = cells.letter(item, items[1][j]);
      const cell = element("div", {role: "gridcell", class: "cell " + letter, id: "x" + i + "-" + j, "aria-colindex": j + 2}, SIGNS[letter]);
      cell.setAttribute("aria-label", item.title + " \u2192 " + items[1][j].title + ": " + words(letter));
      cell.title = cell.getAttribute("aria-label");
      cell.style.left = side + j * SIZE + 1 + "px";
      row.append(cell);
    }
    return row;
  }

  // mark shows which cell is active, with its row and column.
  function mark() {
    const grid = byId("grid"), [r, c] = active;
    for (const e of grid.querySelectorAll(".active, .on")) e.classList.remove("active", "on");
    for (const e of grid.querySelectorAll("[aria-selected]")) e.removeAttribute("aria-selected");
    const row = byId("r" + r), column = byId("c" + c), at = r < 0 ? column : c < 0 ? row : byId("x" + r + "-" + c);
    if (row) row.classList.add("on");
    if (column) column.classList.add("on");
    const bands = [byId("band-row"), byId("band-column")];
    bands[0].hidden = r < 0;
    bands[1].hidden = c < 0;
    Object.assign(bands[0].style, {top: r * SIZE + "px", left: "0", height: SIZE + "px", width: side + items[1].length * SIZE + "px"});
    Object.assign(bands[1].style, {top: "0", left: side + c * SIZE + "px", width: SIZE + "px", height: items[0].length * SIZE + "px"});
    if (!at) {
      grid.removeAttribute("aria-activedescendant");
      return;
    }
    at.classList.add("active");
    at.setAttribute("aria-selected", "true");
    grid.setAttribute("aria-activedescendant", at.id);
  }

  // go makes a cell active and brings it into view. Index -1 is a heading.
  function go(r, c) {
    if (items.some(list => list.length === 0)) return;
    active = [Math.min(Math.max(r, -1), items[0].length - 1), Math.min(Math.max(c, -1), items[1].length - 1)];
    if (active[0] < 0 && active[1] < 0) active = r < 0 ? [-1, 0] : [0, -1];
    state.source = active[0] < 0 ? null : items[0][active[0]].key;
    state.destination = active[1] < 0 ? null : items[1][active[1]].key;
    const grid = byId("grid");
    const into = (i, scrolled, visible, head) => {
      if (i < 0) return scrolled;
      return Math.max(Math.min(scrolled, i * SIZE), (i + 1) * SIZE + head - visible + 4);
    };
    grid.scrollTop = into(active[0], grid.scrollTop, grid.clientHeight, head);
    grid.scrollLeft = into(active[1], grid.scrollLeft, grid.clientWidth, side);
    draw();
    if (state.why) explain();
    write();
  }

  function toggle(axis, item) {
    if (!item.fold) return;
    const toggled = axis === 0 ? state.rows : state.columns;
    if (!toggled.delete(item.key)) toggled.add(item.key);
    const kept = active.slice();
    lay();
    go(kept[0] < 0 ? -1 : active[0], kept[1] < 0 ? -1 : active[1]);
  }

  // unfold opens or closes what a cell is between: both its namespaces, or both its kinds of pods.
  function unfold(open) {
    const keys = active.map((n, axis) => n < 0 ? null : items[axis][n]);
    keys.forEach((item, axis) => {
      if (!item) return;
      let at = item;
      if (!open) for (let i = active[axis]; i >= 0 && !(at.fold && at.open && at.depth <= item.depth); i--) at = items[axis][i];
      if (!at.fold || at.open === open) return;
      const toggled = axis === 0 ? state.rows : state.columns;
      if (!toggled.delete(at.key)) toggled.add(at.key);
      state[axis === 0 ? "source" : "destination"] = at.key;
    });
    lay();
    go(active[0], active[1]);
  }

  // explain shows why the active cell is what it is.
  function explain() {
    const panel = byId("reason"), [from, to] = [items[0][active[0]], items[1][active[1]]];
    const shows = state.why && from && to && cells.letter(from, to) !== "x";
    panel.hidden = !shows;
    if (!shows) return;
    const letter = cells.letter(from, to), close = element("button", {id: "close", type: "button", "aria-label": "close"}, "\u00d7");
    close.addEventListener("click", shut);
    const verdict = element("p", {id: "verdict"}, words(letter));
    verdict.prepend(element("i", {class: "cell " + letter, "aria-hidden": "true"}, SIGNS[letter]));
    panel.replaceChildren(close, element("h2", {}, from.title + " \u2192 " + to.title), verdict);
    if (from.depth === 0 || to.depth === 0) tellCounts(panel, from, to); else tellPair(panel, from, to);
  }

  function tellCounts(panel, from, to) {
    const n = cells.count(from, to);
    panel.append(element("h3", {}, "pairs of workloads"));
    for (const letter of "apdun") if (n[letter] > 0) panel.append(element("p", {}, SIGNS[letter] + " " + n[letter] + " " + words(letter)));
    const more = element("button", {type: "button", id: "unfold"}, "Unfold");
    more.addEventListener("click", () => { unfold(true); byId("grid").focus(); });
    panel.append(element("h3", {}, ""), more);
  }

  // reaches returns the letter of two pods on one service.
  function reaches(a, b, s) {
    const flows = a.flatMap(x => b.filter(y => !x.addr || !y.addr || x.addr.length === y.addr.length).map(y => [x, y]));
    const verdicts = flows.map(([x, y]) => decide(data, x, y, s, null));
    return flows.length === 0 ? "n" : verdicts.every(v => v) ? "a" : verdicts.some(v => v) ? "p" : verdicts.includes(null) ? "u" : "d";
  }

  // ends returns the ends of the pods that stand for two items. Those of one kind are two of its pods.
  function ends(from, to) {
    const a = data.rows[from.rows[0]], b = data.rows[to.rows[0]];
    let [i, j] = [Math.max(from.pod, 0), Math.max(to.pod, 0)];
    if (a === b && several(a) && i === j && !(from.pod >= 0 && to.pod >= 0)) {
      if (to.pod < 0) j = i === 0 ? 1 : 0; else i = j === 0 ? 1 : 0;
    }
    return [endsOf(data, a, i), endsOf(data, b, j)];
  }

  function tellPair(panel, from, to) {
    const [a, b] = ends(from, to);
    let shown = services[0];
    if (services.length > 1) {
      const letters = services.map(s => reaches(a, b, s)), order = [..."apdun"].filter(l => letters.includes(l));
      shown = services.find(s => s.a === selected) || services[letters.indexOf(order[0])];
      const buttons = [];
      for (const letter of order) {
        services.forEach((s, i) => {
          if (letters[i] !== letter) return;
          const button = element("button", {type: "button", "aria-pressed": s === shown, "data-port": s.a}, SIGNS[letter] + " " + s.t);
          button.setAttribute("aria-label", s.t + ": " + ({a: "allowed", d: "denied", p: "allowed in one family"}[letter] || words(letter)));
          button.addEventListener("click", () => {
            selected = s.a;
            explain();
            byId("ports").querySelector("[aria-pressed=true]").focus();
          });
          buttons.push(button);
        });
      }
      const ports = element("div", {id: "ports"});
      ports.append(...buttons);
      panel.append(element("h3", {}, "ports"), ports);
    }
    panel.append(element("h3", {}, shown.t === shown.a ? "why" : "why, for " + shown.t));
    const lines = element("div", {id: "lines"});
    for (const line of explainPair(data, a, b, shown)) {
      const indent = line.length - line.trimStart().length;
      lines.append(element("p", {class: indent === 0 ? "side" : "i" + indent}, line.trimStart()));
    }
    panel.append(lines);
  }

  function why() {
    state.why = true;
    explain();
    go(active[0], active[1]); // the window of the grid may be smaller now
  }

  function shut() {
    state.why = false;
    byId("reason").hidden = true;
    byId("grid").focus();
    draw();
    write();
  }

  function act() {
    if (active[0] < 0) return toggle(1, items[1][active[1]]);
    if (active[1] < 0) return toggle(0, items[0][active[0]]);
    why();
  }

  function key(event) {
    const [r, c] = active, grid = byId("grid"), all = event.ctrlKey || event.metaKey;
    const page = Math.max(1, Math.floor((grid.clientHeight - head) / SIZE) - 1);
    const moves = {ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1],
      PageUp: [Math.max(r - page, Math.min(r, 0)), c], PageDown: [r + page, c], Home: [all ? 0 : r, 0], End: [all ? items[0].length - 1 : r, items[1].length - 1]};
    if (moves[event.key]) go(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") act();
    else if (event.key === "+") unfold(true);
    else if (event.key === "-") unfold(false);
    else return;
    event.preventDefault();
  }

  function click(event) {
    const e = event.target.closest("[id]"), id = e ? e.id : "";
    const head = /^([rc])(\d+)$/.exec(id), cell = /^x(\d+)-(\d+)$/.exec(id);
    if (head) {
      go(head[1] === "r" ? Number(head[2]) : -1, head[1] === "c" ? Number(head[2]) : -1);
      act();
    } else if (cell) {
      go(Number(cell[1]), Number(cell[2]));
      why();
    }
  }

  // name has the title of a cell say which ports are allowed.
  function name(event) {
    const cell = event.target, at = /^x(\d+)-(\d+)$/.exec(cell.id);
    if (!at || services.length < 2) return;
    const from = items[0][at[1]], to = items[1][at[2]];
    if (from.depth === 0 || to.depth === 0 || cells.letter(from, to) !== "p") return;
    const [a, b] = ends(from, to), allowed = services.filter(s => reaches(a, b, s) === "a").map(s => s.t);
    if (allowed.length > 0) cell.title = cell.getAttribute("aria-label") + "\nallowed: " + allowed.join(", ");
  }

  function show() {
    read();
    byId("origin").textContent = data.origin || "";
    for (const name of ["from", "to", "level", "theme"]) byId(name).value = state[name];
    document.documentElement.dataset.theme = state.theme;
    choosePort();
    lay();
    explain();
    if (state.source !== null || state.destination !== null) go(state.source === null ? -1 : active[0], state.destination === null ? -1 : active[1]);
    write();
  }

  const change = () => { lay(); explain(); write(); };
  byId("from").addEventListener("input", () => { state.from = byId("from").value; change(); });
  byId("to").addEventListener("input", () => { state.to = byId("to").value; change(); });
  byId("level").addEventListener("change", () => {
    state.level = Number(byId("level").value);
    state.rows.clear();
    state.columns.clear();
    change();
  });
  byId("port").addEventListener("change", () => { state.port = byId("port").value; choosePort(); change(); });
  byId("theme").addEventListener("change", () => {
    state.theme = document.documentElement.dataset.theme = byId("theme").value;
    write();
  });
  byId("grid").addEventListener("keydown", key);
  byId("grid").addEventListener("click", click);
  byId("grid").addEventListener("mouseover", name);
  byId("grid").addEventListener("scroll", () => requestAnimationFrame(draw), {passive: true});
  document.addEventListener("keydown", event => { if (event.key === "Escape" && state.why) shut(); });
  addEventListener("resize", () => requestAnimationFrame(lay));
  addEventListener("hashchange", show);
  show();
  requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.drawn = Math.round(performance.now()); }));
}
main();
