// The space-time diagram: draws the embedded data, zooms, pans, and says what is under the pointer. Decides nothing
// about the run. Instants are microseconds since the application began.
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
const laneHeight = lanes <= 16 ? 30 : lanes <= 40 ? 22 : lanes <= 90 ? 14 : 9;
const y = lane => TOP + (lane + .5) * laneHeight + group[lane] * GAP;
const bottom = lanes ? y(lanes - 1) + laneHeight / 2 : TOP;

const margin = (data.end - data.begin) * .01;
const whole = { from: data.begin - margin, upto: data.end + margin };
const view = { ...whole };
const shown = {};
for (const box of document.querySelectorAll("[data-layer]")) {
  shown[box.dataset.layer] = box.checked;
  box.addEventListener("change", () => { shown[box.dataset.layer] = box.checked; redraw(); });
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
  return (at / 1e6).toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
}
function span(us) {
  return us >= 1e6 ? (us / 1e6).toFixed(2) + " s" : us >= 1e3 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + " ms" : us + " us";
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

let pending = false;
function redraw() {
  if (!pending) {
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); drawOverview(); });
  }
}

function ticks(from, upto, wanted) {
  const rough = (upto - from) / wanted, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map(it => it * power).find(it => it >= rough) || 10 * power;
  const at = [];
  for (let t = Math.ceil(from / step) * step; t <= upto; t += step) at.push(t);
  return { at, digits: Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step)))) };
}

// The first message that can still be on its way at `at`.
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
    if ((m.arrived === null ? m.sent : m.arrived) >= view.from && shown[layerOf(m)]) yield m;
  }
}

// Where a message ends on the screen: one that never arrived ends after a stub.
function tipOf(m) {
  if (m.arrived !== null) return [x(m.arrived), y(m.to)];
  const from = y(m.from), dy = y(m.to) - from;
  return [x(m.sent) + 10, from + Math.sign(dy) * Math.min(Math.abs(dy), 14)];
}

function draw() {
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
  drawMessages();
  if (shown.rollbacks) data.rollbacks.forEach(drawReturn);
  if (shown.lines) data.recovery_lines.forEach(drawRecoveryLine);
  if (shown.checkpoints) data.checkpoints.forEach(drawCheckpoint);
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
  g.textAlign = "right";
  g.fillText("seconds", left - 8, bottom + 19);
}

