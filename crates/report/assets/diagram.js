// The space-time diagram: draws the embedded data, zooms, pans, and describes what is under the pointer. Makes no
// judgements about the run. Times are in microseconds since the application started.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const plot = document.getElementById("plot"), overview = document.getElementById("overview");
const tip = document.getElementById("tip"), g = plot.getContext("2d");
const DELIVERED = 0, UNDONE = 1, RESENT = 2, STALE = 3, LOST = 4;
const TOP = 54, AXIS = 30, GAP = 28, OVERVIEW = 40, RIGHT = 12;
const FONT = "system-ui,-apple-system,'Segoe UI',Roboto,sans-serif";

// Messages arrive as [from, to, sent, arrived or -1, fate, between, number, incarnation, content].
const messages = data.messages.map(([from, to, sent, arrived, fate, between, number, incarnation, content]) =>
  ({ from, to, sent, arrived: arrived < 0 ? null : arrived, fate, between: between === 1, number, incarnation, content }));
const slowest = messages.reduce((most, m) => Math.max(most, m.arrived === null ? 0 : m.arrived - m.sent), 0);

const lanes = data.lanes.length;
const group = new Array(lanes);
data.clusters.forEach((c, index) => { for (let i = 0; i < c.lanes; i++) group[c.first + i] = index; });
const LONG = 1000e6, isLong = data.end >= LONG;

// If too many messages are in view, shades show their density, and the lanes of large clusters are narrow.
const MOST_LINES = 2500, MOST_EXPANDED = 24, COLLAPSED = 150;
const expanded = lanes <= 16 ? 30 : lanes <= 40 ? 22 : lanes <= 90 ? 14 : 9;
let dense = false, laneHeight = expanded, bottom = TOP;
const y = lane => TOP + (lane + .5) * laneHeight + group[lane] * GAP;

// Chooses the heights of the lanes. Returns whether that changed anything.
function lay() {
  const most = Math.max(1, ...data.clusters.map(c => c.lanes));
  const before = laneHeight;
  laneHeight = dense && lanes > MOST_EXPANDED ? Math.min(expanded, Math.max(1.5, COLLAPSED / most)) : expanded;
  bottom = lanes ? y(lanes - 1) + laneHeight / 2 : TOP;
  return laneHeight !== before;
}
lay();

const margin = (data.end - data.begin) * .01;
const whole = { from: data.begin - margin, upto: data.end + margin };
const view = { ...whole };
const shown = {};
for (const box of document.querySelectorAll("[data-layer]")) {
  shown[box.dataset.layer] = box.checked;
  box.addEventListener("change", () => { shown[box.dataset.layer] = box.checked; tell(); redraw(); });
}

let width = 0, left = 90, colors = {};
const x = at => left + (at - view.from) / (view.upto - view.from) * (width - left - RIGHT);
const instant = px => view.from + (px - left) / (width - left - RIGHT) * (view.upto - view.from);
const clusterColor = lane => colors["c" + group[lane] % 6];

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "wash", "ink", "faint", "grid", "bad", "undone", "recovering", "down", "resent",
    "c0", "c1", "c2", "c3", "c4", "c5"]) colors[name] = style.getPropertyValue("--" + name).trim();
}

function seconds(at, digits) {
  if (isLong) return clock(at, digits);
  return (at / 1e6).toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
}
// h:mm:ss
function clock(at, digits) {
  const whole = Math.abs(at) / 1e6, minutes = Math.floor(whole / 60), rest = (whole - minutes * 60).toFixed(digits);
  if (+rest >= 60) return clock(Math.sign(at) * (minutes + 1) * 60e6, digits);
  const pad = text => (/^\d(\.|$)/.test(text) ? "0" : "") + text;
  return (at < 0 && whole > 0 ? "-" : "") + Math.floor(minutes / 60) + ":" + pad(String(minutes % 60)) + ":" + pad(rest);
}
const moment = (at, digits) => isLong ? clock(at, digits) : seconds(at, digits) + " s";
function span(us) {
  return us >= LONG ? clock(us, 0) : us >= 1e6 ? (us / 1e6).toFixed(2) + " s" : us >= 1e3 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + " ms" : us + " us";
}

function size(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
}

