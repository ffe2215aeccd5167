// Draws the rows on the screen.
const g = plot.getContext("2d");
const FONT = "system-ui,-apple-system,'Segoe UI',Roboto,sans-serif";
let colors = {};
const clusterColor = lane => colors["c" + group[lane] % 6];

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "wash", "ink", "faint", "grid", "bad", "undone", "recovering", "down", "resent",
    "c0", "c1", "c2", "c3", "c4", "c5"]) colors[name] = style.getPropertyValue("--" + name).trim();
  const rgb = color => [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16));
  colors.rgb = Object.fromEntries(Object.entries(colors).filter(([name]) => name !== "rgb").map(([name, it]) => [name, rgb(it)]));
}

function size(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
}

function resize() {
  width = scroller.clientWidth;
  laid = "";
  size(overview, OVERVIEW);
  redraw();
}

let pending = true;
function drawAll() {
  pending = false;
  draw();
  drawOverview();
}
function redraw() {
  if (!pending) {
    pending = true;
    requestAnimationFrame(drawAll);
  }
}

// Distances between ticks that are round in h:mm:ss.
const CLOCK_STEPS = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400].map(it => it * 1e6);
function ticks(from, upto, wanted) {
  const rough = (upto - from) / wanted, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const decimal = [1, 2, 5, 10].map(it => it * power).find(it => it >= rough) || 10 * power;
  const step = isLong() && CLOCK_STEPS.find(it => it >= rough && rough > 10e6) || decimal;
  const at = [];
  for (let t = Math.ceil(from / step) * step; t <= upto; t += step) at.push(t);
  return { at, digits: Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step)))) };
}

// End of a message on the screen. A message that never arrived ends after a stub.
function tipOf(i) {
  const from = y(messages.from[i]), to = y(messages.to[i]);
  if (hasArrived(i)) return [x(messages.arrived[i]), to];
  return [x(messages.sent[i]) + 10, from + Math.sign(to - from) * Math.min(Math.abs(to - from), 14)];
}

let lines = null, shades = null;
function draw() {
  lay();
  lines = linesInView();
  dense = !lines;
  plot.dataset.drawn = dense ? "density" : "messages";
  lay();
  g.clearRect(0, 0, width, high);
  g.fillStyle = colors.paper;
  g.fillRect(0, 0, width, high);
  g.lineJoin = "round";
  drawAxis();
  drawLabels();
  g.save();
  g.beginPath();
  g.rect(left, TOP, inner(), high - AXIS - TOP);
  g.clip();
  drawLanes();
  // The messages within a folded cluster are always shades.
  shades = dense || rows.some(row => row.lane < 0 && isOnScreen(row)) ? countShades() : null;
  if (shades) drawShades();
  if (lines) drawMessages();
  drawBands();
  drawBars();
  if (past) drawChosen();
  if (shown.rollbacks) data.rollbacks.forEach(drawReturn);
  if (shown.lines) data.recovery_lines.forEach(drawRecoveryLine);
  if (shown.checkpoints) drawCheckpoints();
  drawFailures();
  drawFlips();
  if (cursor !== null) {
    g.strokeStyle = colors.ink;
    g.lineWidth = 1.2;
    line(x(cursor), TOP, x(cursor), high - AXIS);
  }
  g.restore();
  drawFaults();
}

const markSize = height => Math.max(2, Math.min(5, height * .19));

function drawAxis() {
  const { at, digits } = ticks(view.from, view.upto, Math.max(3, (width - left) / 110));
  g.font = "11px " + FONT;
  g.textAlign = "center";
  g.lineWidth = 1;
  for (const t of at) {
    g.strokeStyle = colors.grid;
    line(x(t), TOP - 4, x(t), high - AXIS + 4);
    g.fillStyle = colors.faint;
    const text = seconds(t, digits), half = g.measureText(text).width / 2;
    g.fillText(text, Math.min(x(t), width - half - 2), high - AXIS + 19);
  }
  g.textAlign = "left";
  g.fillText(isLong() ? "h:mm:ss" : "seconds", 6, high - AXIS + 19);
}

