"use strict";
// One step on one canvas: the band of causes, the lanes, the selected range. It draws and finds; it holds no controls.
window.wallscopeView = (canvas, head, shared) => {
  const COLOURS = ["#0072B2", "#E69F00", "#CC79A7", "#009E73", "#8A8A8A"];
  const LIGHTER = ["#0072B2", "#f0b429", "#dda0c2", "#35c39b", "#a3a3a3"];
  const FOLDED_STREAMS = 5, ROW = 18, BAND = 26, HEAD = 20, NARROW = 700, PATTERNED_PX = 8;
  const pen = canvas.getContext("2d");
  const texts = head.texts;
  const view = { canvas, step: null, chosen: null, arrow: null, onPath: null, folded: new Set() };
  let gutter = 0, pixels = 1;

  const below = (values, limit) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < limit) low = middle + 1; else high = middle;
    }
    return low;
  };
  const above = (values, limit) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= limit) low = middle + 1; else high = middle;
    }
    return low;
  };
  const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const place = (ns) => gutter + ((ns - shared.from) / (shared.to - shared.from)) * pixels;
  const moment = (x) => shared.from + ((x - gutter) / pixels) * (shared.to - shared.from);
  const isWall = (lane) => lane.kind !== "host";
  const top = () => HEAD + (view.step.band ? BAND + 8 : 2);  // ranks together have no band of their own
  const nameOf = (text) => head.short[text] ?? texts[text];
  // What the path goes through ends where a part of the path does.
  const isOffPath = (lane, i) => view.onPath && lane.kind !== "path" && !view.onPath.has(lane.end[i]);

  // Walls differ by pattern too: stripes, crosses, dots, bars.
  const patterns = COLOURS.map((colour, wall) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const brush = tile.getContext("2d");
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 8, 8);
    brush.strokeStyle = brush.fillStyle = LIGHTER[wall];
    brush.lineWidth = 2;
    brush.beginPath();
    if (wall === 1) [[-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6]].forEach(([x, y, u, v]) => { brush.moveTo(x, y); brush.lineTo(u, v); });
    if (wall === 2) [[-2, 6, 2, 10], [-2, -2, 10, 10], [6, -2, 10, 2]].forEach(([x, y, u, v]) => { brush.moveTo(x, y); brush.lineTo(u, v); });
    if (wall === 4) { brush.moveTo(0, 4); brush.lineTo(8, 4); }
    brush.stroke();
    if (wall === 3) brush.fillRect(3, 3, 2, 2);
    return pen.createPattern(tile, "repeat");
  });
  const fill = (wall, width) => (width > PATTERNED_PX && wall ? patterns[wall] : COLOURS[wall]);

  // On a pattern, a text stands on a plate of the plain color.
  const label = (text, x, y, width, colour, isCutAtLeft = false, plate = "") => {
    if (width < 24) return;
    const room = Math.floor(((width - 6) * text.length) / Math.max(pen.measureText(text).width, 1));
    const cut = isCutAtLeft ? `…${text.slice(1 - room)}` : `${text.slice(0, Math.max(room - 2, 1))}…`;
    const shown = text.length > room ? cut : text;
    if (plate) {
      pen.fillStyle = plate;
      pen.globalAlpha *= 0.9;
      pen.fillRect(x + 1, y - 10, pen.measureText(shown).width + 4, 13);
      pen.globalAlpha /= 0.9;
    }
    pen.fillStyle = colour;
    pen.fillText(shown, x + 3, y);
  };

  // Slices narrower than two pixels are summed by wall, a pixel at a time.
  const drawBand = (band, left0, span0, span1, width, top, height, isNamed) => {
    const at = (ns) => left0 + ((ns - span0) / (span1 - span0)) * width;
    const first = above(band.end, span0), last = below(band.start, span1);
    let pixel = -1, sums = [0, 0, 0, 0, 0];
    const flush = () => {
      if (pixel < 0) return;
      const all = sums.reduce((total, sum) => total + sum, 0);
      let y = top;
      for (let wall = 0; wall < 5 && all > 0; wall++) {
        const part = (height * sums[wall]) / all;
        pen.fillStyle = COLOURS[wall];
        if (part > 0) pen.fillRect(pixel, y, 1, part);
        y += part;
      }
      sums = [0, 0, 0, 0, 0];
    };
    for (let i = first; i < last; i++) {
      const left = Math.max(at(band.start[i]), left0), right = Math.min(at(band.end[i]), left0 + width);
      if (right - left < 2) {
        if (Math.floor(left) !== pixel) { flush(); pixel = Math.floor(left); }
        sums[band.wall[i]] += band.end[i] - band.start[i];
        continue;
      }
      flush();
      pixel = -1;
      pen.fillStyle = isNamed ? fill(band.wall[i], right - left) : COLOURS[band.wall[i]];
      pen.fillRect(left, top, right - left + 0.5, height);
      if (isNamed) label(nameOf(band.cause[i]), left, top + 17, right - left, band.wall[i] === 0 ? "#fff" : "#000", false, band.wall[i] ? COLOURS[band.wall[i]] : "");
    }
    flush();
  };

  const drawLane = (lane, y, ink, faint) => {
    let i = above(lane.reach, shared.from);
    const last = below(lane.start, shared.to), isRange = lane.kind === "host" && lane.depth >= 0;
    while (i < last) {
      if (lane.end[i] <= shared.from) { i++; continue; }
      const left = Math.max(place(lane.start[i]), gutter), right = Math.min(place(lane.end[i]), gutter + pixels);
      const width = Math.max(right - left, 1), isHit = shared.matching.has(lane.name[i]);
      pen.globalAlpha = isOffPath(lane, i) ? 0.22 : 1;
      pen.fillStyle = isWall(lane) ? fill(lane.wall[i], width) : lane.depth < 0 ? faint[1] : faint[lane.depth % 2 ? 0 : 2];
      if (isHit) pen.fillStyle = "#D55E00";
      pen.fillRect(left, y + 1, width > 3 ? width - 0.5 : width, ROW - 3);
      pen.globalAlpha = 1;
      if (right - left < 1) {
        const next = moment(Math.floor(left) + 1);
        let step2 = 1;
        while (i + step2 < last && lane.start[i + step2] < next) step2 *= 2;
        let low = i + (step2 >> 1), high = Math.min(i + step2, last);
        while (low < high) {
          const middle = (low + high) >> 1;
          if (lane.start[middle] < next) low = middle + 1; else high = middle;
        }
        // The last one that begins in this pixel may be long.
        i = low - 1 > i && lane.end[low - 1] > next ? low - 1 : Math.max(low, i + 1);
        continue;
      }
      const light = isWall(lane) && !isOffPath(lane, i) ? (lane.wall[i] === 0 ? "#fff" : "#000") : ink;
      const plate = isWall(lane) && lane.wall[i] && !isHit ? COLOURS[lane.wall[i]] : "";
      label(nameOf(lane.name[i]), left, y + 13, right - left, isHit ? "#000" : light, isRange, plate);
      i++;
    }
  };

  // A folded thread shows its calls, the folded GPU its busiest streams; ranks together are not folded.
  view.groupOf = (lane) => (lane.place !== undefined ? "" : lane.kind === "host" ? lane.lane : "GPU");
  let places = [], placed = "";
  const listPlaces = () => {
    const key = `${view.step.place}/${view.step.step}/${view.step.isLow}/${view.step.isTogether}/${[...view.folded].join("/")}`;
    if (key === placed) return places;
    const { lanes } = view.step, shown = new Set();
    const total = (lane) => lane.start.reduce((sum, start, i) => sum + lane.end[i] - start, 0);
    for (const group of view.folded) {
      const own = lanes.flatMap((lane, index) => (view.groupOf(lane) === group ? [index] : []));
      const sums = new Map(own.map((index) => [index, group === "GPU" ? total(lanes[index]) : -index]));
      own.sort((one, other) => sums.get(other) - sums.get(one)).slice(0, group === "GPU" ? FOLDED_STREAMS : 1).forEach((index) => shown.add(index));
    }
    let next = 0;
    places = lanes.map((lane, index) => (view.folded.has(view.groupOf(lane)) && !shown.has(index) ? -1 : next++));
    placed = key;
    return places;
  };
  const laneTop = (index) => top() + listPlaces()[index] * ROW;
  const isShown = (index) => listPlaces()[index] >= 0;
  const countRows = () => Math.max(...listPlaces(), -1) + 1;
  const laneName = (lane) => isWall(lane) ? lane.lane : lane.depth < 0 ? `${lane.lane} calls` : lane.depth === 0 ? "ranges" : "";

  const drawSelection = (height, ink) => {
    const selected = shared.selection;
    if (!selected) return;
    const left = Math.max(place(selected.first), gutter), right = Math.min(place(selected.last), gutter + pixels);
    if (right < gutter || left > gutter + pixels) return;
    pen.fillStyle = tone("--select");
    pen.fillRect(left, HEAD - 6, Math.max(right - left, 1), height);
    pen.fillStyle = ink;
    pen.fillRect(left, HEAD - 6, 1.5, height);
    pen.fillRect(right - 1.5, HEAD - 6, 1.5, height);
  };

  view.draw = () => {
    const begun = performance.now();
    const { step } = view, scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = top() + countRows() * ROW + 6;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    gutter = width < NARROW ? 62 : 170;
    pixels = Math.max(width - gutter - 4, 1);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const ink = tone("--ink"), paper = tone("--paper"), line = tone("--line"), dim = tone("--dim");
    pen.fillStyle = paper;
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    const span = shared.to - shared.from, power = 10 ** Math.floor(Math.log10(span / 4));
    const every = [1, 2, 5, 10].map((factor) => factor * power).find((value) => span / value <= (width < NARROW ? 4 : 8)) || power * 10;
    // Far inside a step, ticks count from a moment that stands at the left, so that their numbers stay short and differ.
    const offset = span < 0.12 * shared.length ? Math.floor(shared.from / every) * every : 0;
    const [size, unit] = every >= 1e9 ? [1e9, "s"] : every >= 1e6 ? [1e6, "ms"] : every >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    const digits = Math.max(0, -Math.floor(Math.log10(every / size) + 1e-9)), axis = [];
    for (let tick = Math.ceil(shared.from / every) * every; tick <= shared.to; tick += every) {
      const text = `${((tick - offset) / size).toFixed(digits)} ${unit}`;
      axis.push(text);
      const x = place(tick);
      pen.fillStyle = line;
      pen.fillRect(x, HEAD - 4, 1, height);
      pen.fillStyle = dim;
      if (x < gutter + pixels - 40) pen.fillText(text, x + 3, 12);
    }
    Object.assign(canvas.dataset, { axis: axis.join("|"), offset, span });
    if (step.band) drawBand(step.band, gutter, shared.from, shared.to, pixels, HEAD, BAND, true);
    const faint = [tone("--inner"), tone("--call"), tone("--range")];
    step.lanes.forEach((lane, index) => {
      if (!isShown(index)) return;
      if (lane.kind === "rank" && index) {
        pen.fillStyle = line;
        pen.fillRect(0, laneTop(index) - 1.5, width, 1);
      }
      drawLane(lane, laneTop(index), ink, faint);
    });
    drawSelection(height, ink);
    pen.fillStyle = paper;
    pen.fillRect(0, 0, gutter - 2, height);
    pen.fillStyle = ink;
    if (offset) pen.fillText(`at ${shared.duration(offset)} +`, 4, 12);
    if (step.band) pen.fillText(gutter < 100 ? "cause" : "attributed to", 4, HEAD + 17);
    let shown = "";
    step.lanes.forEach((lane, index) => {
      if (!isShown(index)) return;
      const name = laneName(lane), room = Math.floor(gutter / 6.2);
      if (lane.kind === "rank") pen.font = "bold 11px system-ui, sans-serif";
      pen.fillStyle = lane.place === undefined || lane.kind === "rank" ? ink : dim;
      if (name && (name !== shown || lane.place !== undefined)) pen.fillText(name.length > room ? `…${name.slice(1 - room)}` : name, 4, laneTop(index) + 13);
      pen.font = "11px system-ui, sans-serif";
      shown = name;
    });
    const { chosen } = view;
    if (chosen) {
      const left = Math.max(place(chosen.start), gutter), right = Math.min(place(chosen.end), gutter + pixels);
      if (right >= gutter && left <= gutter + pixels) {
        pen.strokeStyle = ink;
        pen.lineWidth = 2;
        pen.strokeRect(left, chosen.top, Math.max(right - left, 2), chosen.height);
        pen.globalAlpha = 0.08;
        pen.fillStyle = ink;
        pen.fillRect(left, HEAD, Math.max(right - left, 1), height);
        pen.globalAlpha = 1;
      }
    }
    drawArrow(ink, paper);
    canvas.dataset.frame = (performance.now() - begun).toFixed(2);
  };

  // From the end of a call to the begin of what it launched.
  const drawArrow = (ink, paper) => {
    const { arrow } = view;
    canvas.dataset.arrow = arrow ? arrow.text : "";
    if (!arrow || !isShown(arrow.from) || !isShown(arrow.to)) return;
    const inside = (ns) => Math.min(Math.max(place(ns), gutter), gutter + pixels);
    const [left, right] = [inside(arrow.called), inside(arrow.began)], [low, high] = [laneTop(arrow.from) + 2, laneTop(arrow.to) + ROW - 2];
    for (const [colour, width] of [[paper, 5], [ink, 1.8]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.beginPath();
      pen.moveTo(left, low);
      pen.bezierCurveTo(left, low - 26, right, high + 26, right, high + 5);
      pen.stroke();
    }
    pen.fillStyle = ink;
    pen.beginPath();
    pen.moveTo(right, high);
    pen.lineTo(right - 4, high + 7);
    pen.lineTo(right + 4, high + 7);
    pen.fill();
  };

  const bands = () => (view.step.band ? [view.step.band] : view.step.lanes.filter(({ kind }) => kind === "rank"));

  // The whole step in small, with the part that is shown.
  view.drawMap = (map) => {
    const scale = window.devicePixelRatio || 1, width = map.clientWidth, height = map.clientHeight;
    const brush = map.getContext("2d"), { step } = view;
    const key = `${step.place}/${step.step}/${Boolean(step.isLow)}/${Boolean(step.isTogether)}/${width}/${scale}`;
    if (map.dataset.key !== key) {
      map.width = Math.round(width * scale);
      map.height = Math.round(height * scale);
      map.dataset.key = key;
      const sums = Array.from({ length: width }, () => [0, 0, 0, 0, 0]);
      for (const band of bands()) for (let i = 0; i < band.start.length; i++) {
        const begin = (band.start[i] / shared.length) * width, end = (band.end[i] / shared.length) * width;
        for (let x = Math.floor(begin); x < Math.min(end, width); x++) sums[x][band.wall[i]] += (Math.min(end, x + 1) - Math.max(begin, x)) / bands().length;
      }
      map.sums = sums;
    }
    brush.setTransform(scale, 0, 0, scale, 0, 0);
    brush.clearRect(0, 0, width, height);
    map.sums.forEach((parts, x) => {
      let y = 0;
      parts.forEach((part, wall) => {
        brush.fillStyle = COLOURS[wall];
        brush.fillRect(x, y * height, 1, part * height);
        y += part;
      });
    });
    const left = (shared.from / shared.length) * width, right = (shared.to / shared.length) * width;
    brush.fillStyle = tone("--veil");
    brush.fillRect(0, 0, left, height);
    brush.fillRect(right, 0, width - right, height);
    brush.strokeStyle = tone("--ink");
    brush.lineWidth = 2;
    brush.strokeRect(left + 1, 1, Math.max(right - left - 2, 3), height - 2);
  };

  view.find = (x, y) => {
    const { step } = view, now = moment(x), near = (2 * (shared.to - shared.from)) / pixels;
    if (step.band && y >= HEAD && y < HEAD + BAND) {
      const slice = Math.min(above(step.band.end, now), step.band.start.length - 1);
      return slice < 0 ? null : { slice };
    }
    const index = listPlaces().indexOf(Math.floor((y - top()) / ROW)), lane = step.lanes[index];
    if (!lane) return null;
    let best = -1;
    for (let i = above(lane.reach, now - near); i < lane.start.length && lane.start[i] <= now + near; i++) {
      if (lane.end[i] >= now - near) best = i;
      if (lane.start[i] <= now && lane.end[i] > now) break;
    }
    return best < 0 ? null : { lane, index, row: best };
  };
  // The group whose name stands at a place of the gutter.
  view.findGroup = (x, y) => {
    const lane = x < gutter ? view.step.lanes[listPlaces().indexOf(Math.floor((y - top()) / ROW))] : undefined;
    return lane ? view.groupOf(lane) : "";
  };
  view.chooseSlices = (start, end) => { view.arrow = null; view.chosen = { start, end, top: HEAD, height: BAND }; };
  view.chooseRow = (lane, i, index) => {
    view.chosen = { start: lane.start[i], end: lane.end[i], top: laneTop(index), height: ROW - 1 };
    view.arrow = findArrow(lane, i, index);
  };
  // The call of an operation, or what a call launched: both know the moment of the call.
  const findArrow = (lane, i, index) => {
    const { lanes, tick } = view.step, near = (one, two) => Math.abs(one - two) <= 2 * (tick || 1);
    const link = (from, call, to, row) => ({
      from, to, called: lanes[from].end[call], began: lanes[to].start[row], text: `${texts[lanes[from].name[call]]} → ${texts[lanes[to].name[row]]}`,
    });
    if (lane.kind === "stream" && lane.call && lane.call[i] && lane.lead[i]) {
      const called = lane.start[i] - (lane.lead[i] - 1);
      for (const [other, calls] of lanes.entries()) {
        if (calls.kind !== "host" || calls.depth >= 0) continue;
        for (let j = below(calls.start, called - 2 * (tick || 1)); j < calls.start.length && near(calls.start[j], called); j++) {
          if (calls.name[j] === lane.call[i]) return link(other, j, index, i);
        }
      }
    }
    if (lane.kind === "host" && lane.depth < 0) {
      for (const [other, ops] of lanes.entries()) {
        if (ops.kind !== "stream" || !ops.call) continue;
        for (let j = 0; j < ops.start.length; j++) {
          if (ops.call[j] === lane.name[i] && ops.lead[j] && near(ops.start[j] - (ops.lead[j] - 1), lane.start[i])) return link(index, i, other, j);
        }
      }
    }
    return null;
  };
  view.sliceAt = (ns) => Math.min(above(view.step.band.end, ns), view.step.band.start.length - 1);

  // Time of the walls and causes, and durations of operations, from one moment to another; of all ranks that of each.
  view.sumRanks = (first, last) => bands().map((lane) => ({ lane, sum: view.sum(first, last, { ...lane, cause: lane.name }, []) }));
  view.sum = (first, last, band = view.step.band, lanes = view.step.lanes) => {
    const walls = [0, 0, 0, 0, 0], causes = new Map(), operations = new Map();
    const add = (sums, key, ns) => sums.set(key, (sums.get(key) || 0) + ns);
    for (let i = above(band.end, first); i < band.start.length && band.start[i] < last; i++) {
      const ns = Math.min(band.end[i], last) - Math.max(band.start[i], first);
      walls[band.wall[i]] += ns;
      add(causes, band.cause[i], ns);
    }
    for (const lane of lanes.filter(({ kind }) => kind === "stream")) {
      for (let i = above(lane.reach, first); i < lane.start.length && lane.start[i] < last; i++) {
        const ns = Math.min(lane.end[i], last) - Math.max(lane.start[i], first);
        if (ns > 0) add(operations, lane.name[i], ns);
      }
    }
    return { walls, causes, operations };
  };
  view.moment = moment;
  view.scale = () => pixels;
  return view;
};