function resize() {
  width = plot.parentElement.clientWidth;
  g.font = "12px " + FONT;
  left = Math.ceil(Math.max(60, ...data.lanes.map(name => g.measureText(name).width))) + 18;
  size(plot, bottom + AXIS);
  size(overview, OVERVIEW);
  redraw();
}

// --- filters

const filter = { lanes: null, fate: null, link: null };
const passes = new Uint8Array(messages.length).fill(1);
let past = null, missing = null;

function matches(m) {
  return (!filter.lanes || filter.lanes.has(m.from) || filter.lanes.has(m.to))
    && (filter.fate === null || m.fate === filter.fate)
    && (!filter.link || (group[m.from] === filter.link[0] && group[m.to] === filter.link[1]));
}

function applyFilters() {
  messages.forEach((m, i) => { passes[i] = matches(m) ? 1 : 0; });
  tell();
  redraw();
}

// Shows how many messages are drawn or counted, as text for all readers.
function tell() {
  let some = 0;
  messages.forEach((m, i) => { if (passes[i] && shown[layerOf(m)] && (!past || past.has(i))) some++; });
  const number = n => n.toLocaleString("en-GB");
  const count = (n, one, many) => `${number(n)} ${n === 1 ? one : many}`;
  // If messages are omitted, their part of the causal past is unknown.
  const least = data.notes.length ? "at least " : "";
  const what = past ? `; the causal past of ${nameOf(messages[past.of])} contains ${least}${count(past.size - 1, "message", "messages")}, involves ${count(past.lanes, "process", "processes")}, and begins at ${moment(past.since, 4)}`
    : missing ? `; no message has the name ${missing}` : "";
  document.getElementById("count").textContent = `${number(some)} of ${number(messages.length)} messages${what}`;
  document.getElementById("forget").hidden = !past;
}

// What could have influenced a message: every delivery at its sender before it was sent, every delivery at the senders
// of those messages before they were sent, and so on. A delivery that a rollback had undone by then does not count.
function pastOf(index) {
  const m = messages[index], upto = new Array(lanes).fill(-Infinity), found = new Set([index]);
  upto[m.from] = m.sent;
  const order = messages.map((_, i) => i).filter(i => messages[i].arrived !== null && messages[i].fate !== STALE)
    .sort((a, b) => messages[b].arrived - messages[a].arrived);
  const undoneBy = (lane, at, then) => (returns[lane] || []).some(([restored, saved]) => saved < at && at <= restored && restored <= then);
  let since = m.sent;
  for (const i of order) {
    const k = messages[i];
    if (i === index || k.arrived > upto[k.to] || undoneBy(k.to, k.arrived, upto[k.to])) continue;
    found.add(i);
    upto[k.from] = Math.max(upto[k.from], k.sent);
    since = Math.min(since, k.sent);
  }
  found.of = index;
  found.since = since;
  found.lanes = upto.filter(it => it > -Infinity).length;
  return found;
}
const returns = {};
for (const it of data.rollbacks) for (const [lane, restored, saved] of it.members) (returns[lane] ||= []).push([restored, saved]);

function choose(index) {
  past = index === null ? null : pastOf(index);
  missing = null;
  tell();
  redraw();
}
document.getElementById("forget").addEventListener("click", () => choose(null));

const contents = ["", "stolen task, theft ", "result, theft "];
const nameOf = m => `${data.lanes[m.from]}->${data.lanes[m.to]} ${contents[m.content]}#${m.number}` + (m.incarnation ? ` (incarnation ${m.incarnation})` : "");
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
    const index = messages.findIndex(m => nameOf(m) === value);
    past = index >= 0 ? pastOf(index) : null;
    missing = past ? null : value;
    if (past && !messages[index].between) setLayer("within", true);
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

let pending = false;
function redraw() {
  if (!pending) {
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); drawOverview(); });
  }
}

// Distances between ticks that are round in h:mm:ss.
const CLOCK_STEPS = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400].map(it => it * 1e6);
function ticks(from, upto, wanted) {
  const rough = (upto - from) / wanted, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const decimal = [1, 2, 5, 10].map(it => it * power).find(it => it >= rough) || 10 * power;
  const step = isLong && CLOCK_STEPS.find(it => it >= rough && rough > 10e6) || decimal;
  const at = [];
  for (let t = Math.ceil(from / step) * step; t <= upto; t += step) at.push(t);
  return { at, digits: Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step)))) };
}

