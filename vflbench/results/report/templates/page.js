for (const head of document.querySelectorAll("thead tr"))
  [...head.cells].forEach((cell, column) => cell.querySelector("button").addEventListener("click", () => {
    const up = cell.getAttribute("aria-sort") !== "ascending";
    for (const other of head.cells) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0], key = row => row.cells[column].dataset.k;
    const rank = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const x = Number(a), y = Number(b), order = isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
      return up ? order : -order;
    };
    body.append(...[...body.rows].sort((a, b) => rank(key(a), key(b))));
  }));
const tip = document.getElementById("tip");
for (const point of document.querySelectorAll("g.point")) {
  const text = point.querySelector("title").textContent;
  const show = () => {
    const box = point.querySelector(".mark").getBoundingClientRect();
    tip.textContent = text; tip.style.display = "block";
    tip.style.left = Math.max(4, Math.min(box.left + 12, innerWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = (box.top > tip.offsetHeight + 12 ? box.top - tip.offsetHeight - 6 : box.bottom + 8) + "px";
  };
  const hide = () => { tip.style.display = "none"; };
  point.addEventListener("click", show); point.addEventListener("focus", show); point.addEventListener("blur", hide);
}
addEventListener("scroll", () => { tip.style.display = "none"; }, {passive: true});
addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details")) d.open = true; });
