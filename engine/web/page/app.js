"use strict";
const el = (tag, props = {}, ...children) => {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...children.filter(c => c !== null));
  return e;
};
const table = (heads, rows) => { // on a narrow screen each cell says what it is
  for (const row of rows) [...row.cells].forEach((cell, i) => cell.dataset.head = heads[i]);
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(h => el("th", {textContent: h})))), el("tbody", {}, ...rows));
};
const num = n => n < 0 ? "?" : Number(n).toLocaleString("en");
function replica(r, end, leader) {
  const lag = !r.known ? "unknown" : r.broker === leader ? "leads" : !r.has_lag ? "" : r.lag > 0 ? "lag " + num(r.lag) : r.lag < 0 ? "ahead by " + num(-r.lag) : "in step";
  const width = r.known && end > 0 ? Math.max(0, Math.min(100, 100 * r.log_end / end)) : 0;
  return el("div", {className: "rep" + (r.active ? "" : " off"), title: r.problem || ""},
    el("b", {textContent: "broker " + r.broker}), el("div", {className: "track"}, el("div", {className: "bar", style: "width:" + width + "%"})),
    el("span", {textContent: lag + (r.active ? "" : ", not in sync"), className: !r.known ? "bad" : r.lag ? "bad" : "dim"}));
}
function draw(o) {
  document.title = o.service;
  service.textContent = o.service;
  const c = o.cluster;
  const active = c.decider ? `, broker ${c.decider} decides` + (c.term ? ` in term ${c.term}` : "") : c.controller === "quorum" ? ", none is active" : "";
  who.textContent = `broker ${o.broker} answers · controller ${o.controller}${active}`;
  brokers.replaceChildren(...c.brokers.map(b => el("div", {className: "card"}, el("span", {className: "dot" + (b.alive ? " up" : "")}),
    el("b", {textContent: "broker " + b.id}), el("div", {className: "dim", textContent: b.address}),
    el("div", {className: b.fenced || !b.alive ? "bad" : "dim", textContent: [b.fenced ? "fenced" : b.alive ? "" : "does not answer", `leads ${b.leads} of ${b.replicas}`,
      b.id === c.decider ? "active controller" : b.voter ? "voter" : "", b.voter && b.lag > 0 ? `lacks ${num(b.lag)} decisions` : ""].filter(x => x).join(" · ")}))));
  const first = (ps, what) => ps && ps.length ? el("div", {className: "bad", textContent: `${what}: ` + ps.slice(0, 8).map(p => p.topic + "/" + p.partition).join(" ") + (ps.length > 8 ? ` and ${ps.length - 8} more` : "")}) : null;
  problems.replaceChildren(...[first(c.leaderless, "nobody leads"), first(c.under_min_isr, "no writes for quorum and all"), first(c.under_replicated, "a replica is not in sync")].filter(x => x));
  const rows = o.topics.flatMap(t => t.partitions.map((p, i) => {
    const end = Math.max(0, ...p.replicas.map(r => r.log_end));
    return el("tr", {}, el("td", {textContent: t.name + "/" + i}), el("td", {className: p.leader ? "" : "bad", textContent: p.leader ? "broker " + p.leader : "nobody"}),
      el("td", {className: "n", textContent: p.epoch}), el("td", {className: "n", textContent: num(p.high_watermark)}),
      el("td", {}, ...p.replicas.map(r => replica(r, end, p.leader))));
  }));
  topics.replaceChildren(rows.length ? table(["partition", "leader", "epoch", "high watermark", "replicas"], rows) : el("p", {className: "dim", textContent: "No topics yet. Make one: logbook topic create flights --partitions 3"}));
  const members = g => g.members.map(m => el("div", {}, m.member + " ", el("span", {className: "dim", textContent: m.partitions.map(p => p.topic + "/" + p.partition).join(" ")})));
  const lags = g => g.offsets.map(x => el("div", {className: "n"}, `${x.topic}/${x.partition} at ${num(x.offset)} `, el("span", {className: x.lag > 0 ? "bad" : "dim", textContent: x.lag < 0 ? "lag unknown" : "lag " + num(x.lag)})));
  groups.replaceChildren(o.groups.length ? table(["group", "state", "generation", "members", "committed"], o.groups.map(g => el("tr", {},
    el("td", {textContent: g.group}), el("td", {textContent: g.state}), el("td", {className: "n", textContent: g.generation}), el("td", {}, ...members(g)), el("td", {}, ...lags(g))))) :
    el("p", {className: "dim", textContent: "No groups yet. Begin one: logbook consume flights --group dashboards"}));
}
async function look() {
  try {
    const res = await fetch("/api/v1/overview");
    if (!res.ok) throw new Error(res.status);
    draw(await res.json());
    stale.style.display = "none";
  } catch { stale.style.display = "block"; }
  setTimeout(look, 1000);
}
look();