// The first message that can still be in transit at `at`.
function firstVisible(at) {
  let low = 0, high = messages.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (messages[middle].sent < at - slowest) low = middle + 1; else high = middle;
  }
  return low;
}

function layerOf(m) {
  if (m.fate === UNDONE || m.fate === STALE) return m.between || shown.within ? "undone" : "within";
  if (m.fate === RESENT) return "resent";
  return m.between ? "between" : "within";
}

function* visibleMessages() {
  for (let i = firstVisible(view.from); i < messages.length && messages[i].sent <= view.upto; i++) {
    const m = messages[i];
    if ((m.arrived === null ? m.sent : m.arrived) >= view.from && shows(i)) yield m;
  }
}
const shows = i => passes[i] && shown[layerOf(messages[i])] && (!past || past.has(i));

// End of a message on the screen. A message that never arrived ends after a stub.
function tipOf(m) {
  if (m.arrived !== null) return [x(m.arrived), y(m.to)];
  const from = y(m.from), dy = y(m.to) - from;
  return [x(m.sent) + 10, from + Math.sign(dy) * Math.min(Math.abs(dy), 14)];
}

function draw() {
  const inView = [...visibleMessages()];
  dense = inView.length > MOST_LINES;
  plot.dataset.drawn = dense ? "density" : "messages";
  if (lay()) size(plot, bottom + AXIS);
  const height = bottom + AXIS;
  g.clearRect(0, 0, width, height);
  g.fillStyle = colors.paper;
  g.fillRect(0, 0, width, height);
  g.lineJoin = "round";
  drawAxis();
  g.save();
  g.beginPath();
  g.rect(left, 0, width - left - RIGHT, height);
  g.clip();
  drawLanes();
  if (dense) drawDensity(inView); else drawMessages(inView);
  drawBars();
  if (past) drawChosen();
  if (shown.rollbacks) data.rollbacks.forEach(drawReturn);
  if (shown.lines) data.recovery_lines.forEach(drawRecoveryLine);
  if (shown.checkpoints) drawCheckpoints();
  for (const it of data.outages) if (visible(it.from, it.from)) cross(g, x(it.from), y(it.lane), markSize() * 1.15);
  g.restore();
  drawFaults();
  drawLabels();
}

const visible = (from, upto) => upto >= view.from && from <= view.upto;
const markSize = () => Math.max(2, Math.min(5, laneHeight * .19));

function drawAxis() {
  const { at, digits } = ticks(view.from, view.upto, Math.max(3, (width - left) / 110));
  g.font = "11px " + FONT;
  g.textAlign = "center";
  g.lineWidth = 1;
  for (const t of at) {
    g.strokeStyle = colors.grid;
    line(x(t), TOP - 10, x(t), bottom + 4);
    g.fillStyle = colors.faint;
    g.fillText(seconds(t, digits), x(t), bottom + 19);
  }
  g.textAlign = "left";
  g.fillText(isLong ? "h:mm:ss" : "seconds", 10, bottom + 19);
}

function drawLabels() {
  g.textAlign = "right";
  const every = Math.ceil(12 / laneHeight);
  data.lanes.forEach((name, lane) => {
    if (laneHeight >= 5 && (lane - data.clusters[group[lane]].first) % every === 0) {
      g.font = Math.min(12, Math.max(9, laneHeight + 2)) + "px " + FONT;
      g.fillStyle = colors.ink;
      g.fillText(name, left - 8, y(lane) + 4);
    }
  });
  g.textAlign = "left";
  g.font = "600 13px " + FONT;
  data.clusters.forEach((c, index) => {
    if (c.lanes) {
      g.fillStyle = colors["c" + index % 6];
      g.fillText(c.name, 10, y(c.first) - laneHeight / 2 - 3);
    }
  });
}

function drawLanes() {
  g.lineWidth = 1;
  for (let lane = 0; lane < lanes; lane++) {
    g.globalAlpha = .55;
    g.strokeStyle = clusterColor(lane);
    line(left, y(lane), width - RIGHT, y(lane));
  }
  g.globalAlpha = 1;
}

