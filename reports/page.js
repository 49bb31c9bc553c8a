"use strict";
(() => {
  const unpacked = async (id) => {
    const text = atob(document.getElementById(id).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };

  const PRINTED_PX = 690; // fits A4 and Letter

  const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = (layout) => {
    const axis = { gridcolor: tone("--line"), zerolinecolor: tone("--line"), linecolor: tone("--line") };
    const isPrinted = document.documentElement.classList.contains("printing");
    const narrow = isPrinted || window.innerWidth < 600;
    const names = narrow && layout.yaxis && layout.yaxis.categoryarray;
    const short = names ? {
      tickmode: "array", tickvals: names, ticktext: names.map((name) => name.length > 22 ? `…${name.slice(-21)}` : name),
    } : {};
    const wide = names ? { range: [0, layout.xaxis.range[1] * 1.45], nticks: 4 } : {};
    const legend = narrow && layout.legend ? { legend: { ...layout.legend, y: 1, yanchor: "bottom" } } : {};
    return {
      ...layout,
      ...legend,
      ...(isPrinted ? { width: PRINTED_PX } : {}),
      font: { family: "system-ui, sans-serif", size: narrow ? 11 : 13, color: tone("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: layout.xaxis ? { l: narrow ? 40 : 60, r: 12, t: legend.legend ? 76 : 30, b: 45 } : { l: 0, r: 0, t: 26, b: 8 },
      xaxis: { ...axis, ...layout.xaxis, ...wide },
      yaxis: { ...axis, ...layout.yaxis, ...short },
      hoverlabel: { align: "left" },
    };
  };

  const charts = [...document.querySelectorAll("script[data-chart]")].map((element) => ({
    place: document.getElementById(element.dataset.chart),
    ...JSON.parse(element.textContent),
  }));
  const draw = (chart) => {
    if (!chart.place.offsetParent) return;
    const isFirst = !chart.isDrawn;
    chart.isDrawn = true;
    window.Plotly.react(chart.place, chart.traces, themed(chart.layout), {
      displayModeBar: false, responsive: true, showLink: false, scrollZoom: false,
    });
    if (isFirst && chart.place.id === "chart-steps") {
      chart.place.on("plotly_click", ({ points }) => {
        window.dispatchEvent(new CustomEvent("wallscope-step", { detail: points[0].x }));
      });
    }
  };
  const redraw = () => charts.forEach(draw);
  const drawSeen = () => charts.filter(({ isDrawn }) => isDrawn).forEach(draw);
  let unfolded = [];

  const csv = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => {
    let text = cell.textContent.trim();
    if (/^[=+@\t\r]|^-(?![\d.])/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-csv]");
    if (!button) return;
    const text = csv(button.closest("figure").querySelector("table"));
    if (button.dataset.csv === "copy") {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      return;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${button.closest("section").id}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  });

  const opened = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const folded = target && (target.querySelector("details") || target.closest("details"));
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", opened);

  const begin = async () => {
    opened();
    if (document.getElementById("timelines")) window.wallscopeTimeline(await unpacked("timelines"));
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(await unpacked("plotly"));
    document.head.append(script);
    const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
      const chart = charts.find(({ place }) => place === entry.target);
      if (entry.isIntersecting && !chart.isDrawn) draw(chart);
    }), { rootMargin: "300px" });
    charts.forEach(({ place }) => seen.observe(place));
    document.querySelectorAll("details").forEach((folded) => folded.addEventListener("toggle", () => {
      charts.filter((chart) => folded.contains(chart.place) && !chart.isDrawn).forEach(draw);
    }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawSeen);
    window.addEventListener("beforeprint", () => {
      unfolded = [...document.querySelectorAll("main details:not([open]):not(.more):not(.code)")];
      unfolded.forEach((folded) => { folded.open = true; });
      document.documentElement.classList.add("printing");
      redraw();
      window.dispatchEvent(new Event("wallscope-draw"));
    });
    window.addEventListener("afterprint", () => {
      unfolded.forEach((folded) => { folded.open = false; });
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
