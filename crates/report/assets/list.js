// The list of all records: filters it, and renews its rows.
const byId = id => document.getElementById(id);
const rows = byId("rows"), search = byId("search"), state = byId("state"), protocol = byId("protocol");

function filter() {
  const all = [...rows.querySelectorAll("[data-state]")], words = search.value.toLowerCase().split(/\s+/).filter(it => it);
  let judged = 0, records = 0, seen = 0;
  for (const row of all) {
    const is = row.dataset.state, text = row.textContent.toLowerCase();
    records += is !== "page";
    judged += ["pass", "fail", "unknown"].includes(is);
    row.hidden = state.value && is !== state.value || protocol.value && row.dataset.protocol !== protocol.value || !words.every(it => text.includes(it));
    seen += !row.hidden;
  }
  const counts = `${records} ${records === 1 ? "record" : "records"}, ${judged} judged; ${seen === all.length ? "all" : seen} shown`;
  if (byId("number").textContent !== counts) byId("number").textContent = counts;
  for (const it of new Set(all.map(row => row.dataset.protocol).filter(it => it))) {
    if (![...protocol.options].some(option => option.value === it)) protocol.add(new Option(it, it));
  }
}
for (const it of [search, state, protocol]) it.addEventListener("input", filter);

// Replaces only rows that changed, so that the others keep the focus.
function renew(text) {
  const fresh = document.createElement("template");
  fresh.innerHTML = text;
  const known = new Map([...rows.children].map(it => [it.id, it]));
  let next = rows.firstElementChild;
  for (const row of [...fresh.content.children]) {
    const old = known.get(row.id);
    known.delete(row.id);
    if (old) old.hidden = false;
    const has = old && old.outerHTML.replace(/ hidden=""/, "") === row.outerHTML ? old : row;
    if (old && has !== old) {
      if (old === next) next = old.nextElementSibling;
      const focused = old.contains(document.activeElement);
      old.replaceWith(has);
      if (focused) has.querySelector("a")?.focus();
    }
    if (has === next) next = next.nextElementSibling;
    else rows.insertBefore(has, next);
  }
  for (const it of known.values()) it.remove();
  filter();
}

let version = null;
async function look() {
  const lost = byId("lost");
  try {
    const answer = await fetch("list", version ? { headers: { "If-None-Match": version } } : {});
    if (answer.status === 200) {
      version = answer.headers.get("ETag");
      renew(await answer.text());
    }
    lost.hidden = true;
  } catch {
    lost.hidden = false;
    lost.textContent = "Disconnected. What you see is the last state.";
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}
filter();
setTimeout(look, 1000);
