
"use strict";
(() => {
  const compare = (a, b) => a.localeCompare(b, "en", { numeric: true });

  // A click on a heading sorts up, then down, then back to the order of the report.
  for (const table of document.querySelectorAll("table[data-name]")) {
    const bodies = [...table.tBodies];
    const original = bodies.map((body) => [...body.rows]);
    const headings = [...table.tHead.rows[0].cells];
    const sort = (column) => {
      const heading = headings[column];
      const now = heading.getAttribute("aria-sort");
      const next = now === null ? "ascending" : now === "ascending" ? "descending" : null;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      if (next === null) {
        bodies.forEach((body, index) => body.append(...original[index]));
        return;
      }
      heading.setAttribute("aria-sort", next);
      const numeric = heading.classList.contains("number");
      const sign = next === "ascending" ? 1 : -1;
      const key = (row) => (numeric ? row.cells[column].dataset.key : row.cells[column].textContent);
      const rows = original.flat().map((row) => ({ row, key: key(row) }));
      rows.sort((a, b) => {
        if (numeric && (a.key === "" || b.key === "")) {
          return (a.key === "") - (b.key === ""); // what has no number stays last
        }
        return sign * (numeric ? Number(a.key) - Number(b.key) : compare(a.key, b.key));
      });
      bodies[0].append(...rows.map((entry) => entry.row));
    };
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(column));
      heading.append(button);
    });
  }

  // Rows of a table, or the runs of the list below it, that hold every word of the box.
  const named = (attribute, name) =>
    [...document.querySelectorAll(`[data-${attribute}]`)].find((each) => each.dataset[attribute] === name);
  for (const input of document.querySelectorAll("input[data-filter]")) {
    const name = input.dataset.filter;
    const table = named("name", name);
    const count = named("count", name);
    const entries = () =>
      table ? [...table.tBodies].flatMap((body) => [...body.rows]) : [...named("list", name).children];
    const unit = table ? "rows" : "runs";
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const all = entries();
      for (const entry of all) {
        const text = entry.textContent.toLowerCase();
        entry.hidden = !words.every((word) => text.includes(word));
      }
      const shown = all.filter((entry) => !entry.hidden).length;
      count.textContent = words.length ? `${shown} of ${all.length} ${unit}` : "";
    });
  }

  // A link to a run opens it, also where the filter hides it.
  const openTarget = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) {
      target.hidden = false;
      target.open = true;
      target.scrollIntoView();
      target.querySelector("summary").focus();
    }
  };
  window.addEventListener("hashchange", openTarget);
  openTarget();

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const area = document.getElementById(button.dataset.copy);
    const copied = button.nextElementSibling;
    const say = (text) => {
      copied.textContent = text;
    };
    // Without the clipboard interface the text is shown and selected, so that a key can copy it.
    const fallback = () => {
      area.closest("details").open = true;
      area.focus();
      area.select();
      let done = false;
      try {
        done = document.execCommand("copy");
      } catch {
        done = false;
      }
      say(done ? "copied" : "selected: press Ctrl+C or ⌘C");
    };
    button.addEventListener("click", async () => {
      if (!navigator.clipboard) {
        fallback();
        return;
      }
      try {
        await navigator.clipboard.writeText(area.value);
        say("copied");
      } catch {
        fallback();
      }
    });
  }
})();
