"use strict";
// What is folded on the screen is printed as well.
(() => {
  const folded = () => document.querySelectorAll("details");
  addEventListener("beforeprint", () => folded().forEach((each) => { each.open = true; }));
  addEventListener("afterprint", () => folded().forEach((each) => { each.open = false; }));
})();

// Sorts the table of decisions by the column whose head is pressed.
(() => {
  const table = document.getElementById("decisions");
  if (!table) return;
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const told = document.getElementById("sorted");

  const value = (row, k) => {
    const text = row.cells[k].dataset.value;
    const number = Number(text);
    return text !== "" && !Number.isNaN(number) ? number : text;
  };

  // What is missing comes last, whichever way the rest is sorted.
  const compare = (a, b, sign) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b));
  };

  const sortBy = (k) => {
    const sign = heads[k].getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const rows = [...body.rows].map((row) => [value(row, k), row]);
    rows.sort((one, other) => compare(one[0], other[0], sign));
    body.append(...rows.map((pair) => pair[1]));
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[k].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const way = sign > 0 ? "smallest first" : "largest first";
    told.textContent = `Sorted by ${heads[k].textContent.trim()}, ${way}.`;
  };

  heads.forEach((head, k) => {
    const button = head.querySelector("button");
    if (button) button.addEventListener("click", () => sortBy(k));
  });
  table.classList.add("sortable");
})();
