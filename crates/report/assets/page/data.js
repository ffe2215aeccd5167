// The space-time diagram: draws the embedded data, zooms, pans, and describes what is under the pointer. Makes no
// judgements about the run. Times are in microseconds since the application started. This file unpacks the data (as
// packed by `diagram/pack.rs`), and selects messages.
let data = JSON.parse(document.getElementById("data").textContent);
const plot = document.getElementById("plot"), overview = document.getElementById("overview");
const byId = id => document.getElementById(id);
const setText = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };
const DELIVERED = 0, UNDONE = 1, RESENT = 2, STALE = 3, LOST = 4;
const lanes = data.lanes.length;

// Reads integers of variable length.
function reader(text) {
  const bytes = atob(text);
  let place = 0;
  const number = () => {
    let value = 0, weight = 1;
    for (;;) {
      const byte = bytes.charCodeAt(place++);
      value += (byte & 127) * weight;
      if (byte < 128) return value;
      weight *= 128;
    }
  };
  const signed = () => unfold(number());
  return { number, signed, more: () => place < bytes.length };
}
const unfold = value => value % 2 ? -(value + 1) / 2 : value / 2;

// What `unpack` reads from the data. The messages are ordered by time of sending, with one array per attribute. A message
// that never arrived has no number in `arrived`. `selected` tells whether each message is drawn and counted.
let messages, slowest, checkpoints, recoveries, undone, returns, selected;

// Takes over the data of the page or, while a run is in progress, newer data about the same processes.
function unpack(fresh) {
  data = fresh;
  messages = unpackMessages();
  data.messages = null;
  slowest = 0;
  for (let i = 0; i < messages.size; i++) slowest = Math.max(slowest, messages.arrived[i] - messages.sent[i] || 0);
  checkpoints = unpackCheckpoints();
  recoveries = spans(data.recoveries);
  undone = spans(data.undone);
  returns = {};
  for (const it of data.rollbacks) for (const [lane, restored, saved] of it.members) (returns[lane] ||= []).push([restored, saved]);
  selected = new Uint8Array(messages.size);
}

function unpackMessages() {
  const size = data.kept, { number, signed } = reader(data.messages), channels = new Map();
  const all = { size, from: new Uint32Array(size), to: new Uint32Array(size), sent: new Float64Array(size),
    arrived: new Float64Array(size), fate: new Uint8Array(size), content: new Uint8Array(size),
    number: new Uint32Array(size), incarnation: new Uint32Array(size) };
  for (let i = 0, sent = data.begin; i < size; i++) {
    all.sent[i] = sent += signed();
    const from = all.from[i] = number(), to = all.to[i] = from + signed(), flight = number(), kinds = number();
    all.arrived[i] = flight ? sent + unfold(flight - 1) : NaN;
    all.fate[i] = kinds & 7;
    all.content[i] = kinds >> 3 & 3;
    const channel = from * lanes + to, last = channels.get(channel);
    let next = last === undefined ? 0 : all.number[last] + 1, incarnation = last === undefined ? 0 : all.incarnation[last];
    if (!(kinds & 32)) {
      next += signed();
      incarnation += signed();
    }
    all.number[i] = next;
    all.incarnation[i] = incarnation;
    channels.set(channel, i);
  }
  return all;
}
const hasArrived = i => messages.arrived[i] === messages.arrived[i];

function unpackCheckpoints() {
  const { number, signed, more } = reader(data.checkpoints), all = [];
  let from = data.begin;
  while (more()) {
    from += signed();
    const upto = from + signed(), committed = upto + signed(), kind = number(), sn = number(), incarnation = number();
    const first = number(), last = first + number(), members = new Array(number());
    for (let i = 0, lane = first; i < members.length; i++) members[i] = [lane += number(), from + signed()];
    all.push({ from, upto, committed, kind: ["initial", "unforced", "forced"][kind & 3], undone: kind > 3, first, last, members,
      name: sn + (incarnation ? ` (incarnation ${incarnation})` : "") });
  }
  return all;
}

const spans = list => list.map(([lane, from, upto]) => ({ lane, from, upto }));
unpack(data);

const group = new Uint32Array(lanes);
data.clusters.forEach((c, index) => group.fill(index, c.first, c.first + c.lanes));
const isBetween = i => group[messages.from[i]] !== group[messages.to[i]];

const shown = {};
for (const box of document.querySelectorAll("[data-layer]")) {
  shown[box.dataset.layer] = box.checked;
  box.addEventListener("change", () => { shown[box.dataset.layer] = box.checked; applyFilters(); });
}
function layerOf(fate, between) {
  if (fate === UNDONE || fate === STALE) return between || shown.within ? "undone" : "within";
  if (fate === RESENT) return "resent";
  return between ? "between" : "within";
}

const LONG = 1000e6, isLong = () => data.end >= LONG;
function seconds(at, digits) {
  if (isLong()) return clock(at, digits);
  return (at / 1e6).toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
}
// h:mm:ss
function clock(at, digits) {
  const whole = Math.abs(at) / 1e6, minutes = Math.floor(whole / 60), rest = (whole - minutes * 60).toFixed(digits);
  if (+rest >= 60) return clock(Math.sign(at) * (minutes + 1) * 60e6, digits);
  const pad = text => (/^\d(\.|$)/.test(text) ? "0" : "") + text;
  return (at < 0 && whole > 0 ? "-" : "") + Math.floor(minutes / 60) + ":" + pad(String(minutes % 60)) + ":" + pad(rest);
}
const moment = (at, digits) => isLong() ? clock(at, digits) : seconds(at, digits) + " s";
function span(us) {
  return us >= LONG ? clock(us, 0) : us >= 1e6 ? (us / 1e6).toFixed(2) + " s" : us >= 1e3 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + " ms" : us + " us";
}
const count = (n, one, many) => `${n.toLocaleString("en-GB")} ${n === 1 ? one : many}`;