// The states of processes are drawn above messages.
function drawBars() {
  const height = Math.max(Math.min(3, laneHeight), laneHeight * .46);
  const bars = (list, color) => {
    g.fillStyle = color;
    for (const it of list) {
      if (visible(it.from, it.upto)) {
        g.fillRect(x(it.from), y(it.lane) - height / 2, Math.max(1, x(it.upto) - x(it.from)), height);
      }
    }
  };
  bars(data.recoveries, colors.recovering);
  bars(data.undone, colors.undone);
  bars(data.outages, colors.down);
}

// The density of the messages that each process sends and receives, as shades in columns of a few pixels.
const COLUMN = 3;
function drawDensity(inView) {
  const columns = Math.ceil((width - left - RIGHT) / COLUMN);
  const bins = new Map();
  const add = (key, at) => {
    const column = Math.floor((x(at) - left) / COLUMN);
    if (column < 0 || column >= columns) return;
    if (!bins.has(key)) bins.set(key, new Uint32Array(columns));
    bins.get(key)[column]++;
  };
  // Lanes first, then the messages from each cluster to others, in the space above its lanes.
  for (const m of inView) {
    const kind = m.fate === DELIVERED ? 0 : m.fate === RESENT ? 2 : 1;
    add(m.from * 3 + kind, m.sent);
    if (m.arrived !== null) add(m.to * 3 + kind, m.arrived);
    if (m.between) add(-1 - group[m.from], m.sent);
  }
  const most = own => Math.max(1, ...[...bins].filter(([key]) => key >= 0 === own).map(([, bin]) => bin.reduce((a, b) => Math.max(a, b), 0)));
  const scale = [most(false), most(true)].map(it => Math.log1p(it));
  for (const [key, bin] of bins) {
    const own = key >= 0, lane = Math.floor(key / 3), kind = key % 3;
    g.fillStyle = !own ? colors["c" + (-1 - key) % 6] : kind === 0 ? clusterColor(lane) : kind === 1 ? colors.bad : colors.resent;
    const top = own ? y(lane) - laneHeight * .42 : y(data.clusters[-1 - key].first) - laneHeight / 2 - 13;
    const height = own ? laneHeight * .84 : 9;
    for (let column = 0; column < columns; column++) {
      if (!bin[column]) continue;
      g.globalAlpha = .08 + .62 * Math.log1p(bin[column]) / scale[own ? 1 : 0];
      g.fillRect(left + column * COLUMN, kind && own ? top + height * .7 : top, COLUMN, kind && own ? height * .3 : height);
    }
  }
  g.globalAlpha = 1;
}

function drawChosen() {
  const m = messages[past.of], [x2, y2] = tipOf(m);
  g.strokeStyle = colors.ink;
  g.lineWidth = 3;
  line(x(m.sent), y(m.from), x2, y2);
}

function drawMessages(inView) {
  const batches = new Map();
  let plain = 0;
  for (const m of inView) {
    const key = m.fate === DELIVERED ? (m.between ? "b" : "w") + group[m.from] % 6 : "f" + m.fate;
    if (m.fate === DELIVERED) plain++;
    if (!batches.has(key)) batches.set(key, []);
    batches.get(key).push(m);
  }
  const heads = plain < 500;
  for (const [key, batch] of [...batches].sort(([a], [b]) => (b[0] === "w") - (a[0] === "w") || (a < b ? -1 : 1))) {
    const fate = batch[0].fate;
    g.setLineDash(fate === UNDONE ? [4, 3] : fate === STALE ? [1, 3] : fate === LOST ? [2, 2] : []);
    g.globalAlpha = fate !== DELIVERED ? .95 : key[0] === "w" ? .3 : plain > 1000 ? .4 : .65;
    g.lineWidth = fate === RESENT ? 1.6 : 1;
    g.strokeStyle = fate === UNDONE ? colors.bad : fate === RESENT ? colors.resent
      : fate === DELIVERED ? colors["c" + key.slice(1)] : colors.faint;
    g.beginPath();
    for (const m of batch) {
      const [x2, y2] = tipOf(m);
      g.moveTo(x(m.sent), y(m.from));
      g.lineTo(x2, y2);
    }
    g.stroke();
    g.setLineDash([]);
    if (heads) {
      g.beginPath();
      for (const m of batch) head(m);
      g.stroke();
    }
  }
  g.globalAlpha = 1;
}

