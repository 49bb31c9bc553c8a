"use strict";
(() => {
  const unpacked = async (id) => {
    const text = atob(document.getElementById(id).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };


  const tip = document.getElementById("tip");
  window.wallscopeTip = (text, x = 0, y = 0) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + tip.offsetHeight + 20 > window.innerHeight ? y - tip.offsetHeight - 10 : y + 16}px`;
  };

  const charts = [...document.querySelectorAll("script[data-chart]")].map((element) => ({
    place: document.getElementById(element.dataset.chart),
    ...JSON.parse(element.textContent),
  }));
  const draw = (chart) => {
    if (!chart.place.offsetParent) return;
    chart.draw ??= window.wallscopeChart(chart);
    chart.draw();
  };
  const redraw = () => charts.forEach(draw);
  const drawSeen = () => charts.filter(({ draw: isMade }) => isMade).forEach(draw);
  let unfolded = [];

  // A cell that was cut has its whole text in `data-full`, or in its tooltip where that says the same.
  const fullText = (cell) => (cell.dataset.full === undefined ? "" : cell.dataset.full || cell.title) || cell.textContent.trim();
  // On a phone, rows of wide tables are cards: each cell has the name of its column.
  const nameCells = () => document.querySelectorAll("table.wordy").forEach((table) => {
    const names = [...table.tHead.rows[0].cells].map((head) => head.textContent);
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => { cell.dataset.label = names[i]; });
  });
  const csv = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => {
    let text = fullText(cell);
    if (/^[=+@\t\r]|^-(?![\d.])/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-csv]");
    if (!button) return;
    const text = csv(button.closest("figure").querySelector("table"));
    if (button.dataset.csv === "copy") {
      await copy(button, text);
      return;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${button.closest("section").id}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  });

  // A table shows ten rows until it is expanded. Filter and order apply to all rows.
  const SHOWN_ROWS = 10;
  const arrange = (table) => {
    const figure = table.closest("figure"), filter = figure.querySelector(".filter");
    const wanted = filter ? filter.value.trim().toLowerCase() : "";
    let seen = 0;
    for (const row of table.tBodies[0].rows) {
      const text = wanted && [...row.cells].map(fullText).join(" ").toLowerCase();
      const isIn = !wanted || text.includes(wanted);
      row.classList.toggle("left-out", !isIn);
      row.classList.toggle("more", isIn && seen >= SHOWN_ROWS);
      if (isIn) seen++;
    }
    const button = figure.querySelector(".expander"), counted = figure.querySelector(".counted");
    if (!button) return;
    const isWhole = table.classList.contains("expanded");
    button.hidden = seen <= SHOWN_ROWS;
    button.textContent = isWhole ? `Show ${SHOWN_ROWS} rows` : `Show all ${seen} rows`;
    button.setAttribute("aria-expanded", String(isWhole));
    counted.textContent = wanted ? `${seen} of ${table.tBodies[0].rows.length} rows match` : "";
  };
  const sortRows = (head) => {
    const table = head.closest("table"), place = head.cellIndex, body = table.tBodies[0];
    const rows = [...body.rows];
    rows.forEach((row, number) => { row.dataset.order ??= String(number); });
    const isNumeric = rows.some((row) => row.cells[place].dataset.sort !== undefined);
    const before = head.getAttribute("aria-sort");
    const next = { null: isNumeric ? "descending" : "ascending", descending: isNumeric ? "ascending" : null, ascending: isNumeric ? null : "descending" }[before];
    head.parentElement.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    if (next) head.setAttribute("aria-sort", next);
    const way = next === "descending" ? -1 : 1;
    const key = ({ cells }) => (isNumeric ? Number(cells[place].dataset.sort ?? NaN) : cells[place].textContent.trim());
    const compare = (one, other) => {
      if (!next) return Number(one.dataset.order) - Number(other.dataset.order);
      const [left, right] = [key(one), key(other)];
      if (!isNumeric) return way * left.localeCompare(right, "en", { numeric: true });
      if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
      return way * (left - right);
    };
    body.append(...rows.sort(compare));
    arrange(table);
  };
  const pickTab = (tab) => {
    for (const other of tab.parentElement.children) {
      const isPicked = other === tab;
      other.setAttribute("aria-selected", String(isPicked));
      other.tabIndex = isPicked ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !isPicked;
    }
  };
  const showTab = (element) => {
    const panel = element && element.closest("[role=tabpanel]");
    if (panel && panel.hidden) pickTab(document.getElementById(panel.getAttribute("aria-labelledby")));
  };
  const copy = async (button, text) => {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  };
  document.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]"), sorted = event.target.closest(".sort");
    const expander = event.target.closest(".expander"), copied = event.target.closest("[data-copy]");
    if (tab) pickTab(tab);
    if (sorted) sortRows(sorted.closest("th"));
    if (copied) copy(copied, [...copied.parentElement.querySelectorAll(":not(.sketched) > code")].map((line) => line.textContent).join("\n"));
    if (!expander) return;
    const table = expander.closest("figure").querySelector("table");
    table.classList.toggle("expanded");
    arrange(table);
  });
  document.addEventListener("input", (event) => {
    if (event.target.matches(".filter")) arrange(event.target.closest("figure").querySelector("table"));
  });
  document.addEventListener("keydown", (event) => {
    const tab = event.target.closest && event.target.closest("[role=tab]");
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!tab || !way) return;
    const tabs = [...tab.parentElement.children];
    const next = tabs[(tabs.indexOf(tab) + way + tabs.length) % tabs.length];
    pickTab(next);
    next.focus();
    event.preventDefault();
  });

  // The navigation marks the section that is read.
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const markRead = () => {
    let read = "verdict";
    for (const key of window.scrollY < 60 ? [] : links.keys()) {
      const target = document.getElementById(key);
      if (target && target.getBoundingClientRect().top < window.innerHeight / 3) read = key;
    }
    for (const [key, link] of links) {
      if (key === read) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  };
  let isMarking = false;
  window.addEventListener("scroll", () => {
    if (isMarking) return;
    isMarking = true;
    requestAnimationFrame(() => { isMarking = false; markRead(); });
  }, { passive: true });

  const opened = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    showTab(target);
    const folded = target.closest("details");
    if (folded) folded.open = true;
    const table = target.closest("tr.more") && target.closest("table");
    if (table) {
      table.classList.add("expanded");
      arrange(table);
    }
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", opened);

  // The first view is painted before the data of charts and timeline is unpacked.
  const painted = () => new Promise((done) => {
    new PerformanceObserver(done).observe({ type: "paint", buffered: true });
    setTimeout(done, 300);  // a tab in the background has no frames
  });
  const begin = async () => {
    await painted();
    document.documentElement.dataset.painted = "yes";
    nameCells();
    opened();
    markRead();
    if (document.getElementById("timelines")) window.wallscopeTimeline(await unpacked("timelines"));
    redraw();  // what is folded is drawn when it is opened
    const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
      const chart = charts.find(({ place }) => place === entry.target);
      if (entry.isIntersecting && !chart.draw) draw(chart);
    }), { rootMargin: "300px" });
    charts.forEach(({ place }) => seen.observe(place));
    document.querySelectorAll("details").forEach((folded) => folded.addEventListener("toggle", () => {
      charts.filter((chart) => folded.contains(chart.place) && !chart.draw).forEach(draw);
    }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawSeen);
    window.addEventListener("beforeprint", () => {
      unfolded = [...document.querySelectorAll(".tabpanel[hidden]")];
      unfolded.forEach((panel) => { panel.hidden = false; });
      document.documentElement.classList.add("printing");
      redraw();
      window.dispatchEvent(new Event("wallscope-draw"));
    });
    window.addEventListener("afterprint", () => {
      unfolded.forEach((panel) => { panel.hidden = true; });
      document.documentElement.classList.remove("printing");
      redraw();
      window.dispatchEvent(new Event("wallscope-draw"));
    });
    document.documentElement.dataset.ready = "yes";
  };
  begin().catch(() => {
    document.documentElement.dataset.ready = "no";
    document.getElementById("undrawn").hidden = false;
  });
})();
