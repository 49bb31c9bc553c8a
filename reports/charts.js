"use strict";
// Charts of the page: bars, maps of cells and nested boxes, on a canvas. They draw the traces that plotly gets elsewhere.
window.wallscopeChart = ({ place, traces, layout }) => {
  const ROW_PX = 26, AXIS_PX = 38, LABEL_SHARE = 0.34, FONT = "12px system-ui, sans-serif", TICK_PX = 90;
  const SHAPES = { "/": [[0, 8, 8, 0]], x: [[0, 0, 8, 8]], "-": [[0, 4, 8, 4]] };
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  const tip = document.getElementById("tip"), above = document.createElement("div");
  const kind = traces[0] ? traces[0].type : "bar", isFlat = traces.some(({ orientation }) => orientation === "h");
  above.className = "chart-head";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", place.getAttribute("aria-label"));
  place.replaceChildren(above, canvas);
  let marks = [], root = traces[0] && traces[0].ids ? traces[0].ids[0] : "", shown = 0;

  const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (text) => String(text ?? "").replace(/<br>/g, "\n").replace(/<[^>]*>/g, "").replace(/&(lt|gt|quot|amp|#x27|#39);/g, (all, name) => (
    { lt: "<", gt: ">", quot: '"', amp: "&" }[name] ?? "'"));
  const at = (values, i) => (Array.isArray(values) ? values[i] : values);
  const width = (text) => pen.measureText(text).width;
  const cut = (text, room) => {
    if (width(text) <= room) return text;
    let most = Math.floor((text.length * room) / Math.max(width(text), 1));
    while (most > 1 && width(`${text.slice(0, most)}…`) > room) most--;
    return most > 1 ? `${text.slice(0, most)}…` : "";
  };
  const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6 });
  const fill = (template, values) => plain(template.replace(/<extra><\/extra>/, "").replace(/%\{(\w+)(?:\[(\d+)\])?(?::\.(\d)f)?\}/g, (all, name, place2, digits) => {
    const value = place2 === undefined ? values[name] : (values[name] ?? [])[Number(place2)];
    return digits === undefined || typeof value !== "number" ? value ?? "" : value.toFixed(Number(digits));
  }));

  const tiles = new Map();
  const paint = (marker, i) => {
    const colour = at(marker.color, i), { fgcolor } = marker.pattern ?? {}, shape = at((marker.pattern ?? {}).shape, i);
    if (!shape) return colour;
    const key = `${colour} ${shape} ${fgcolor}`;
    if (!tiles.has(key)) {
      const tile = document.createElement("canvas"), brush = tile.getContext("2d");
      tile.width = tile.height = 8;
      brush.fillStyle = colour;
      brush.fillRect(0, 0, 8, 8);
      brush.strokeStyle = brush.fillStyle = fgcolor;
      brush.lineWidth = 1.5;
      brush.beginPath();
      for (const [x, y, u, v] of SHAPES[shape] ?? []) { brush.moveTo(x, y); brush.lineTo(u, v); }
      brush.stroke();
      if (shape === ".") brush.fillRect(2, 2, 2, 2);
      tiles.set(key, pen.createPattern(tile, "repeat"));
    }
    return tiles.get(key);
  };
  const listTicks = (low, high, most) => {
    const raw = (high - low) / Math.max(most, 1), size = 10 ** Math.floor(Math.log10(raw || 1));
    const step = [1, 2, 5, 10].map((by) => by * size).find((one) => one >= raw) ?? raw;
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9 * step; value += step) found.push(Math.abs(value) < step / 1e6 ? 0 : value);
    return found;
  };

  // The bars of all traces: the row that each stands in, and from where to where it goes.
  const listBars = () => {
    const reach = new Map(), bars = [];
    for (const trace of traces) {
      const [rows, lengths] = isFlat ? [trace.y, trace.x] : [trace.x, trace.y];
      rows.forEach((row, i) => {
        const begin = trace.base ? at(trace.base, i) : layout.barmode === "stack" ? reach.get(row) ?? 0 : 0;
        reach.set(row, begin + lengths[i]);
        bars.push({ trace, i, row, from: Math.min(begin, begin + lengths[i]), to: Math.max(begin, begin + lengths[i]) });
      });
    }
    return bars;
  };
  const tell = (mark, { trace, i, row }) => {
    if (trace.hoverinfo === "skip" || !trace.hovertemplate) return;
    const own = { x: at(trace.x, i), y: at(trace.y, i), text: at(trace.text, i), customdata: trace.customdata && trace.customdata[i] };
    if (own.customdata !== undefined && !Array.isArray(own.customdata)) own.customdata = [own.customdata];
    marks.push({ ...mark, text: () => fill(trace.hovertemplate, own), row });
  };
  const size = (height) => {
    const scale = window.devicePixelRatio || 1, wide = canvas.clientWidth;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(height * scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = FONT;
    pen.textBaseline = "middle";
    return wide;
  };

  const drawFlat = () => {
    const bars = listBars(), axis = layout.xaxis ?? {};
    const rows = (layout.yaxis ?? {}).categoryarray ?? [...new Set(bars.map(({ row }) => row))];
    const rowPx = ROW_PX;
    const { tickvals, ticktext } = layout.yaxis ?? {}, words = new Map((tickvals ?? []).map((row, i) => [row, ticktext[i]]));
    const wide = size(rowPx * rows.length + AXIS_PX), names = rows.map((row) => plain(words.get(row) ?? row));
    const gutter = Math.min(Math.max(...names.map(width), 0) + 12, wide * LABEL_SHARE);
    const [low, high] = axis.range ?? [Math.min(0, ...bars.map(({ from }) => from)), Math.max(...bars.map(({ to }) => to), 0)];
    const scale = (wide - gutter - 8) / Math.max(high - low, 1e-12), x = (value) => gutter + (value - low) * scale;
    pen.strokeStyle = tone("--line");
    pen.fillStyle = tone("--dim");
    for (const tick of listTicks(low, high, (wide - gutter) / TICK_PX)) {
      pen.fillRect(Math.round(x(tick)), rowPx * rows.length, 1, 4);
      pen.fillText(number(tick), Math.min(x(tick) - width(number(tick)) / 2, wide - width(number(tick))), rowPx * rows.length + 12);
    }
    if (axis.title) pen.fillText(cut(axis.title.text, wide - gutter), gutter, rowPx * rows.length + 29);
    const places = new Map(rows.map((row, i) => [row, i]));
    pen.fillStyle = tone("--ink");
    names.forEach((name, i) => pen.fillText(cut(name, gutter - 8), 0, rowPx * (i + 0.5)));
    for (const bar of bars) {
      const { trace, i, row, from, to } = bar, top = rowPx * places.get(row) + rowPx * 0.14, tall = rowPx * 0.72;
      const left = Math.max(x(from), gutter), right = Math.min(Math.max(x(to), left + (to > from ? 1 : 0)), wide);
      if (right <= left) continue;
      pen.fillStyle = paint(trace.marker, i);
      pen.fillRect(left, top, right - left - (trace.marker.line && right - left > 2 ? 1 : 0), tall);
      const text = plain(at(trace.text, i)), isInside = trace.textposition === "inside";
      if (text && isInside) {
        const words = cut(text, right - left - 8);
        if (words && right - left > 40) {
          pen.fillStyle = at(trace.marker.color, i);
          pen.globalAlpha = 0.9;
          pen.fillRect(left + 2, top + 2, width(words) + 5, tall - 4);
          pen.globalAlpha = 1;
          pen.fillStyle = (trace.insidetextfont ?? {}).color ?? tone("--ink");
          pen.fillText(words, left + 4, top + tall / 2);
        }
      } else if (text) {
        pen.fillStyle = tone("--ink");
        pen.fillText(text, right + 5 + width(text) < wide ? right + 5 : Math.max(left - width(text) - 5, gutter), top + tall / 2);
      }
      tell({ left, right, top: rowPx * places.get(row), bottom: rowPx * (places.get(row) + 1) }, bar);
    }
  };

  const drawUpright = () => {
    const bars = listBars(), tall = Number(place.dataset.height) - AXIS_PX, axis = layout.xaxis ?? {};
    const wide = size(tall + AXIS_PX), rows = [...new Set(bars.map(({ row }) => row))];
    const top = Math.max(...bars.map(({ to }) => to), 1e-12) * 1.04, ticks = listTicks(0, top, tall / 45);
    const gutter = Math.max(...ticks.map((tick) => width(number(tick)))) + 24;
    const least = Math.min(...rows), most = Math.max(...rows), each = (wide - gutter) / (most - least + 1);
    const head = (layout.yaxis ?? {}).title ? 22 : 6;  // room for the unit above the axis
    const y = (value) => tall - (value / top) * (tall - head);
    pen.fillStyle = tone("--dim");
    if ((layout.yaxis ?? {}).title) pen.fillText(layout.yaxis.title.text, 0, 8);
    for (const tick of ticks) {
      pen.fillStyle = tone("--line");
      pen.fillRect(gutter, Math.round(y(tick)), wide - gutter, 1);
      pen.fillStyle = tone("--dim");
      pen.fillText(number(tick), gutter - 6 - width(number(tick)), Math.max(y(tick), 8));
    }
    for (const bar of bars) {
      const { trace, i, row, from, to } = bar, left = gutter + (row - least + 0.075) * each, right = left + Math.max(each * 0.85, 1);
      if (to <= from) continue;
      pen.globalAlpha = at((trace.marker ?? {}).opacity, i) ?? 1;
      pen.fillStyle = paint(trace.marker, i);
      pen.fillRect(left, y(to), right - left, Math.max(y(from) - y(to) - 0.6, 0.6));
      pen.globalAlpha = 1;
      tell({ left, right, top: y(to), bottom: y(from) }, bar);
    }
    pen.fillStyle = tone("--dim");
    const every = Math.max(1, Math.ceil(34 / each));
    const labels = axis.tickvals ? axis.tickvals.map((value, i) => [value, axis.ticktext[i]]) : rows.filter((row) => Number.isInteger(row) && row % every === 0).map((row) => [row, String(row)]);
    for (const [value, text] of labels) pen.fillText(text, gutter + (value - least + 0.5) * each - width(text) / 2, tall + 11);
    if (axis.title) pen.fillText(axis.title.text, gutter, tall + 28);
  };

  const drawCells = () => {
    const [trace] = traces, names = trace.y.map(plain), rows = trace.z.length, columns = Math.max(...trace.z.map((row) => row.length), 1);
    const tall = Number(place.dataset.height) - AXIS_PX - 10, rowPx = Math.min(Math.max(tall / Math.max(rows, 1), 2), ROW_PX);
    const menu = ((layout.updatemenus ?? [])[0] ?? {}).buttons, grid = menu ? menu[shown].args[0].z[0] : trace.z;
    const wide = size(rowPx * rows + AXIS_PX), gutter = Math.min(Math.max(...names.map(width), 0) + 10, wide * LABEL_SHARE);
    const cell = (wide - gutter) / columns, values = grid.flat().filter((value) => value !== null && value !== undefined);
    const least = menu ? 0 : trace.zmin ?? Math.min(0, ...values), most = Math.max(...values, least + 1e-9);
    const [first, last] = trace.colorscale.map(([, colour]) => [1, 3, 5].map((from) => parseInt(colour.slice(from, from + 2), 16)));
    grid.forEach((row, j) => row.forEach((value, i) => {
      if (value === null || value === undefined) return;
      const share = (value - least) / (most - least), left = gutter + i * cell, top = j * rowPx;
      pen.fillStyle = `rgb(${first.map((one, part) => Math.round(one + (last[part] - one) * share)).join()})`;
      pen.fillRect(left, top, Math.max(cell - (cell > 4 ? 1 : 0), 0.5), Math.max(rowPx - (rowPx > 4 ? 1 : 0), 0.5));
      const own = { x: trace.x ? trace.x[i] : i, y: trace.y[j], z: value, text: trace.text ? trace.text[j][i] : "" };
      marks.push({ left, right: left + cell, top, bottom: top + rowPx, text: () => fill(trace.hovertemplate, own) });
    }));
    pen.fillStyle = tone("--dim");
    const everyRow = Math.ceil(14 / rowPx), everyColumn = Math.ceil(34 / cell);
    names.forEach((name, j) => { if (j % everyRow === 0) pen.fillText(cut(name, gutter - 6), 0, (j + 0.5) * rowPx); });
    for (let i = 0; i < columns; i += everyColumn) {
      const text = String(trace.x ? trace.x[i] : i);
      pen.fillText(text, gutter + (i + 0.5) * cell - width(text) / 2, rows * rowPx + 10);
    }
    const title = (layout.xaxis ?? {}).title, unit = typeof trace.colorbar.title === "string" ? trace.colorbar.title : trace.colorbar.title.text;
    const scale = `${number(least)} to ${number(most)} ${unit}, darker is more`;
    pen.fillText(cut(`${scale}${title ? `; ${title.text}` : ""}`, wide - gutter), gutter, rows * rowPx + 28);
  };

  const drawNested = () => {
    const [trace] = traces, inside = new Map(), place2 = new Map(trace.ids.map((id, i) => [id, i]));
    trace.parents.forEach((parent, i) => inside.set(parent, [...(inside.get(parent) ?? []), i]));
    const total = (i) => trace.values[i] + (inside.get(trace.ids[i]) ?? []).reduce((sum, child) => sum + total(child), 0);
    const totals = trace.ids.map((id, i) => total(i)), depth = trace.maxdepth;
    const rowPx = Number(place.dataset.height) / depth;
    let levels = 1, wide = canvas.clientWidth;
    // A range that is all in one range inside it is one box with it.
    const single = (i) => {
      const [child, ...others] = inside.get(trace.ids[i]) ?? [];
      return others.length === 0 && child !== undefined && totals[child] >= 0.995 * totals[i] ? child : null;
    };
    const box = (outer, left, right, level) => {
      if (level >= depth || right - left < 1) return;
      levels = Math.max(levels, level + 1);
      let i = outer;
      const chain = [plain(trace.labels[i])];
      for (let next = single(i); next !== null; next = single(i)) { i = next; chain.push(plain(trace.labels[i])); }
      const colour = trace.marker.colors[i], top = level * rowPx;
      pen.fillStyle = colour;
      pen.fillRect(left, top, right - left - 1, rowPx - 1);
      const words = `${chain.slice(outer === 0 ? 1 : 0).join(" › ") || chain[0]}  ${trace.customdata[i][0]}`, data = trace.customdata[i];
      if (right - left > 40) {
        pen.fillStyle = colour === "#0072B2" ? "#fff" : "#000";
        pen.fillText(cut(words, right - left - 10), left + 5, top + Math.min(rowPx / 2, 14));
      }
      const leads = (inside.get(trace.ids[i]) ?? []).length ? trace.ids[i] : null;
      marks.push({ left, right, top, bottom: top + rowPx, text: () => fill(trace.hovertemplate, { customdata: data }), leads: level || outer === 0 ? leads : trace.parents[outer] });
      let from = left;
      for (const child of inside.get(trace.ids[i]) ?? []) {
        const to = from + ((right - left) * totals[child]) / Math.max(totals[i], 1e-12);
        box(child, from, to, level + 1);
        from = to;
      }
    };
    box(place2.get(root) ?? 0, 0, wide, 0);  // to learn how many levels there are
    marks = [];
    wide = size(levels * rowPx);
    box(place2.get(root) ?? 0, 0, wide, 0);
  };

  const drawHead = () => {
    const made = [], menu = ((layout.updatemenus ?? [])[0] ?? {}).buttons;
    const add = (tag, text, className) => {
      const element = document.createElement(tag);
      element.textContent = text;
      element.className = className;
      made.push(element);
      return element;
    };
    if (layout.legend && layout.showlegend !== false) {
      for (const { name, marker, showlegend } of traces) {
        if (!name || showlegend === false) continue;
        const mark = document.createElement("span");
        mark.className = "mark";
        mark.style.background = at(marker.color, 0);
        if (["compute", "communication", "memory", "host", "unattributed"].includes(name)) { mark.style.background = ""; mark.classList.add(name); }
        add("span", name, "chart-key").prepend(mark);
      }
    }
    (menu ?? []).forEach(({ label }, i) => {
      const button = add("button", label, "");
      button.type = "button";
      button.setAttribute("aria-pressed", String(i === shown));
      button.addEventListener("click", () => { shown = i; draw(); above.children[i].focus(); });
    });
    above.replaceChildren(...made);
  };
  const draw = () => {
    marks = [];
    if (!traces.length || !place.clientWidth) return;
    place.style.minHeight = "";  // it reserved room until now
    drawHead();
    if (kind === "heatmap") drawCells(); else if (kind === "icicle") drawNested(); else if (isFlat) drawFlat(); else drawUpright();
    canvas.dataset.marks = String(marks.length);
  };

  const findMark = (event) => {
    const { left, top } = canvas.getBoundingClientRect(), x = event.clientX - left, y = event.clientY - top;
    return marks.findLast((mark) => mark.left <= x && x <= mark.right && mark.top <= y && y <= mark.bottom);
  };
  canvas.addEventListener("pointermove", (event) => {
    const mark = findMark(event);
    window.wallscopeTip(mark ? mark.text() : "", event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => window.wallscopeTip(""));
  canvas.addEventListener("click", (event) => {
    const mark = findMark(event);
    if (!mark) return;
    if (kind === "icicle" && mark.leads !== null) { root = mark.leads; draw(); }
    if (kind === "bar" && place.id === "chart-steps") window.dispatchEvent(new CustomEvent("wallscope-step", { detail: mark.row }));
  });
  let seen = 0;
  new ResizeObserver(() => { if (place.clientWidth !== seen) { seen = place.clientWidth; draw(); } }).observe(place);
  return draw;
};