// The two strokes of an arrow's head.
function head(m) {
  const [x2, y2] = tipOf(m), angle = Math.atan2(y2 - y(m.from), x2 - x(m.sent));
  for (const turn of [.42, -.42]) {
    g.moveTo(x2, y2);
    g.lineTo(x2 - 7 * Math.cos(angle + turn), y2 - 7 * Math.sin(angle + turn));
  }
}

function drawReturn(it) {
  const lift = Math.min(20, laneHeight * .6);
  g.strokeStyle = g.fillStyle = colors.bad;
  g.lineWidth = 1.2;
  for (const [lane, restored, saved] of it.members) {
    if (!visible(saved, restored)) continue;
    const x1 = x(restored), x2 = x(saved), at = y(lane);
    // Between narrow lanes, an arch would hide the states of processes.
    if (laneHeight < 12) {
      line(x1, at - laneHeight / 2, x2, at - laneHeight / 2);
      continue;
    }
    g.beginPath();
    g.moveTo(x1, at);
    g.bezierCurveTo(x1, at - lift, x2, at - lift, x2, at - 5);
    g.stroke();
    g.beginPath();
    g.moveTo(x2, at - 4);
    g.lineTo(x2 - 3, at - 9);
    g.lineTo(x2 + 3, at - 9);
    g.fill();
  }
}

function drawRecoveryLine(points) {
  if (points.length < 2) return;
  g.strokeStyle = colors.ink;
  g.lineWidth = 1.8;
  g.setLineDash([6, 4]);
  g.beginPath();
  points.forEach(([lane, at], index) => index ? g.lineTo(x(at), y(lane)) : g.moveTo(x(at), y(lane)));
  g.stroke();
  g.setLineDash([]);
}

// Symbols if there is space for them; otherwise ticks at the upper edge of the lane, which hide nothing.
function drawCheckpoints() {
  const seen = data.checkpoints.filter(it => visible(it.at, it.at)), room = new Array(lanes).fill(0);
  for (const it of seen) room[it.lane]++;
  const most = (width - left - RIGHT) / (markSize() * 5);
  for (const it of seen) {
    if (room[it.lane] <= most && laneHeight >= 9) {
      checkpointSign(g, it.kind, it.undone, x(it.at), y(it.lane), markSize(), clusterColor(it.lane));
      continue;
    }
    g.fillStyle = it.undone ? colors.faint : clusterColor(it.lane);
    g.globalAlpha = it.kind === "forced" ? .55 : .9;
    g.fillRect(x(it.at) - .5, y(it.lane) - laneHeight / 2, 1, Math.max(1, laneHeight * .22));
  }
  g.globalAlpha = 1;
}

function checkpointSign(g, kind, undone, cx, cy, size, color) {
  g.beginPath();
  if (kind === "unforced") {
    g.arc(cx, cy, size, 0, 7);
  } else if (kind === "initial") {
    g.rect(cx - size, cy - size, 2 * size, 2 * size);
  } else {
    const s = size * 1.35;
    g.moveTo(cx, cy - s); g.lineTo(cx + s, cy); g.lineTo(cx, cy + s); g.lineTo(cx - s, cy); g.closePath();
  }
  g.fillStyle = undone ? colors.paper : color;
  g.strokeStyle = undone ? color : colors.paper;
  g.lineWidth = 1.2;
  g.fill();
  g.stroke();
}

function cross(g, cx, cy, size) {
  g.strokeStyle = colors.bad;
  g.lineWidth = 2.4;
  g.lineCap = "round";
  g.beginPath();
  g.moveTo(cx - size, cy - size); g.lineTo(cx + size, cy + size);
  g.moveTo(cx - size, cy + size); g.lineTo(cx + size, cy - size);
  g.stroke();
  g.lineCap = "butt";
}

// Labels of faults on two rows, without labels that would cover the previous one.
function drawFaults() {
  g.font = "12px " + FONT;
  const rows = [-Infinity, -Infinity];
  for (const it of data.faults) {
    if (!visible(it.at, it.at)) continue;
    const at = x(it.at);
    g.strokeStyle = g.fillStyle = colors.bad;
    g.lineWidth = 1;
    g.setLineDash([2, 3]);
    line(at, TOP - 14, at, bottom + 4);
    g.setLineDash([]);
    const text = `fault ${it.no}: ${it.text}`, wide = g.measureText(text).width;
    const start = Math.min(at + 5, width - RIGHT - wide);
    const row = rows.findIndex(end => start > end + 12);
    if (row >= 0) {
      g.textAlign = "left";
      g.fillText(text, start, TOP - 22 - 16 * row);
      rows[row] = start + wide;
    }
  }
}

