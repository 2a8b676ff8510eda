(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)"), views = new Map(), tip = document.createElement("div");
  tip.id = "plot_tip";
  tip.setAttribute("role", "status");
  document.body.append(tip);
  const hide = () => { tip.style.display = "none"; };
  const show = (handler, event, item, value) => {
    if (!value) return hide();
    tip.textContent = value;
    tip.style.display = "block";
    const {clientX: x, clientY: y} = event.touches?.[0] ?? event;
    tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = (y > tip.offsetHeight + 16 ? y - tip.offsetHeight - 10 : y + 16) + "px";
  };
  addEventListener("scroll", hide, {passive: true});
  const paint = isDark => { for (const view of views.values()) view.signal("dark", isDark).run(); };
  dark.addEventListener("change", () => paint(dark.matches));
  addEventListener("beforeprint", () => paint(false));
  addEventListener("afterprint", () => paint(dark.matches));

  // On a narrow page a heat map is a table with names that stay in sight; the figure would show these and no column.
  const heat = ({datasets: {cells}}) => {
    const make = (name, textContent = "", more = {}) => Object.assign(document.createElement(name), {textContent, ...more});
    const rows = Map.groupBy(cells, cell => cell.row), groups = Map.groupBy([...rows.values()][0], cell => cell.group);
    const shaded = cell => {
      const made = make("td", cell.words, {title: cell.hover});
      if (cell.shade) Object.assign(made.style, {background: cell.shade, color: cell.dark ? "#fff" : "#000"});
      return made;
    };
    const upright = text => { const made = make("th"); made.append(make("span", text)); return made; };
    const table = make("table", "", {className: "heat"}), head = table.createTHead(), body = table.createTBody();
    head.insertRow().append(make("td"), ...[...groups].map(([text, of]) => make(text.trim() ? "th" : "td", text, {colSpan: of.length})));
    head.insertRow().append(make("td"), ...[...groups.values()].flat().map(cell => upright(cell.column)));
    for (const [name, of] of rows) body.insertRow().append(make("th", name), ...of.map(shaded));
    return table;
  };
  const fit = place => place.classList.toggle("is-narrow", widths.get(place) < 480 && place.querySelector("table.heat") !== null);

  const draw = async place => {
    const figure = place.closest("figure"), spec = JSON.parse(figure.querySelector("script").textContent);
    delete spec.title;  // the page has it above the figure, where it breaks into lines
    const param = name => spec.params.find(param => param.name === name);
    param("dark").value = dark.matches;
    param("across").value = widths.get(place);
    place.classList.toggle("is-fixed", spec.width !== "container");
    if (spec.width !== "container") place.tabIndex = 0;  // it may scroll, also by keys
    if (spec.width === "container") Object.assign(spec, {width: widths.get(place), autosize: {type: "fit-x", contains: "padding"}});
    const {view} = await vegaEmbed(place, spec, {ast: true, actions: false, renderer: "svg", defaultStyle: false, logLevel: 1, tooltip: show});
    place.querySelector("svg").setAttribute("aria-hidden", "true");  // the place has the text for who can't see it
    if (spec.usermeta?.heat) place.append(heat(spec));
    fit(place);
    views.set(figure, view);
    figure.classList.add("is-drawn");
    for (const button of figure.querySelectorAll("[data-save]"))
      button.addEventListener("click", () => save(view, spec, `${place.dataset.slug}.${button.dataset.save}`));
  };
  const resize = async place => {
    const view = views.get(place.closest("figure")), across = widths.get(place);
    fit(place);
    if (!place.classList.contains("is-fixed")) view.width(across);
    await view.signal("across", across).resize().runAsync();
  };
  const COLUMNS = {
    points: ["label", "x", "x_low", "x_high", "y", "low", "high", "hover"],
    cells: ["row", "group", "column", "value", "words"],
  };
  const table = ({datasets, usermeta: {titles = {}}}) => {
    const kind = Object.keys(COLUMNS).find(name => name in datasets);
    const columns = COLUMNS[kind].filter(column => datasets[kind].some(row => (row[column] ?? "") !== ""));
    const cell = value => {
      let text = value === null || value === undefined ? "" : String(value).replaceAll("\n", "; ");
      if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;  // a spreadsheet would compute it
      return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const HEADS = {x: titles.x, x_low: `${titles.x}_low`, x_high: `${titles.x}_high`, y: titles.y, low: `${titles.y}_low`, high: `${titles.y}_high`};
    const heads = columns.map(column => HEADS[column] ?? column);
    return [heads, ...datasets[kind].map(row => columns.map(column => row[column]))].map(row => row.map(cell).join(",")).join("\n") + "\n";
  };
  const save = async (view, spec, name) => {
    let content;
    if (name.endsWith(".csv")) content = new Blob([table(spec)], {type: "text/csv"});
    else {
      await view.signal("dark", false).runAsync();
      content = name.endsWith(".svg") ? new Blob([await view.toSVG()], {type: "image/svg+xml"})
        : await new Promise(async done => (await view.toCanvas(2)).toBlob(done, "image/png"));
      await view.signal("dark", dark.matches).runAsync();
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // One after another, each as soon as its place has a width: a figure in a closed part of the page has none.
  let last = Promise.resolve();
  const widths = new Map(), sizes = new ResizeObserver(entries => {
    for (const {target, contentRect: {width}} of entries) {
      const across = Math.floor(width), before = widths.get(target);
      if (!across || across === before) continue;
      widths.set(target, across);
      last = last.then(() => before ? resize(target) : draw(target)).catch(error => {
        target.textContent = `This figure can't be drawn: ${error.message}`;
      });
    }
  });
  for (const place of document.querySelectorAll(".plot")) sizes.observe(place);
})();
