// Tables: a click on a column's head sorts, words in the field filter, and three buttons copy the table.
const number = cell => {  // "1,234 (1,200 to 1,268)" is 1234; a missing value is last
  const text = cell.textContent.trim();
  return text === "-" || text === "" ? null : /^[-+]?[\d,]*\.?\d+(e[-+]?\d+)?(?=$| \()/i.test(text) ? parseFloat(text.replaceAll(",", "")) : text;
};
const copied = async text => {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: the old way */ }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
};

const sorted = (table, head, column) => {
  const up = head.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const order = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    const side = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
    return up ? side : -side;
  };
  body.append(...[...body.rows].sort((a, b) => order(number(a.cells[column]), number(b.cells[column]))));
};

const make = (name, attributes, text = "") => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
};

for (const table of document.querySelectorAll(".scroll > table")) {
  const title = table.parentElement.getAttribute("aria-label"), rows = [...table.tBodies[0].rows], all = rows.length;
  const copies = JSON.parse(table.parentElement.nextElementSibling.textContent);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", {type: "button"}, head.textContent);
    button.addEventListener("click", () => sorted(table, head, column));
    head.replaceChildren(button);
  });
  for (const cell of table.querySelectorAll("th, td")) {
    const length = cell.textContent.length;
    cell.className = typeof number(cell) === "number" ? "n" : length > 90 ? "long" : length > 40 ? "mid" : length > 13 ? "some" : "";
  }
  const shown = () => [...table.tBodies[0].rows].filter(row => !row.hidden);
  const tools = make("div", {class: "tools", role: "group", "aria-label": `Tools of the table ${title}, ${table.id}`});
  const said = make("span", {class: "soft", role: "status"});
  if (all > 4) {
    const field = make("input", {type: "search", placeholder: "filter lines", "aria-label": `Filter lines of ${title}`});
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = [...row.cells].map(cell => cell.textContent).join(" ").toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
      }
      said.textContent = field.value.trim() ? `${shown().length} of ${all} lines` : "";
    });
    tools.append(field);
  }
  tools.append(make("span", {class: "soft"}, "copy as"));
  for (const [name, text] of Object.entries(copies)) {
    const button = make("button", {type: "button", "aria-label": `Copy ${title} as ${name}`}, name);
    button.addEventListener("click", async () => {
      said.textContent = await copied(text) ? `copied as ${name}` : `this browser doesn't copy: see tables/${table.id}`;
    });
    tools.append(button);
  }
  tools.append(said);
  table.parentElement.before(tools);
}