function line(x1, y1, x2, y2) {
  g.beginPath();
  g.moveTo(x1, y1);
  g.lineTo(x2, y2);
  g.stroke();
}

function drawOverview() {
  const o = overview.getContext("2d"), inner = width - left - RIGHT;
  const at = t => left + (t - whole.from) / (whole.upto - whole.from) * inner;
  o.clearRect(0, 0, width, OVERVIEW);
  const bins = new Array(Math.max(1, Math.floor(inner / 3))).fill(0);
  messages.forEach((m, i) => {
    if (shows(i)) bins[Math.max(0, Math.min(bins.length - 1, Math.floor((m.sent - whole.from) / (whole.upto - whole.from) * bins.length)))]++;
  });
  const most = Math.max(1, ...bins);
  o.fillStyle = colors.faint;
  o.globalAlpha = .45;
  bins.forEach((n, i) => o.fillRect(left + i * inner / bins.length, OVERVIEW - 4 - n / most * (OVERVIEW - 12), inner / bins.length - .5, n / most * (OVERVIEW - 12)));
  o.globalAlpha = 1;
  o.fillStyle = colors.undone;
  for (const it of data.undone) o.fillRect(at(it.from), 2, Math.max(1, at(it.upto) - at(it.from)), 4);
  o.fillStyle = colors.bad;
  for (const it of data.faults) o.fillRect(at(it.at) - 1, 0, 2, OVERVIEW);
  o.fillStyle = colors.c0;
  o.globalAlpha = .16;
  o.fillRect(at(view.from), 0, at(view.upto) - at(view.from), OVERVIEW);
  o.globalAlpha = 1;
  o.strokeStyle = colors.c0;
  o.lineWidth = 1.5;
  o.strokeRect(at(view.from) + .75, .75, Math.max(2, at(view.upto) - at(view.from) - 1.5), OVERVIEW - 1.5);
}

// --- movement

const NARROWEST = 200;
function look(from, upto) {
  const length = Math.max(NARROWEST, Math.min(upto - from, whole.upto - whole.from));
  from = Math.max(whole.from, Math.min((from + upto - length) / 2, whole.upto - length));
  view.from = from;
  view.upto = from + length;
  hide();
  redraw();
}
function zoom(factor, around = (view.from + view.upto) / 2) {
  const length = (view.upto - view.from) * factor;
  const share = (around - view.from) / (view.upto - view.from);
  look(around - share * length, around + (1 - share) * length);
}
function pan(share) {
  const by = (view.upto - view.from) * share;
  look(view.from + by, view.upto + by);
}

document.getElementById("in").addEventListener("click", () => zoom(.6));
document.getElementById("out").addEventListener("click", () => zoom(1 / .6));
document.getElementById("all").addEventListener("click", () => look(whole.from, whole.upto));
document.getElementById("png").addEventListener("click", () => {
  const link = document.createElement("a");
  link.download = "diagram.png";
  link.href = plot.toDataURL("image/png");
  link.click();
});
for (const button of document.querySelectorAll("[data-from]")) {
  button.addEventListener("click", () => {
    const from = +button.dataset.from, upto = +button.dataset.upto, room = Math.max((upto - from) * .6, 60000);
    look(from - room, upto + room);
    plot.scrollIntoView({ block: "nearest", behavior: "smooth" });
    plot.focus({ preventScroll: true });
  });
}

plot.addEventListener("wheel", event => {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * .01), instant(event.offsetX));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    pan((event.deltaX || event.deltaY) / width);
  }
}, { passive: false });
plot.addEventListener("dblclick", event => zoom(.4, instant(event.offsetX)));