function drawLabels() {
  g.textAlign = "right";
  const every = Math.ceil(12 / laneHeight);
  data.lanes.forEach((name, lane) => {
    if ((lane - data.clusters[group[lane]].first) % every === 0) {
      g.font = Math.min(12, laneHeight + 2) + "px " + FONT;
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
  const height = Math.max(3, laneHeight * .46);
  g.lineWidth = 1;
  for (let lane = 0; lane < lanes; lane++) {
    g.globalAlpha = .55;
    g.strokeStyle = clusterColor(lane);
    line(left, y(lane), width - RIGHT, y(lane));
  }
  g.globalAlpha = 1;
  const bars = (list, color) => {
    g.fillStyle = color;
    for (const it of list) {
      if (visible(it.from, it.upto)) {
        g.fillRect(x(it.from), y(it.lane) - height / 2, Math.max(1, x(it.upto) - x(it.from)), height);
      }
    }
  };
  bars(data.undone, colors.undone);
  bars(data.recoveries, colors.recovering);
  bars(data.outages, colors.down);
}

const MOST_LINES = 24000;
function drawMessages() {
  const batches = new Map();
  let plain = 0;
  for (const m of visibleMessages()) {
    const key = m.fate === DELIVERED ? (m.between ? "b" : "w") + group[m.from] % 6 : "f" + m.fate;
    if (m.fate === DELIVERED) plain++;
    if (!batches.has(key)) batches.set(key, []);
    batches.get(key).push(m);
  }
  const step = Math.ceil(plain / MOST_LINES) || 1, heads = plain < 500;
  for (const [key, batch] of [...batches].sort(([a], [b]) => (b[0] === "w") - (a[0] === "w") || (a < b ? -1 : 1))) {
    const fate = batch[0].fate;
    g.setLineDash(fate === UNDONE ? [4, 3] : fate === STALE ? [1, 3] : fate === LOST ? [2, 2] : []);
    g.globalAlpha = fate !== DELIVERED ? .95 : key[0] === "w" ? .3 : plain > 3000 ? .4 : .65;
    g.lineWidth = fate === RESENT ? 1.6 : 1;
    g.strokeStyle = fate === UNDONE ? colors.bad : fate === RESENT ? colors.resent
      : fate === DELIVERED ? colors["c" + key.slice(1)] : colors.faint;
    g.beginPath();
    for (let i = 0; i < batch.length; i += fate === DELIVERED ? step : 1) {
      const [x2, y2] = tipOf(batch[i]);
      g.moveTo(x(batch[i].sent), y(batch[i].from));
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

function drawCheckpoint(it) {
  if (visible(it.at, it.at)) checkpointSign(g, it.kind, it.undone, x(it.at), y(it.lane), markSize(), clusterColor(it.lane));
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

// Labels of faults on two rows, each only where it does not cover the one before.
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
  for (const m of messages) {
    if (m.between) bins[Math.max(0, Math.min(bins.length - 1, Math.floor((m.sent - whole.from) / (whole.upto - whole.from) * bins.length)))]++;
  }
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
for (const end of ["pointerup", "pointercancel"]) {
  plot.addEventListener(end, event => {
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

// --- saying what is there

const known = [
  ...data.checkpoints.map(it => ({ at: it.at, lane: it.lane, layer: "checkpoints",
    text: `${data.lanes[it.lane]}: ${it.kind} checkpoint ${it.name}\nsaved at ${seconds(it.at, 4)} s, committed ${span(it.committed - it.at)} later`
      + (it.undone ? "\nundone by a rollback" : "") })),
  ...data.outages.map(it => ({ at: it.from, lane: it.lane, text: `${it.text}\nat ${seconds(it.from, 4)} s, next life after ${span(it.upto - it.from)}` })),
  ...data.rollbacks.flatMap(it => it.members.map(([lane, restored]) => ({ at: restored, lane, layer: "rollbacks",
    text: `${data.lanes[lane]} restored at ${seconds(restored, 4)} s\n${it.text}` }))),
].sort((a, b) => a.at - b.at || a.lane - b.lane);
const contents = ["", "stolen task, theft ", "result, theft "];
const fates = ["delivered", "delivered, then undone", "re-sent from a log, delivered", "dropped as stale: its send was undone", "never arrived"];

function textOf(m) {
  const upto = m.arrived === null ? "" : `, arrived ${span(m.arrived - m.sent)} later`;
  return `${data.lanes[m.from]} -> ${data.lanes[m.to]} ${contents[m.content]}#${m.number}` + (m.incarnation ? ` (incarnation ${m.incarnation})` : "")
    + `\nsent at ${seconds(m.sent, 4)} s${upto}\n${m.arrived === null && m.fate === UNDONE ? "undone in transit" : fates[m.fate]}`;
}

function distance(px, py, x1, y1, x2, y2) {
  const dx = x2 - x1, dy = y2 - y1;
  const share = Math.max(0, Math.min(1, ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - x1 - share * dx, py - y1 - share * dy);
}

function find(px, py) {
  let best = null, nearest = 9;
  for (const it of known) {
    if (it.layer && !shown[it.layer]) continue;
    const d = Math.hypot(x(it.at) - px, y(it.lane) - py);
    if (d < nearest) { nearest = d; best = it.text; }
  }
  if (best) return best;
  nearest = 5;
  for (const m of visibleMessages()) {
    const [x2, y2] = tipOf(m), d = distance(px, py, x(m.sent), y(m.from), x2, y2);
    if (d < nearest) { nearest = d; best = textOf(m); }
  }
  if (best) return best;
  const at = instant(px), on = it => Math.abs(y(it.lane) - py) <= laneHeight / 3 && it.from <= at && at <= it.upto;
  const part = (list, text) => { const it = list.find(on); return it && `${data.lanes[it.lane]}: ${text} (${span(it.upto - it.from)})`; };
  return part(data.outages, "down") || part(data.recoveries, "recovering") || part(data.undone, "work undone by a rollback") || null;
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
    n: () => step(1), p: () => step(-1), Escape: hide }[event.key];
  if (act) { event.preventDefault(); act(); }
});

// The signs beside the switches.
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
})();
