"use strict";
window.wallscopeTimeline = (buffer) => {
  const WALLS = ["compute", "communication", "memory", "host", "unattributed"];
  const COLOURS = ["#0072B2", "#E69F00", "#CC79A7", "#009E73", "#8A8A8A"];
  const ROW = 18, BAND = 26, HEAD = 20, NARROW = 700, MOST_LINKS = 12;
  const canvas = document.getElementById("canvas");
  const told = document.getElementById("told");
  const found = document.getElementById("found");
  const pen = canvas.getContext("2d");

  const { head, steps } = window.wallscopeSteps(buffer);
  const texts = head.texts;

  let step = steps[0], from = 0, to = step.length, gutter = 0, chosen = null, hits = [], hit = -1, wanted = "";
  let pixels = 0, isAsked = false, onPath = null;

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
  const duration = (ns) => {
    for (const [unit, name, digits] of [[1e9, "s", 3], [1e6, "ms", 1], [1e3, "µs", 1]]) {
      if (Number((Math.abs(ns) / unit).toFixed(digits)) >= 1) return `${(ns / unit).toFixed(digits)} ${name}`;
    }
    return `${Math.round(ns)} ns`;
  };
  const session = (ns) => {
    const whole = BigInt(step.start) + BigInt(Math.round(ns));
    const digits = (whole < 0n ? -whole : whole).toString().padStart(10, "0");
    return `${whole < 0n ? "-" : ""}${digits.slice(0, -9)}.${digits.slice(-9)} s`;
  };
  const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const place = (ns) => gutter + ((ns - from) / (to - from)) * pixels;
  const moment = (x) => from + ((x - gutter) / pixels) * (to - from);
  const isHit = (number) => wanted && matching.has(number);
  const isWall = (lane) => lane.kind !== "host";
  const pathLane = (shown) => shown.lanes.find((lane) => lane.kind === "path");
  // What the path goes through ends where a stretch of the path does.
  const isOffPath = (lane, i) => onPath && lane.kind !== "path" && !onPath.has(lane.end[i]);
  let matching = new Set();

  const label = (text, x, y, width, colour) => {
    if (width < 24) return;
    pen.fillStyle = colour;
    const room = Math.floor((width - 6) / 6.2);
    pen.fillText(text.length > room ? `${text.slice(0, Math.max(room - 1, 1))}…` : text, x + 3, y);
  };

  const drawBand = () => {
    const band = step.band;
    const first = above(band.end, from), last = below(band.start, to);
    let pixel = -1, sums = [0, 0, 0, 0, 0];
    const flush = () => {
      if (pixel < 0) return;
      const all = sums.reduce((total, sum) => total + sum, 0);
      let top = HEAD;
      for (let wall = 0; wall < 5 && all > 0; wall++) {
        const height = (BAND * sums[wall]) / all;
        pen.fillStyle = COLOURS[wall];
        if (height > 0) pen.fillRect(pixel, top, 1, height);
        top += height;
      }
      sums = [0, 0, 0, 0, 0];
    };
    for (let i = first; i < last; i++) {
      const left = Math.max(place(band.start[i]), gutter), right = Math.min(place(band.end[i]), gutter + pixels);
      if (right - left < 2) {
        if (Math.floor(left) !== pixel) { flush(); pixel = Math.floor(left); }
        sums[band.wall[i]] += band.end[i] - band.start[i];
        continue;
      }
      flush();
      pixel = -1;
      pen.fillStyle = COLOURS[band.wall[i]];
      pen.fillRect(left, HEAD, right - left + 0.5, BAND);
      label(texts[band.cause[i]], left, HEAD + 17, right - left, band.wall[i] === 0 ? "#fff" : "#000");
    }
    flush();
  };

  const drawLane = (lane, y, ink, faint) => {
    let i = above(lane.reach, from);
    const last = below(lane.start, to);
    while (i < last) {
      if (lane.end[i] <= from) { i++; continue; }
      const left = Math.max(place(lane.start[i]), gutter), right = Math.min(place(lane.end[i]), gutter + pixels);
      const width = Math.max(right - left, 1);
      pen.globalAlpha = isOffPath(lane, i) ? 0.22 : 1;
      pen.fillStyle = isWall(lane) ? COLOURS[lane.wall[i]] : lane.depth < 0 ? faint[1] : faint[lane.depth % 2 ? 0 : 2];
      if (isHit(lane.name[i])) pen.fillStyle = "#D55E00";
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
        i = Math.max(low, i + 1);
        continue;
      }
      const light = isWall(lane) && !isOffPath(lane, i) ? (lane.wall[i] === 0 ? "#fff" : "#000") : ink;
      label(texts[lane.name[i]], left, y + 13, right - left, isHit(lane.name[i]) ? "#000" : light);
      i++;
    }
  };

  const laneTop = (index) => HEAD + BAND + 8 + index * ROW;
  const laneName = (lane) => isWall(lane) ? lane.lane : lane.depth < 0 ? `${lane.lane} calls` : lane.depth === 0 ? "ranges" : "";

  const draw = () => {
    isAsked = false;
    const begun = performance.now();
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = laneTop(step.lanes.length) + 6;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    gutter = width < NARROW ? 62 : 170;
    pixels = width - gutter - 4;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const ink = tone("--ink"), paper = tone("--paper"), line = tone("--line"), dim = tone("--dim");
    pen.fillStyle = paper;
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    const span = to - from, power = 10 ** Math.floor(Math.log10(span / 4));
    const every = [1, 2, 5, 10].map((factor) => factor * power).find((value) => span / value <= (width < NARROW ? 4 : 8)) || power * 10;
    for (let tick = Math.ceil(from / every) * every; tick <= to; tick += every) {
      const x = place(tick);
      pen.fillStyle = line;
      pen.fillRect(x, HEAD - 4, 1, height);
      pen.fillStyle = dim;
      if (x < gutter + pixels - 40) pen.fillText(duration(tick), x + 3, 12);
    }
    drawBand();
    const faint = [tone("--inner"), tone("--call"), tone("--range")];
    step.lanes.forEach((lane, index) => drawLane(lane, laneTop(index), ink, faint));
    pen.fillStyle = paper;
    pen.fillRect(0, 0, gutter - 2, height);
    pen.fillStyle = ink;
    pen.fillText("who pays", 4, HEAD + 17);
    let shown = "";
    step.lanes.forEach((lane, index) => {
      const name = laneName(lane);
      const room = Math.floor(gutter / 6);
      if (name && name !== shown) pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, 4, laneTop(index) + 13);
      shown = name;
    });
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
    canvas.dataset.frame = (performance.now() - begun).toFixed(2);
  };
  const ask = () => { if (!isAsked) { isAsked = true; requestAnimationFrame(draw); } };

  const show = (first, last) => {
    const span = Math.min(Math.max(last - first, Math.min(step.length, 200)), step.length);
    from = Math.min(Math.max(first, 0), step.length - span);
    to = from + span;
    ask();
  };
  const zoom = (factor, centre) => {
    const middle = centre ?? (from + to) / 2;
    show(middle - (middle - from) * factor, middle + (to - middle) * factor);
  };
  const move = (share) => show(from + share * (to - from), to + share * (to - from));

  const isGap = (i) => !["compute", "opaque_graph"].includes(texts[step.band.state[i]]);
  const gapAround = (i) => {
    const band = step.band;
    let first = i, last = i;
    while (first > 0 && isGap(first - 1) && band.end[first - 1] >= band.start[first]) first--;
    while (last + 1 < band.start.length && isGap(last + 1) && band.end[last] >= band.start[last + 1]) last++;
    return [first, last];
  };
  const paragraph = (...texts) => {
    const element = document.createElement("div");
    element.append(...texts);
    return element;
  };
  const bold = (text) => {
    const element = document.createElement("b");
    element.textContent = text;
    return element;
  };
  // Neighbouring links of one cause and one thing are one link; time outside calls is named by its longest part.
  const isOutside = (i) => texts[step.band.what[i]].startsWith("thread ");
  const chain = ([first, last]) => {
    const band = step.band, links = [];
    let longest = 0;
    for (let i = first; i <= last; i++) {
      const link = links.at(-1), length = band.end[i] - band.start[i];
      if (link && band.cause[i] === band.cause[link.last] && (isOutside(i) ? isOutside(link.last) : band.what[i] === band.what[link.last])) {
        if (length > longest) { longest = length; link.named = i; }
        link.last = i;
      } else {
        links.push({ first: i, last: i, named: i });
        longest = length;
      }
    }
    return links;
  };
  const describeLink = ({ first, last, named }) => {
    const band = step.band, slack = band.slack[last] ? `, slack ${duration((band.slack[last] - 1) * step.tick)}` : "";
    const around = isOutside(named) && band.path[named] ? ` in ${texts[band.path[named]]}` : "";
    return `${duration(band.end[last] - band.start[first])} ${texts[band.cause[named]]}${band.what[named] ? `: ${texts[band.what[named]]}${around}` : ""}${slack}`;
  };
  const tell = (...elements) => told.replaceChildren(...elements);
  const tellSlice = (i) => {
    const band = step.band, [first, last] = isGap(i) ? gapAround(i) : [i, i];
    const links = chain([first, last]), here = links.findIndex((link) => i <= link.last);
    const { first: from, last: until, named } = links[here];
    chosen = { start: band.start[from], end: band.end[until], top: HEAD, height: BAND };
    const lines = [paragraph(bold(`${WALLS[band.wall[i]]}: ${texts[band.cause[i]]}`), ` ${duration(chosen.end - chosen.start)} at ${session(chosen.start)}, device: ${texts[band.state[i]].replaceAll("_", " ")}`)];
    if (band.path[named]) lines.push(paragraph(`in ${texts[band.path[named]]}`));
    if (!isGap(i)) {
      if (band.what[i]) lines.push(paragraph(texts[band.what[i]]));
      return tell(...lines);
    }
    const list = document.createElement("ol");
    const begin = Math.max(0, Math.min(here - 6, links.length - MOST_LINKS)), finish = Math.min(links.length, begin + MOST_LINKS);
    links.slice(begin, finish).forEach((link, place) => {
      const entry = document.createElement("li");
      entry.value = begin + place + 1;
      entry.append(begin + place === here ? bold(describeLink(link)) : describeLink(link));
      list.append(entry);
    });
    const ender = band.ender[last] ? `, ended by ${texts[band.ender[last]]}` : ", open at its end";
    const many = links.length === 1 ? "one link" : `${links.length} links in order of time${finish - begin < links.length ? `, ${begin + 1} to ${finish} here` : ""}`;
    lines.push(paragraph(bold(`Gap of ${duration(band.end[last] - band.start[first])}${ender}.`), ` Its chain, ${many}:`), list);
    tell(...lines);
  };
  const tellRow = (lane, i, index) => {
    chosen = { start: lane.start[i], end: lane.end[i], top: laneTop(index), height: ROW - 1 };
    const what = lane.what[i] ? `, ${texts[lane.what[i]]}` : "";
    tell(paragraph(bold(texts[lane.name[i]])), paragraph(`${duration(lane.end[i] - lane.start[i])} at ${session(lane.start[i])} on ${lane.lane}${what}`));
  };
  const pick = (x, y) => {
    const now = moment(x), near = (2 * (to - from)) / pixels;
    if (y >= HEAD && y < HEAD + BAND) {
      const i = Math.min(above(step.band.end, now), step.band.start.length - 1);
      if (i >= 0) tellSlice(i);
      return ask();
    }
    const index = Math.floor((y - laneTop(0)) / ROW), lane = step.lanes[index];
    if (!lane) return undefined;
    let best = -1;
    for (let i = above(lane.reach, now - near); i < lane.start.length && lane.start[i] <= now + near; i++) {
      if (lane.end[i] >= now - near) best = i;
      if (lane.start[i] <= now && lane.end[i] > now) break;
    }
    if (best >= 0) tellRow(lane, best, index);
    return ask();
  };

  const gaps = () => {
    const listed = [];
    for (let i = 0; i < step.band.start.length; i++) {
      if (!isGap(i)) continue;
      const [first, last] = gapAround(i);
      listed.push([first, last]);
      i = last;
    }
    return listed;
  };
  const goTo = ([first, last]) => {
    const band = step.band, length = band.end[last] - band.start[first];
    show(band.start[first] - 2 * length, band.end[last] + 2 * length);
    let longest = first;
    for (let i = first; i <= last; i++) if (band.end[i] - band.start[i] > band.end[longest] - band.start[longest]) longest = i;
    tellSlice(longest);
  };
  const longestGap = () => {
    const length = ([first, last]) => step.band.end[last] - step.band.start[first];
    const listed = gaps();
    if (listed.length) goTo(listed.reduce((best, gap) => (length(gap) > length(best) ? gap : best)));
  };
  const nextGap = (way) => {
    const listed = gaps();
    if (!listed.length) return;
    const here = chosen ? chosen.start : from;
    const band = step.band;
    const next = way > 0 ? listed.find(([first]) => band.start[first] > here) : listed.findLast(([, last]) => band.end[last] <= here);
    goTo(next || listed[way > 0 ? 0 : listed.length - 1]);
  };

  const search = (text) => {
    wanted = text.trim().toLowerCase();
    matching = new Set();
    hits = [];
    hit = -1;
    if (wanted) {
      texts.forEach((name, number) => { if (number && name.toLowerCase().includes(wanted)) matching.add(number); });
      step.lanes.forEach((lane, index) => {
        for (let i = 0; i < lane.start.length; i++) if (matching.has(lane.name[i])) hits.push([lane.start[i], index, i]);
      });
      for (let i = 0; i < step.band.start.length; i++) if (matching.has(step.band.cause[i])) hits.push([step.band.start[i], -1, i]);
      hits.sort((one, other) => one[0] - other[0]);
    }
    found.textContent = wanted ? `${hits.length.toLocaleString("en")} found${hits.length ? ", Enter goes on" : ""}` : "";
    ask();
  };
  const nextHit = (way) => {
    if (!hits.length) return;
    hit = (hit + way + hits.length) % hits.length;
    const [start, index, i] = hits[hit];
    const lane = index < 0 ? step.band : step.lanes[index];
    const length = Math.max(lane.end[i] - start, 2000);
    if (start < from || lane.end[i] > to || length < (to - from) / 200) show(start - 6 * length, start + 7 * length);
    if (index < 0) tellSlice(i); else tellRow(lane, i, index);
    found.textContent = `${hit + 1} of ${hits.length.toLocaleString("en")}`;
    ask();
  };

  const pointers = new Map();
  let dragged = 0;
  const spot = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, spot(event));
    dragged = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = spot(event);
    pointers.set(event.pointerId, now);
    if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
      zoom(Math.max(Math.abs(before[0] - other[0]), 10) / Math.max(Math.abs(now[0] - other[0]), 10), moment((now[0] + other[0]) / 2));
      dragged = 99;
      return;
    }
    dragged += Math.abs(now[0] - before[0]);
    if (dragged > 3) move((before[0] - now[0]) / pixels);
  });
  canvas.addEventListener("pointerup", (event) => {
    pointers.delete(event.pointerId);
    if (dragged <= 3) pick(...spot(event));
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("dblclick", (event) => zoom(0.25, moment(spot(event)[0])));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.004), moment(spot(event)[0]));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      move((event.deltaX || event.deltaY) / 800);
    }
  }, { passive: false });
  const KEYS = {
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), ArrowUp: () => zoom(0.6), ArrowDown: () => zoom(1 / 0.6),
    a: () => move(-0.2), d: () => move(0.2), w: () => zoom(0.6), s: () => zoom(1 / 0.6), "+": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    Home: () => show(0, step.length), n: () => nextGap(1), p: () => nextGap(-1), g: longestGap,
    "/": () => document.getElementById("find").focus(),
  };
  canvas.addEventListener("keydown", (event) => {
    const action = KEYS[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  document.getElementById("in").addEventListener("click", () => zoom(0.5));
  document.getElementById("out").addEventListener("click", () => zoom(2));
  document.getElementById("all").addEventListener("click", () => show(0, step.length));
  document.getElementById("gap").addEventListener("click", longestGap);
  const pathButton = document.getElementById("onpath");
  const dimOthers = (isOn) => {
    const lane = pathLane(step);
    onPath = isOn && lane ? new Set(lane.end) : null;
    pathButton.setAttribute("aria-pressed", String(Boolean(onPath)));
    pathButton.disabled = !lane;
    ask();
  };
  pathButton.hidden = !steps.some(pathLane);
  pathButton.addEventListener("click", () => dimOthers(!onPath));
  const choose = (number) => {
    document.getElementById("step").value = String(number);
    step = steps[number];
    chosen = null;
    show(0, step.length);
    dimOthers(Boolean(onPath));
    search(document.getElementById("find").value);
  };
  const lead = (wanted) => {
    const number = steps.findIndex((shown) => shown.step === wanted);
    document.getElementById("viewer").closest("details").open = true;
    document.getElementById("viewer").scrollIntoView({ block: "nearest" });
    if (number < 0) tell(paragraph(`Number ${wanted} is not drawn; what is: ${[...document.getElementById("step").options].map(({ text }) => text).join(", ")}.`));
    else {
      if (steps[number] !== step) choose(number);
      tell(paragraph(`Shows the ${document.getElementById("step").selectedOptions[0].text}.`));
    }
    return number >= 0;
  };
  document.getElementById("step").addEventListener("change", (event) => choose(Number(event.target.value)));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-step]");
    if (!button || !lead(Number(button.dataset.step)) || !button.dataset.at) return;
    const i = above(step.band.end, Number(BigInt(button.dataset.at) - BigInt(step.start)));
    goTo(gapAround(Math.min(i, step.band.start.length - 1)));
  });
  window.addEventListener("wallscope-step", (event) => lead(event.detail));
  document.getElementById("find").addEventListener("input", (event) => search(event.target.value));
  document.getElementById("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); nextHit(event.shiftKey ? -1 : 1); }
  });
  new ResizeObserver(ask).observe(canvas);
  window.addEventListener("wallscope-draw", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
  ask();
};