// One finger or the mouse pans, two fingers zoom.
const fingers = new Map();
plot.addEventListener("pointerdown", event => {
  plot.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, event.offsetX);
  plot.classList.add("dragging");
});
plot.addEventListener("pointermove", event => {
  if (!fingers.has(event.pointerId)) return hover(event.offsetX, event.offsetY);
  const before = [...fingers.values()];
  fingers.set(event.pointerId, event.offsetX);
  const after = [...fingers.values()];
  if (after.length === 1) {
    pan((before[0] - after[0]) / (width - left - RIGHT));
  } else if (Math.abs(after[0] - after[1]) > 4) {
    zoom(Math.abs(before[0] - before[1]) / Math.abs(after[0] - after[1]), instant((after[0] + after[1]) / 2));
  }
});
let pressed = 0;
plot.addEventListener("pointerdown", event => { pressed = event.offsetX; });
for (const end of ["pointerup", "pointercancel"]) {
  plot.addEventListener(end, event => {
    if (end === "pointerup" && fingers.size === 1 && Math.abs(event.offsetX - pressed) < 3) {
      const index = dense ? -1 : nearestMessage(event.offsetX, event.offsetY);
      if (index >= 0) choose(index);
    }
    fingers.delete(event.pointerId);
    if (!fingers.size) plot.classList.remove("dragging");
  });
}
plot.addEventListener("pointerleave", hide);

function moveTo(event) {
  const at = whole.from + (event.offsetX - left) / (width - left - RIGHT) * (whole.upto - whole.from);
  const half = (view.upto - view.from) / 2;
  look(at - half, at + half);
}
overview.addEventListener("pointerdown", event => { overview.setPointerCapture(event.pointerId); moveTo(event); });
overview.addEventListener("pointermove", event => { if (event.buttons) moveTo(event); });

// --- descriptions

const known = [
  ...data.checkpoints.map(it => ({ at: it.at, lane: it.lane, layer: "checkpoints",
    text: `${data.lanes[it.lane]}: ${it.kind} checkpoint ${it.name}\nsaved at ${moment(it.at, 4)}, committed ${span(it.committed - it.at)} later`
      + (it.undone ? "\nundone by a rollback" : "") })),
  ...data.outages.map(it => ({ at: it.from, lane: it.lane, text: `${it.text}\nat ${moment(it.from, 4)}` })),
  ...data.rollbacks.flatMap(it => it.members.map(([lane, restored]) => ({ at: restored, lane, layer: "rollbacks",
    text: `${data.lanes[lane]} restored its state at ${moment(restored, 4)}\n${it.text}` }))),
].sort((a, b) => a.at - b.at || a.lane - b.lane);
const fates = ["delivered", "delivered, then undone", "re-sent from a log, delivered", "dropped as stale: its send was undone", "never arrived"];

function textOf(m) {
  const upto = m.arrived === null ? "" : `, arrived ${span(m.arrived - m.sent)} later`;
  return nameOf(m) + `\nsent at ${moment(m.sent, 4)}${upto}\n${m.arrived === null && m.fate === UNDONE ? "undone in transit" : fates[m.fate]}`;
}

