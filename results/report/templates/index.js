// Filters. The page says everything without this; the choice stands in the address, so that it can be shared.
"use strict";
(() => {
  const byId = id => document.getElementById(id);
  const rows = [...byId("rows").rows].map(row => ({ row, text: row.textContent.toLowerCase() }));
  const fields = ["verdict", "scenario", "cluster", "text"];
  const show = () => {
    const wanted = Object.fromEntries(fields.map(name => [name, byId(name).value]));
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { row, text } of rows) {
      const fits = ["verdict", "scenario", "cluster"].every(name => !wanted[name] || row.dataset[name] === wanted[name])
        && words.every(word => text.includes(word));
      row.hidden = !fits;
      count += fits;
    }
    byId("shown").textContent = `${count} of ${rows.length} runs`;
    const chosen = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)).toString();
    history.replaceState(null, "", chosen ? `#filter?${chosen}` : location.pathname + location.search);
  };
  const asked = /^#filter\?(.*)$/.exec(location.hash);
  for (const [name, value] of new URLSearchParams(asked ? asked[1] : "")) if (fields.includes(name)) byId(name).value = value;
  for (const name of fields) byId(name).addEventListener("input", show);
  byId("reset").addEventListener("click", () => { for (const name of fields) byId(name).value = ""; show(); });
  byId("filters").hidden = false;
  if (asked) { show(); byId("runs").scrollIntoView(); } else byId("shown").textContent = `${rows.length} runs`;
})();