// The names of processes. Those of clusters are buttons, which fold and unfold them.
function drawLabels() {
  g.save();
  g.beginPath();
  g.rect(0, TOP, width, high - AXIS - TOP);
  g.clip();
  g.textAlign = "right";
  g.fillStyle = colors.ink;
  const every = Math.ceil(12 / laneHeight);
  for (const row of rows) {
    const c = data.clusters[row.cluster], ofFolded = folded[row.cluster];
    if (row.lane < 0 || !isOnScreen(row) || !ofFolded && (laneHeight < 5 || (row.lane - c.first) % every)) continue;
    g.font = Math.min(12, Math.max(9, row.height + 2)) + "px " + FONT;
    g.fillText(labelOf(row.lane), left - 8, rowTop(row) + row.height / 2 + 4);
  }
  g.restore();
  for (const button of names.children) {
    const index = +button.dataset.cluster, own = rows.filter(row => row.cluster === index), last = own[own.length - 1];
    // A name stays visible while any row of its cluster is.
    const at = Math.min(Math.max(rowTop(own[0]) - HEADER, TOP), rowTop(last) + last.height - HEADER);
    button.hidden = at < TOP - 4 || at + HEADER > high - AXIS;
    button.style.top = at + "px";
    button.style.color = colors["c" + index % 6];
    button.setAttribute("aria-expanded", String(!folded[index]));
  }
}

function drawLanes() {
  g.lineWidth = 1;
  g.globalAlpha = .55;
  for (const row of rows) {
    if (!isOnScreen(row)) continue;
    const at = rowTop(row);
    g.strokeStyle = colors["c" + row.cluster % 6];
    if (row.lane >= 0) line(left, at + row.height / 2, width - RIGHT, at + row.height / 2);
    else g.strokeRect(left - .5, Math.round(at) + .5, inner() + 1, row.height - 1);
  }
  g.globalAlpha = 1;
}

const states = () => [[recoveries, "recovering"], [undone, "undone"], [data.outages, "down"]];

// In a folded cluster, the share of its processes in each state.
function drawBands() {
  const wide = Math.ceil(inner()), bins = {}, shownStates = states();
  shownStates.forEach(([list], state) => {
    for (const it of list) {
      if (!folded[group[it.lane]] || !visible(it.from, it.upto)) continue;
      const changes = (bins[group[it.lane]] ||= [0, 1, 2].map(() => new Int32Array(wide + 1)))[state];
      changes[Math.max(0, Math.floor(x(it.from) - left))]++;
      changes[Math.max(0, Math.min(wide, Math.floor(x(it.upto) - left) + 1))]--;
    }
  });
  for (const row of rows) {
    const own = bins[row.cluster], size = data.clusters[row.cluster].lanes;
    if (row.lane >= 0 || !own || !isOnScreen(row)) continue;
    const now = [0, 0, 0], bottom = rowTop(row) + row.height - 1;
    for (let column = 0; column < wide; column++) {
      let height = 0;
      for (let state = 2; state >= 0; state--) {
        now[state] += own[state][column];
        const part = Math.min(now[state] / size * (row.height - 2), row.height - 2 - height);
        if (part <= 0) continue;
        g.fillStyle = colors[shownStates[state][1]];
        g.fillRect(left + column, bottom - height - Math.max(1, part), 1, Math.max(1, part));
        height += part;
      }
    }
  }
}

// The states of processes are drawn above messages.
function drawBars() {
  for (const [list, color] of states()) {
    g.fillStyle = colors[color];
    for (const it of list) {
      const row = rows[rowOf[it.lane]];
      if (row.lane < 0 || !visible(it.from, it.upto) || !isOnScreen(row)) continue;
      const height = Math.max(Math.min(3, row.height), row.height * .46);
      g.fillRect(x(it.from), rowTop(row) + (row.height - height) / 2, Math.max(1, x(it.upto) - x(it.from)), height);
    }
  }
}