function distance(px, py, x1, y1, x2, y2) {
  const dx = x2 - x1, dy = y2 - y1;
  const share = Math.max(0, Math.min(1, ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - x1 - share * dx, py - y1 - share * dy);
}

// The message under the pointer, or -1.
function nearestMessage(px, py) {
  let best = -1, nearest = 5;
  for (let i = firstVisible(view.from); i < messages.length && messages[i].sent <= view.upto; i++) {
    if (!shows(i)) continue;
    const [x2, y2] = tipOf(messages[i]), d = distance(px, py, x(messages[i].sent), y(messages[i].from), x2, y2);
    if (d < nearest) { nearest = d; best = i; }
  }
  return best;
}

// Describes how many messages a process exchanges in the column under the pointer.
function countAt(px, py) {
  const lane = data.lanes.findIndex((_, lane) => Math.abs(y(lane) - py) <= laneHeight / 2);
  if (!dense || lane < 0) return null;
  const from = instant(px - COLUMN), upto = instant(px + COLUMN);
  let sent = 0, received = 0;
  for (const m of visibleMessages()) {
    if (m.from === lane && m.sent >= from && m.sent < upto) sent++;
    if (m.to === lane && m.arrived !== null && m.arrived >= from && m.arrived < upto) received++;
  }
  return `${data.lanes[lane]}: ${sent} message${sent === 1 ? "" : "s"} sent, ${received} received\nwithin ${span(upto - from)} around ${moment((from + upto) / 2, 2)}`;
}

function find(px, py) {
  let best = null, nearest = 9;
  for (const it of known) {
    if (it.layer && !shown[it.layer]) continue;
    const d = Math.hypot(x(it.at) - px, y(it.lane) - py);
    if (d < nearest) { nearest = d; best = it.text; }
  }
  if (best) return best;
  const near = dense ? -1 : nearestMessage(px, py);
  if (near >= 0) return textOf(messages[near]) + "\nclick for its causal past";
  const at = instant(px), on = it => Math.abs(y(it.lane) - py) <= laneHeight / 3 && it.from <= at && at <= it.upto;
  const part = (list, text) => { const it = list.find(on); return it && `${data.lanes[it.lane]}: ${text} (${span(it.upto - it.from)})`; };
  return part(data.outages, "down") || part(data.undone, "work undone") || part(data.recoveries, "recovering") || countAt(px, py);
}

function hover(px, py) {
  const text = px < left ? null : find(px, py);
  if (text) say(text, px, py); else hide();
}
function say(text, px, py) {
  tip.textContent = text;
  tip.classList.add("on");
  tip.style.left = Math.max(4, Math.min(px + 14, width - tip.offsetWidth - 6)) + "px";
  tip.style.top = (py + 18 + tip.offsetHeight > bottom + AXIS ? py - tip.offsetHeight - 12 : py + 18) + "px";
}
function hide() { tip.classList.remove("on"); }

let current = -1;
function step(by) {
  const moments = known.filter(it => !it.layer || shown[it.layer]);
  if (!moments.length) return;
  current = (current + by + moments.length) % moments.length;
  const it = moments[current];
  if (!visible(it.at, it.at)) {
    const half = (view.upto - view.from) / 2;
    look(it.at - half, it.at + half);
  }
  say(it.text, x(it.at), y(it.lane));
}

plot.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { "+": () => zoom(.6), "=": () => zoom(.6), "-": () => zoom(1 / .6), "0": () => look(whole.from, whole.upto),
    Home: () => look(whole.from, whole.upto), ArrowLeft: () => pan(-.15), ArrowRight: () => pan(.15),
    n: () => step(1), p: () => step(-1), Escape: () => { hide(); choose(null); } }[event.key];
  if (act) { event.preventDefault(); act(); }
});

// The symbols next to the switches.
function drawLegend() {
  for (const sign of document.querySelectorAll("canvas[data-sign]")) {
    const scale = window.devicePixelRatio || 1;
    sign.width = 26 * scale;
    sign.height = 14 * scale;
    const s = sign.getContext("2d");
    s.scale(scale, scale);
    const stroke = (color, dash, wide = 1.4) => {
      s.strokeStyle = color; s.lineWidth = wide; s.setLineDash(dash);
      s.beginPath(); s.moveTo(2, 12); s.lineTo(24, 2); s.stroke();
    };
    const block = color => { s.fillStyle = color; s.fillRect(2, 3, 22, 8); };
    ({
      between: () => stroke(colors.c0, []), within: () => stroke(colors.faint, [], 1),
      undone: () => stroke(colors.bad, [4, 3]), resent: () => stroke(colors.resent, [], 1.8),
      checkpoints: () => { checkpointSign(s, "unforced", false, 6, 7, 4, colors.ink); checkpointSign(s, "forced", false, 18, 7, 4, colors.ink); },
      initial: () => checkpointSign(s, "initial", false, 13, 7, 4, colors.ink),
      past: () => { checkpointSign(s, "unforced", true, 6, 7, 4, colors.ink); checkpointSign(s, "forced", true, 18, 7, 4, colors.ink); },
      rollbacks: () => { s.strokeStyle = s.fillStyle = colors.bad; s.lineWidth = 1.4; s.beginPath(); s.moveTo(23, 12); s.bezierCurveTo(23, 1, 5, 1, 5, 8); s.stroke(); s.beginPath(); s.moveTo(5, 12); s.lineTo(2, 7); s.lineTo(8, 7); s.fill(); },
      lines: () => stroke(colors.ink, [5, 3], 1.8),
      failure: () => cross(s, 13, 7, 4.5),
      down: () => block(colors.down), recovering: () => block(colors.recovering), lost: () => block(colors.undone),
    })[sign.dataset.sign]?.();
  }
}

function refresh() { readColors(); drawLegend(); resize(); }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
new ResizeObserver(resize).observe(plot.parentElement);
refresh();
readAddress();
})();
