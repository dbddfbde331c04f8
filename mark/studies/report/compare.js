// Draws the figures that Python prepared and fills the decisions of the chosen policy. All texts are set as text.
async () => {
  const data = JSON.parse(await figures.unpacked("data"));

  function clock(seconds) {
    const pad = (n) => String(n).padStart(2, "0");
    const s = Math.floor(seconds), days = Math.floor(s / 86400);
    return (days ? `day ${days + 1} ` : "") + `${pad(Math.floor(s / 3600) % 24)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}`;
  }

  const filter = document.getElementById("filter"), shown = document.getElementById("shown");
  const body = document.querySelector("#decisions tbody");
  const PRINTED = 20; // as in page.css
  let policy;

  function element(tag, text) {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  }

  // Below a decision: what was believed, and what it was weighed against.
  function unfold(row, button, [words, , heads, choices]) {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) { row.nextSibling.remove(); return; }
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const text of heads) head.append(element("th", text));
    const rows = table.createTBody();
    for (const choice of choices) {
      const line = rows.insertRow();
      for (const text of choice) line.insertCell().textContent = text;
    }
    const below = document.createElement("tr");
    const cell = below.insertCell();
    cell.colSpan = 4;
    cell.append(element("p", words), table);
    below.className = "why";
    row.after(below);
  }

  function list() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = policy.decisions.filter(([, text, outcome]) => {
      const line = `${text} ${outcome}`.toLowerCase();
      return words.every((word) => line.includes(word));
    });
    body.replaceChildren(...rows.map(([at, text, outcome, place]) => {
      const row = document.createElement("tr");
      const weighed = place === null ? undefined : policy.weighed[place];
      const time = row.insertCell();
      for (const cell of [text, weighed ? weighed[1] : "", outcome]) row.insertCell().textContent = cell;
      if (!weighed) time.textContent = clock(at);
      else {
        const button = element("button", clock(at));
        button.type = "button";
        button.setAttribute("aria-expanded", "false");
        button.addEventListener("click", () => unfold(row, button, weighed));
        time.append(button);
      }
      return row;
    }));
    const cut = policy.decided > policy.decisions.length ? `, the first ${policy.decisions.length} of ${policy.decided} are in this file` : "";
    shown.textContent = `${rows.length} shown${cut}`;
    document.getElementById("cut").textContent = rows.length > PRINTED ? `${rows.length - PRINTED} more decisions are in the file.` : "";
    body.querySelector("button")?.click();
  }

  function choose(button) {
    for (const other of document.querySelectorAll("[data-policy]")) other.setAttribute("aria-selected", String(other === button));
    policy = data.policies[Number(button.dataset.policy)];
    for (const element of document.querySelectorAll("[data-own]")) figures.draw(element, policy[element.dataset.own]);
    list();
  }

  for (const button of document.querySelectorAll("[data-policy]")) button.addEventListener("click", () => choose(button));
  filter.addEventListener("input", list);
  choose(document.querySelector("[data-policy][aria-selected=true]"));
}
