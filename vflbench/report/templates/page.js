// Tables: a click on a column's head sorts, words in the field filter, and three buttons copy the lines that are shown.
const shownRows = table => [...table.tBodies[0].rows].filter(row => !row.hidden);
const heads = table => [...table.tHead.rows[0].cells];
const exact = cell => cell.dataset.v;

// The three formats are those of the files in tables/: vflbench/results/table_formats.py.
const LATEX = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$",
  "|": "\\textbar{}", "<": "\\textless{}", ">": "\\textgreater{}"};
const latexText = text => text.replace(/[\\~^±|<>&%$#_{}]/g, sign => LATEX[sign] ?? "\\" + sign);
// In a table that is wider than a line, long words may be broken: vflbench/results/latex_columns.py.
const withBreaks = text => text.replace(/[^ ]{13,}/gu, word => word.replace(/[_+/](?=\w)|\.(?=[A-Za-z])/g, "$&\0"));
const latexRow = (texts, isWide) => {
  const row = texts.map(t => latexText(isWide ? withBreaks(t) : t).replaceAll("\0", "\\allowbreak{}")).join(" & ");
  return (/^[[*]/.test(row) ? "{}" : "") + row + " \\\\";
};
const FORMULA = /(?:^|(?<=[;\t]))(\s*)(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])/g, NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
const csvText = text => NUMBER.test(text) ? text : text.replace(FORMULA, "'$1");
const csvRow = texts => texts.map(t => /[",\r\n]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t).join(",");
const csvCell = (cell, wide) => {
  const values = exact(cell) === undefined ? [csvText(cell.textContent)] : exact(cell).split(" ");
  return wide ? [0, 1, 2].map(i => values[i] ?? "") : [values[0]];
};
const MARKDOWN = {"\\": "&#92;"};
const markdownText = text => text.replace(/<(?=[A-Za-z/!?])|&(?=#?[\p{L}\p{N}_])/gu, sign => sign === "<" ? "&lt;" : "&amp;")
  .replace(/[\\|`*[\]]/g, sign => MARKDOWN[sign] ?? "\\" + sign);
const markdownRow = texts => `| ${texts.map(markdownText).join(" | ")} |`;
const texts = row => [...row.cells].map(cell => cell.textContent);

const isWide = table => "latexSize" in table.dataset, isResized = table => "latexResized" in table.dataset;
const packages = table => isResized(table) ? "array,booktabs,graphicx" : isWide(table) ? "array,booktabs" : "booktabs";
const latexColumn = head => head.dataset.latex ?? ("wide" in head.dataset || "number" in head.dataset ? "r" : "l");

const FORMATS = {
  LaTeX: table => [`% needs \\usepackage{${packages(table)}}`, "\\begin{table}", "\\centering",
    ...(isWide(table) ? [`\\${table.dataset.latexSize}\\setlength{\\tabcolsep}{3pt}`] : []),
    `\\caption{${latexText(table.dataset.caption)}}`, `\\label{tab:${table.id}}`,
    ...(isResized(table) ? ["\\resizebox{\\linewidth}{!}{" + "%"] : []),
    `\\begin{tabular}{${heads(table).map(latexColumn).join("")}}`, "\\toprule", latexRow(texts(table.tHead.rows[0]), isWide(table)),
    "\\midrule", ...shownRows(table).map(row => latexRow(texts(row), isWide(table))),
    "\\bottomrule", `\\end{tabular}${isResized(table) ? "}" : ""}`, "\\end{table}", ""].join("\n"),
  CSV: table => {
    const wide = heads(table).map(head => "wide" in head.dataset);
    const head = texts(table.tHead.rows[0]).flatMap((t, j) => (wide[j] ? [t, `${t} low`, `${t} high`] : [t]).map(csvText));
    const rows = shownRows(table).map(row => [...row.cells].flatMap((cell, j) => csvCell(cell, wide[j])));
    return [head, ...rows].map(csvRow).join("\n") + "\n";
  },
  Markdown: table => [markdownRow(texts(table.tHead.rows[0])), "|" + "---|".repeat(heads(table).length),
    ...shownRows(table).map(row => markdownRow(texts(row)))].join("\n") + "\n",
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
  heads(table).forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = row => {
    const cell = row.cells[column], value = exact(cell);
    return value === undefined ? cell.textContent : value === "" ? null : parseFloat(value);
  };
  const order = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null); // a missing value is last
    const side = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
    return up ? side : -side;
  };
  body.append(...[...body.rows].map(row => [key(row), row]).sort((a, b) => order(a[0], b[0])).map(pair => pair[1]));
};

const make = (name, attributes, text = "") => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
};

for (const table of document.querySelectorAll(".scroll > table")) {
  heads(table).forEach((head, column) => head.firstChild.addEventListener("click", () => sorted(table, head, column)));
  const title = table.getAttribute("aria-label"), all = table.tBodies[0].rows.length;
  const tools = make("div", {class: "tools", role: "group", "aria-label": `Tools of the table ${title}, ${table.id}`});
  const said = make("span", {class: "soft", role: "status"});
  if (all > 4) {
    const field = make("input", {type: "search", placeholder: "filter lines", "aria-label": `Filter lines of ${title}`});
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of table.tBodies[0].rows) {
        const text = texts(row).join(" ").toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
      }
      said.textContent = field.value.trim() ? `${shownRows(table).length} of ${all} lines` : "";
    });
    tools.append(field);
  }
  tools.append(make("span", {class: "soft"}, "copy as"));
  for (const [name, text] of Object.entries(FORMATS)) {
    const button = make("button", {type: "button", "aria-label": `Copy ${title} as ${name}`}, name);
    button.addEventListener("click", async () => {
      const lines = shownRows(table).length;
      said.textContent = await copied(text(table)) ? `${lines} lines copied as ${name}` : `this browser doesn't copy: see tables/${table.id}`;
    });
    tools.append(button);
  }
  tools.append(said);
  table.parentElement.before(tools);
}
