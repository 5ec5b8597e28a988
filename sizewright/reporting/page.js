"use strict";
(() => {
  const tip = document.getElementById("tip");
  const hide = () => {
    tip.hidden = true;
    document.querySelectorAll(".at").forEach((point) => point.classList.remove("at"));
  };
  const show = (point) => {
    hide();
    point.classList.add("at");
    tip.textContent = point.dataset.tip;
    tip.hidden = false;
    const at = point.getBoundingClientRect();
    const left = Math.min(at.right + 8, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${Math.max(at.top - tip.offsetHeight - 8, 8)}px`;
  };
  document.querySelectorAll(".points").forEach((group) => {
    const points = [...group.querySelectorAll("[data-tip]")];
    let at = 0;
    group.addEventListener("mouseover", (event) => {
      const point = event.target.closest("[data-tip]");
      if (point) show(point);
    });
    group.addEventListener("mouseout", hide);
    group.addEventListener("focus", () => show(points[at]));
    group.addEventListener("blur", hide);
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      at = (at + step + points.length) % points.length;
      show(points[at]);
    });
  });

  const table = document.getElementById("trials");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const filter = document.getElementById("filter");
  filter.closest("p").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += !row.hidden;
    });
    document.getElementById("shown").textContent = `${count} of ${rows.length}`;
  });

  const units = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const value = (text) => {
    const match = /^(-?[\d,.]+)(?: (B|KiB|MiB|GiB|TiB))?$/.exec(text);
    return match ? Number(match[1].replaceAll(",", "")) * (units[match[2]] || 1) : null;
  };
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x !== null ? -1 : 1;
    return a.localeCompare(b);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      [...table.tHead.rows[0].cells].forEach((each) => each.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((a, b) => compare(a.cells[column].textContent, b.cells[column].textContent) * (down ? -1 : 1));
      body.append(...rows);
    });
  });

  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
})();