// Draws the counts of messages as shades: one pixel per column and strip, which are then stretched.
const sheet = document.createElement("canvas");
function drawShades() {
  const { columns, first, last, strips, bins } = shades;
  const parts = { band: [], lane: [], cluster: [] };
  for (let row = first; row <= last; row++) {
    const { lane, height, cluster } = rows[row], top = rowTop(rows[row]), strip = (row - first) * 3;
    if (lane >= 0 && !dense) continue;
    parts[lane < 0 ? "band" : "lane"].push([strip, "c" + cluster % 6, top + height * .08, height * .84],
      [strip + 1, "bad", top + height * .7, height * .3], [strip + 2, "resent", top + height * .7, height * .3]);
  }
  if (dense) {
    for (const row of rows.filter((row, index) => !index || rows[index - 1].cluster !== row.cluster)) {
      parts.cluster.push([strips + row.cluster, "c" + row.cluster % 6, rowTop(row) - 13, 8]);
    }
  }
  sheet.width = columns;
  sheet.height = strips + data.clusters.length;
  const paper = sheet.getContext("2d"), image = paper.createImageData(sheet.width, sheet.height);
  for (const some of Object.values(parts)) {
    let most = 1;
    for (const [strip] of some) for (let i = strip * columns; i < (strip + 1) * columns; i++) if (bins[i] > most) most = bins[i];
    const scale = 158 / Math.log1p(most);
    for (const [strip, color] of some) {
      const [red, green, blue] = colors.rgb[color];
      for (let i = strip * columns; i < (strip + 1) * columns; i++) {
        if (bins[i]) image.data.set([red, green, blue, 20 + scale * Math.log1p(bins[i])], i * 4);
      }
    }
  }
  paper.putImageData(image, 0, 0);
  g.imageSmoothingEnabled = false;
  for (const [strip, , top, height] of Object.values(parts).flat()) {
    g.drawImage(sheet, 0, strip, columns, 1, left, top, columns * COLUMN, height);
  }
}

function drawChosen() {
  const [x2, y2] = tipOf(past.of);
  g.strokeStyle = colors.ink;
  g.lineWidth = 3;
  line(x(messages.sent[past.of]), y(messages.from[past.of]), x2, y2);
}

function drawMessages() {
  const batches = new Map();
  let plain = 0;
  for (const i of lines) {
    const fate = messages.fate[i], key = fate === DELIVERED ? (isBetween(i) ? "b" : "w") + group[messages.from[i]] % 6 : "f" + fate;
    if (fate === DELIVERED) plain++;
    if (!batches.has(key)) batches.set(key, []);
    batches.get(key).push(i);
  }
  const heads = plain < 500;
  for (const [key, batch] of [...batches].sort(([a], [b]) => (b[0] === "w") - (a[0] === "w") || (a < b ? -1 : 1))) {
    const fate = messages.fate[batch[0]];
    g.setLineDash(fate === UNDONE ? [4, 3] : fate === STALE ? [1, 3] : fate === LOST ? [2, 2] : []);
    g.globalAlpha = fate !== DELIVERED ? .95 : key[0] === "w" ? .3 : plain > 1000 ? .4 : .65;
    g.lineWidth = fate === RESENT ? 1.6 : 1;
    g.strokeStyle = fate === UNDONE ? colors.bad : fate === RESENT ? colors.resent
      : fate === DELIVERED ? colors["c" + key.slice(1)] : colors.faint;
    g.beginPath();
    for (const i of batch) {
      g.moveTo(x(messages.sent[i]), y(messages.from[i]));
      g.lineTo(...tipOf(i));
    }
    g.stroke();
    g.setLineDash([]);
    if (heads) {
      g.beginPath();
      for (const i of batch) head(i);
      g.stroke();
    }
  }
  g.globalAlpha = 1;
}

