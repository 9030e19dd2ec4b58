"use strict";
// Tables of points: sorted by their headings, filtered by text, and filled 200 rows at a time.
(() => {
  const STEP = 200;
  const NONE = "\u2013";
  const COUNTS = new Intl.NumberFormat("en-US");
  const LETTERS = new Intl.Collator("en", { numeric: true });

  function textOf(value) {
    if (value === null) return NONE;
    if (typeof value !== "number") return String(value);
    return Number.isInteger(value) ? COUNTS.format(value) : String(Number(value.toPrecision(6)));
  }

  // Numbers by size, text by its letters and the numbers in it; what is absent comes last, whichever way.
  function compare(a, b, direction) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return direction * (a - b);
    return direction * LETTERS.compare(String(a), String(b));
  }

  function setUp(box) {
    const { columns, rows } = JSON.parse(document.getElementById(box.dataset.source).textContent);
    const body = box.querySelector("tbody");
    const headings = [...box.querySelectorAll("thead th")];
    const filter = box.querySelector(".filter");
    const choice = box.querySelector(".choice");
    const more = box.querySelector(".more");
    const status = box.querySelector(".status");
    let texts = null;
    const at = Object.fromEntries(columns.map((column, i) => [column.name, i]));
    let order = rows.map((_, i) => i);
    let matching = order;
    let shown = 0;

    function chosen(row) {
      if (!choice || choice.value === "all") return true;
      return choice.value === "failed" ? row[at.status] === "failed" : row[at.feasible] === true;
    }

    function addRows() {
      const end = Math.min(shown + STEP, matching.length);
      const fragment = document.createDocumentFragment();
      for (; shown < end; shown += 1) {
        const line = document.createElement("tr");
        rows[matching[shown]].forEach((value, i) => {
          const cell = line.appendChild(document.createElement("td"));
          cell.textContent = textOf(value);
          cell.classList.toggle("number", columns[i].is_number);
          cell.classList.toggle("screen", !columns[i].on_paper);
          if (typeof value === "number") cell.title = String(value);
        });
        fragment.appendChild(line);
      }
      body.appendChild(fragment);
      more.hidden = shown === matching.length;
      box.classList.toggle("long", matching.length > 40);
      status.textContent = `${COUNTS.format(shown)} of ${COUNTS.format(matching.length)} rows shown` +
        (matching.length < rows.length ? `, ${COUNTS.format(rows.length)} in all` : "");
    }

    function refresh() {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      if (words.length) texts ??= rows.map((row) => [...row.map(textOf), ...row].join("\n").toLowerCase());
      matching = order.filter((i) => chosen(rows[i]) && words.every((word) => texts[i].includes(word)));
      body.replaceChildren();
      shown = 0;
      addRows();
    }

    function sortBy(column) {
      const rising = headings[column].getAttribute("aria-sort") !== "ascending";
      headings.forEach((heading) => heading.setAttribute("aria-sort", "none"));
      headings[column].setAttribute("aria-sort", rising ? "ascending" : "descending");
      order = order.slice().sort((i, j) => compare(rows[i][column], rows[j][column], rising ? 1 : -1));
      refresh();
    }

    headings.forEach((heading, i) => heading.querySelector("button").addEventListener("click", () => sortBy(i)));
    filter.addEventListener("input", refresh);
    if (choice) choice.addEventListener("change", refresh);
    more.addEventListener("click", addRows);
    refresh();
  }

  // A button says what came of it; where the browser has no clipboard to give, the text is marked to be copied.
  function copy(button) {
    const code = button.parentElement.querySelector("code");
    const mark = () => {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    };
    if (!navigator.clipboard) return mark();
    return navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = "Copied"; }, mark);
  }

  document.querySelectorAll(".points").forEach(setUp);
  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", () => copy(button)));
})();