// --- filters

const filter = { lanes: null, fate: null, link: null };
let past = null, missing = null;

function matches(from, to, fate) {
  return (!filter.lanes || filter.lanes.has(from) || filter.lanes.has(to))
    && (filter.fate === null || fate === filter.fate)
    && (!filter.link || (group[from] === filter.link[0] && group[to] === filter.link[1]));
}

function applyFilters() {
  let some = 0;
  for (let i = 0; i < messages.size; i++) {
    const fate = messages.fate[i];
    some += selected[i] = +(shown[layerOf(fate, isBetween(i))] && (!past || past.has(i)) && matches(messages.from[i], messages.to[i], fate));
  }
  tell(some);
  profiled = null;
  redraw();
}

// Shows how many messages are drawn or counted, as text for all readers.
function tell(some) {
  const isPart = messages.size < data.total;
  // If messages are omitted, their part of the causal past is unknown.
  const least = isPart ? "at least " : "";
  const what = past ? `; the causal past of ${nameOf(past.of)} contains ${least}${count(past.size - 1, "message", "messages")}, involves ${count(past.lanes, "process", "processes")}, and begins at ${moment(past.since, 4)}`
    : missing ? `; no message has the name ${missing}` : "";
  const all = isPart ? `${messages.size.toLocaleString("en-GB")} in this page; the run has ${count(data.total, "message", "messages")}` : count(messages.size, "message", "messages");
  document.getElementById("count").textContent = `${some.toLocaleString("en-GB")} of ${all}${what}`;
  document.getElementById("forget").hidden = !past;
}

// What could have influenced a message: every delivery at its sender before it was sent, every delivery at the senders
// of those messages before they were sent, and so on. A delivery that a rollback had undone by then does not count.
function pastOf(index) {
  const { from, to, sent, arrived, fate } = messages, found = new Set([index]);
  const upto = new Array(lanes).fill(-Infinity);
  upto[from[index]] = sent[index];
  const order = [...arrived.keys()].filter(i => hasArrived(i) && fate[i] !== STALE).sort((a, b) => arrived[b] - arrived[a]);
  const undoneBy = (lane, at, then) => (returns[lane] || []).some(([restored, saved]) => saved < at && at <= restored && restored <= then);
  let since = sent[index];
  for (const i of order) {
    if (i === index || arrived[i] > upto[to[i]] || undoneBy(to[i], arrived[i], upto[to[i]])) continue;
    found.add(i);
    upto[from[i]] = Math.max(upto[from[i]], sent[i]);
    since = Math.min(since, sent[i]);
  }
  found.of = index;
  found.since = since;
  found.lanes = upto.filter(it => it > -Infinity).length;
  return found;
}
function choose(index) {
  past = index === null ? null : pastOf(index);
  missing = null;
  applyFilters();
}
document.getElementById("forget").addEventListener("click", () => choose(null));

const contents = ["", "stolen task, theft ", "result, theft "];
function nameOf(i) {
  const incarnation = messages.incarnation[i];
  return `${data.lanes[messages.from[i]]}->${data.lanes[messages.to[i]]} ${contents[messages.content[i]]}#${messages.number[i]}` + (incarnation ? ` (incarnation ${incarnation})` : "");
}
const clusterOf = name => data.clusters.findIndex(c => c.name === name);
const FATES = ["delivered", "undone", "resent", "stale", "lost"];
const setters = {
  process: value => {
    const cluster = data.clusters[clusterOf(value)], lane = data.lanes.indexOf(value);
    filter.lanes = cluster ? new Set(Array.from({ length: cluster.lanes }, (_, i) => cluster.first + i)) : lane >= 0 ? new Set([lane]) : null;
  },
  kind: value => { filter.fate = FATES.includes(value) ? FATES.indexOf(value) : null; },
  link: value => {
    const ends = value.split(">").map(clusterOf);
    filter.link = ends.length === 2 && ends.every(it => it >= 0) ? ends : null;
    // Messages within a cluster are shown only on request.
    if (filter.link && ends[0] === ends[1]) setLayer("within", true);
  },
  // The first message with this name, such as `paris-0->rennes-0 #13`.
  past: value => {
    const index = messages.sent.findIndex((_, i) => nameOf(i) === value);
    past = index >= 0 ? pastOf(index) : null;
    missing = past ? null : value;
    if (past && !isBetween(index)) setLayer("within", true);
  },
};
function setLayer(layer, on) {
  shown[layer] = on;
  document.querySelector(`[data-layer="${layer}"]`).checked = on;
}
for (const select of document.querySelectorAll("select[data-filter]")) {
  select.addEventListener("change", () => { setters[select.dataset.filter](select.value); applyFilters(); });
}
// The address of the page can contain filters: `report.html#process=paris-0&kind=resent`.
function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const [name, set] of Object.entries(setters)) {
    if (!asked.has(name)) continue;
    const select = document.querySelector(`select[data-filter="${name}"]`);
    if (select) select.value = asked.get(name);
    set(asked.get(name));
  }
  const [from, upto] = ["from", "upto"].map(it => asked.has(it) ? +asked.get(it) * 1e6 : NaN);
  if (from < upto) look(from, upto);
  applyFilters();
}
addEventListener("hashchange", readAddress);