// The two strokes of an arrow's head.
function head(i) {
  const [x2, y2] = tipOf(i), angle = Math.atan2(y2 - y(messages.from[i]), x2 - x(messages.sent[i]));
  for (const turn of [.42, -.42]) {
    g.moveTo(x2, y2);
    g.lineTo(x2 - 7 * Math.cos(angle + turn), y2 - 7 * Math.sin(angle + turn));
  }
}

function drawReturn(it) {
  g.strokeStyle = g.fillStyle = colors.bad;
  g.lineWidth = 1.2;
  // In a band and in narrow lanes, there is space for one arch only.
  const isOwn = ([lane]) => !isBand(lane) && rows[rowOf[lane]].height >= 9, arches = it.members.filter(isOwn);
  const rest = it.members.filter(it => !isOwn(it));
  if (rest.length) arches.push([rest[0][0], Math.max(...rest.map(it => it[1])), Math.min(...rest.map(it => it[2]))]);
  for (const [lane, restored, saved] of arches) {
    const row = rows[rowOf[lane]], x1 = x(restored), x2 = x(saved), at = y(lane), lift = Math.min(20, row.height * .6);
    if (!visible(saved, restored) || !isOnScreen(row)) continue;
    // Between low lanes, an arch would hide the states of processes.
    if (row.height < 12) {
      line(x1, at - row.height / 2, x2, at - row.height / 2);
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

// Symbols if there is space for them; otherwise ticks at the upper edge of the row, which hide nothing. On narrow lanes, a
// checkpoint of several processes is one tick above them.
function drawCheckpoints() {
  const inSight = checkpoints.filter(it => visible(it.from, it.upto)), room = new Uint32Array(rows.length);
  for (const it of inSight) for (const [lane] of it.members) room[rowOf[lane]]++;
  for (const it of inSight) {
    const color = it.undone ? colors.faint : clusterColor(it.first);
    const tick = (row, from, upto, above = 0) => {
      g.fillStyle = color;
      g.globalAlpha = it.kind === "forced" ? .55 : .9;
      const height = row.lane < 0 ? 6 : -above || Math.max(1, row.height * .22);
      g.fillRect(x(from) - .5, rowTop(row) + above, Math.max(1, x(upto) - x(from)), height);
    };
    const top = rows[rowOf[it.first]];
    if (top.height < 9 && it.first !== it.last) {
      if (isOnScreen(top)) tick(top, it.from, it.upto, -4);
      continue;
    }
    let before = -1;
    for (const [lane, at] of it.members.length ? it.members : withoutMembers(it)) {
      const row = rows[rowOf[lane]], most = inner() / (markSize(row.height) * 5);
      if (!isOnScreen(row) || row.lane < 0 && rowOf[lane] === before) continue;
      before = rowOf[lane];
      g.globalAlpha = 1;
      if (row.lane < 0) tick(row, it.from, it.upto);
      else if (it.members.length && room[before] <= most && row.height >= 9) checkpointSign(g, it.kind, it.undone, x(at), y(lane), markSize(row.height), color);
      else tick(row, at, it.members.length ? at : it.upto);
    }
  }
  g.globalAlpha = 1;
}
// If a page lacks the times of the members, each of them saved its state between the first and the last time.
const withoutMembers = it => Array.from({ length: it.last - it.first + 1 }, (_, i) => [it.first + i, it.from]);

// One cross for failures that are at the same place on the screen.
function drawFailures() {
  let row = null, at = 0;
  for (const it of data.outages) {
    if (!visible(it.from, it.from) || row === rows[rowOf[it.lane]] && Math.abs(x(it.from) - at) < 2) continue;
    row = rows[rowOf[it.lane]];
    at = x(it.from);
    if (!isOnScreen(row)) continue;
    g.fillStyle = colors.bad;
    if (row.height < 9) g.fillRect(at - 1, rowTop(row), 2, row.height);
    else cross(g, at, y(it.lane), markSize(row.height) * 1.15);
  }
}

function drawFlips() {
  for (const it of data.flips) {
    const row = rows[rowOf[it.lane]];
    if (visible(it.at, it.at) && isOnScreen(row)) triangle(g, x(it.at), y(it.lane), Math.max(3, markSize(row.height)));
  }
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

// The symbol of a flipped bit.
function triangle(g, cx, cy, size) {
  const s = size * 1.2;
  g.beginPath();
  g.moveTo(cx, cy - s); g.lineTo(cx + s, cy + s); g.lineTo(cx - s, cy + s); g.closePath();
  g.fillStyle = colors.bad;
  g.strokeStyle = colors.paper;
  g.lineWidth = 1.2;
  g.fill();
  g.stroke();
}

// A cross with an edge, because work before a failure may be undone, which is red, too.
function cross(g, cx, cy, size) {
  g.lineCap = "round";
  g.beginPath();
  g.moveTo(cx - size, cy - size); g.lineTo(cx + size, cy + size);
  g.moveTo(cx - size, cy + size); g.lineTo(cx + size, cy - size);
  for (const [color, wide] of [["paper", 5], ["bad", 2.4]]) {
    g.strokeStyle = colors[color];
    g.lineWidth = wide;
    g.stroke();
  }
  g.lineCap = "butt";
}

// Labels of faults on two rows, as long as the next label on the same row permits.
function drawFaults() {
  g.font = "12px " + FONT;
  g.textAlign = "left";
  const faults = data.faults.filter(it => visible(it.at, it.at)), ends = [-Infinity, -Infinity];
  faults.forEach((it, index) => {
    const at = x(it.at), limit = index + 2 < faults.length ? x(faults[index + 2].at) : width - 4;
    g.strokeStyle = g.fillStyle = colors.bad;
    g.lineWidth = 1;
    g.setLineDash([2, 3]);
    line(at, TOP - 10, at, high - AXIS + 4);
    g.setLineDash([]);
    for (const text of [`fault ${it.no}: ${it.text}`, `fault ${it.no}`, `${it.no}`]) {
      const wide = g.measureText(text).width, start = Math.max(4, Math.min(at + 4, width - 4 - wide));
      const row = ends.findIndex(end => start > end + 8);
      if (row < 0 || start + wide > limit) continue;
      g.fillText(text, start, TOP - 14 - 16 * row);
      ends[row] = start + wide;
      break;
    }
  });
}

function line(x1, y1, x2, y2) {
  g.beginPath();
  g.moveTo(x1, y1);
  g.lineTo(x2, y2);
  g.stroke();
}

// The number of messages in each of 300 parts of the run.
let profiled = null;
function profile() {
  if (profiled) return profiled;
  profiled = new Float64Array(300);
  eachEnd(false, (lane, fate, between, at, length, number) => {
    profiled[Math.max(0, Math.min(299, Math.floor((at + length / 2 - whole.from) / (whole.upto - whole.from) * 300)))] += number;
  });
  return profiled;
}

function drawOverview() {
  const o = overview.getContext("2d"), inner = width - left - RIGHT;
  const at = t => left + (t - whole.from) / (whole.upto - whole.from) * inner;
  o.clearRect(0, 0, width, OVERVIEW);
  const most = Math.max(1, ...profile());
  o.fillStyle = colors.faint;
  o.globalAlpha = .45;
  const wide = inner / 300;
  profile().forEach((n, i) => o.fillRect(left + i * wide, OVERVIEW - 4 - Math.sqrt(n / most) * (OVERVIEW - 12), wide - .5, Math.sqrt(n / most) * (OVERVIEW - 12)));
  o.globalAlpha = 1;
  o.fillStyle = colors.undone;
  for (const it of undone) o.fillRect(at(it.from), 2, Math.max(1, at(it.upto) - at(it.from)), 4);
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

