"use strict";
// The controls of the timeline: which steps, which part of them, what is selected, and what is said of it.
window.wallscopeTimeline = (buffer) => {
  const WALLS = ["compute", "communication", "memory", "host", "unattributed"];
  const MOST_STREAMS = 12, MOST_WAITS = 60, MOST_LINKS = 12, MOST_CAUSES = 6, MOST_OPERATIONS = 6, SETTLE_MS = 120;
  const find = (id) => document.getElementById(id);
  const told = find("told"), found = find("found"), map = find("map"), breakdown = find("breakdown");
  const unit = find("viewer").dataset.unit, isNumbered = find("viewer").dataset.numbered === "yes";
  const { head, steps } = window.wallscopeSteps(buffer);
  const texts = head.texts;
  const say = (text) => head.short[text] ?? texts[text];

  const UNITS = [[864e11, "d", 1], [36e11, "h", 2], [6e10, "min", 2], [1e9, "s", 3], [1e6, "ms", 1], [1e3, "µs", 1]];  // as units.py

  const duration = (ns) => {
    for (const [size, name, digits] of UNITS) {
      if (Number((Math.abs(ns) / size).toFixed(digits)) >= 1) return `${(ns / size).toFixed(digits)} ${name}`;
    }
    return `${Math.round(ns)} ns`;
  };
  const DECIMALS = [[995000, 1], [99500, 2], [9950, 3], [1, 4]];  // as the tables of the page

  const milliseconds = (ns) => {
    if (ns > 0 && ns < 1000) return `${Math.round(ns)} ns`;
    const [, digits] = DECIMALS.find(([least]) => ns >= least) ?? [0, 1];
    return (ns / 1e6).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };

  const shared = { from: 0, to: steps[0].length, length: steps[0].length, selection: null, matching: new Set(), duration };
  const views = ["canvas", "canvas-other"].map((id) => window.wallscopeView(find(id), head, shared));
  const [main, other] = views;
  let hits = [], hit = -1, isAsked = false, isSelecting = false, settling = 0;
  const drawn = () => (other.step ? views : [main]);

  const session = (step, ns) => {
    const whole = BigInt(step.start) + BigInt(Math.round(ns));
    const digits = (whole < 0n ? -whole : whole).toString().padStart(10, "0");
    return `${whole < 0n ? "-" : ""}${digits.slice(0, -9)}.${digits.slice(-9)} s`;
  };
  const pathLane = (step) => step.lanes && step.lanes.find((lane) => lane.kind === "path");
  const opened = (number) => {
    if (steps[number].read) steps[number] = { ...steps[number].read() };
    return steps[number];
  };
  const nameStep = (step) => {
    const rank = step.isTogether ? ", all ranks" : Object.keys(head.ranks).length > 1 ? `, ${head.ranks[step.place]}` : "";
    return `${isNumbered ? `${unit} ${step.step}` : unit}${rank}${step.isLow ? ", low detail" : ""}`;
  };

  const draw = () => {
    isAsked = false;
    drawn().forEach((view) => view.draw());
    main.drawMap(map);
  };
  const ask = () => {
    clearTimeout(settling);
    settling = setTimeout(sumUp, SETTLE_MS);
    if (!isAsked) { isAsked = true; requestAnimationFrame(draw); }
  };

  const paragraph = (...parts) => {
    const element = document.createElement("div");
    element.append(...parts);
    return element;
  };
  const element = (tag, text, className = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const bold = (text) => element("b", text);
  const tell = (...elements) => told.replaceChildren(...elements);

  // Time breakdown of the selected or the visible range; of two steps with the difference.
  const table = (caption, heads, rows) => {
    const made = document.createElement("table"), top = made.createTHead().insertRow(), body = made.createTBody();
    made.append(element("caption", caption));
    heads.forEach((text, column) => {
      const cell = element("th", text, column ? "" : "text");
      cell.scope = "col";
      top.append(cell);
    });
    for (const { wall, name, full, cells, isCause } of rows) {
      const row = body.insertRow(), first = element("th", "", isCause ? "text cause" : "text");
      first.scope = "row";
      if (wall !== undefined) first.append(element("span", "", `mark ${WALLS[wall]}`));
      first.append(name);
      if (full) first.title = full;
      row.append(first);
      cells.forEach((text) => row.append(element("td", text)));
    }
    return made;
  };
  const tellShares = (first, last) => {
    const name = shared.selection ? "Selected time" : last - first < shared.length ? `View of ${duration(last - first)}` : nameStep(main.step).replace(/^./, (letter) => letter.toUpperCase());
    if (main.step.isTogether) { find("shares").textContent = ""; return; }
    const { walls } = main.sum(first, last, main.step.band, []), all = Math.max(last - first, 1);
    const parts = walls.flatMap((ns, wall) => (ns / all >= 0.0005 ? [`${WALLS[wall]} ${((100 * ns) / all).toFixed(1)} %`] : []));
    find("shares").textContent = `${name}: ${parts.join(", ")}.`;
  };
  const sumUp = () => {
    if (breakdown.hidden) return;
    const { first, last } = shared.selection || { first: shared.from, last: shared.to };
    tellShares(first, last);
    const isTogether = Boolean(main.step.isTogether), span = last - first;
    const parts = isTogether
      ? main.sumRanks(first, last).map(({ lane, sum }) => ({ name: lane.lane, sum }))
      : drawn().map((view) => ({ name: nameStep(view.step), sum: view.sum(first, last) }));
    const sums = parts.map(({ sum }) => sum), isPair = parts.length === 2;
    const signed = (ns) => (ns > 0 ? `+${milliseconds(ns)}` : ns < 0 ? `-${milliseconds(-ns)}` : "0.0");
    const cells = (pick) => {
      const found = sums.map(pick), times = found.map(milliseconds);
      return isPair ? [...times, signed(found[1] - found[0])] : isTogether ? times : [...times, ((100 * found[0]) / span).toFixed(1)];
    };
    const heads = parts.length > 1 ? [...parts.map(({ name }) => `${name} (ms)`), ...(isPair ? ["difference (ms)"] : [])] : ["time (ms)", "share (%)"];
    const ranked = (kind, most) => {
      const keys = [...new Set(sums.flatMap((sum) => [...sum[kind].keys()]))];
      const spread = (key) => { const all = sums.map((sum) => sum[kind].get(key) || 0); return Math.max(...all) - Math.min(...all); };
      const weight = (key) => (parts.length > 1 ? spread(key) : sums[0][kind].get(key));
      return keys.sort((left, right) => weight(right) - weight(left)).slice(0, most);
    };
    const rows = WALLS.map((name, wall) => ({ wall, name, cells: cells((sum) => sum.walls[wall]) }));
    for (const cause of ranked("causes", MOST_CAUSES)) {
      const wall = WALLS.indexOf(texts[cause].split("/")[0]);
      rows.push({ wall: wall < 0 ? undefined : wall, name: say(cause), full: texts[cause], isCause: true, cells: cells((sum) => sum.causes.get(cause) || 0) });
    }
    const part = shared.selection ? "the selected range of " : span < shared.length ? "the visible range of " : "";
    const what = `${part}${isPair && !isTogether ? "both" : nameStep(main.step)}`;
    const where = `${duration(first)} to ${duration(last)}`;
    const isExact = drawn().every(({ step }) => !step.isLow); // merged operations have no durations of their own
    const operations = (isExact ? ranked("operations", MOST_OPERATIONS) : []).map((name) => ({
      name: say(name), full: texts[name], cells: cells((sum) => sum.operations.get(name) || 0).slice(0, isPair ? 3 : 1),
    }));
    const lists = [table(`Time breakdown of ${what}, ${where}: walls, then ${parts.length > 1 ? "the causes that differ most" : "the largest causes"}`, ["attributed to", ...heads], rows)];
    if (operations.length) lists.push(table("Operations in it, durations added up", ["operation", ...heads.slice(0, isPair ? 3 : 1)], operations));
    breakdown.replaceChildren(...lists);
    breakdown.dataset.of = `${Math.round(first)} ${Math.round(last)}`;
  };
  const select = (first, last) => {
    shared.selection = first === null ? null : { first: Math.max(Math.min(first, last), 0), last: Math.min(Math.max(first, last), shared.length) };
    for (const id of ["to-selection", "unselect"]) find(id).hidden = !shared.selection;
    ask();
  };

  const show = (first, last) => {
    const span = Math.min(Math.max(last - first, Math.min(shared.length, 200)), shared.length);
    shared.from = Math.min(Math.max(first, 0), shared.length - span);
    shared.to = shared.from + span;
    ask();
  };
  const zoom = (factor, centre) => {
    const middle = centre ?? (shared.from + shared.to) / 2;
    show(middle - (middle - shared.from) * factor, middle + (shared.to - middle) * factor);
  };
  const move = (share) => show(shared.from + share * (shared.to - shared.from), shared.to + share * (shared.to - shared.from));

  const gapAround = ({ band }, i) => {
    let first = i, last = i;
    while (first > 0 && band.isGap[first - 1] && band.end[first - 1] >= band.start[first]) first--;
    while (last + 1 < band.start.length && band.isGap[last + 1] && band.end[last] >= band.start[last + 1]) last++;
    return [first, last];
  };
  // Neighboring links with the same cause and the same call are one link. Host time outside calls has the name of its longest part.
  const isOutside = (band, i) => texts[band.what[i]].startsWith("thread ");
  const chain = (band, [first, last]) => {
    const links = [];
    let longest = 0;
    for (let i = first; i <= last; i++) {
      const link = links.at(-1), length = band.end[i] - band.start[i];
      if (link && band.cause[i] === band.cause[link.last] && (isOutside(band, i) ? isOutside(band, link.last) : band.what[i] === band.what[link.last])) {
        if (length > longest) { longest = length; link.named = i; }
        link.last = i;
      } else {
        links.push({ first: i, last: i, named: i });
        longest = length;
      }
    }
    return links;
  };
  const describeLink = (step, { first, last, named }) => {
    const { band } = step, slack = band.slack[last] ? `, slack ${duration((band.slack[last] - 1) * step.tick)}` : "";
    const around = isOutside(band, named) && band.path[named] ? ` in ${texts[band.path[named]]}` : "";
    return `${duration(band.end[last] - band.start[first])} ${say(band.cause[named])}${band.what[named] ? `: ${texts[band.what[named]]}${around}` : ""}${slack}`;
  };
  const tellSlice = (view, i) => {
    const { step } = view, { band } = step, [first, last] = band.isGap[i] ? gapAround(step, i) : [i, i];
    const links = chain(band, [first, last]), here = links.findIndex((link) => i <= link.last);
    const { first: from, last: until, named } = links[here];
    view.chooseSlices(band.start[from], band.end[until]);
    const state = band.state ? `, device: ${texts[band.state[i]].replaceAll("_", " ")}` : "";
    const length = band.end[until] - band.start[from];
    const lines = [paragraph(bold(`${WALLS[band.wall[i]]}: ${say(band.cause[i])}`), ` ${duration(length)} at ${session(step, band.start[from])}${state}`)];
    if (band.path[named]) lines.push(paragraph(`in ${texts[band.path[named]]}`));
    if (step.isLow) {
      tell(...lines, paragraph(`${nameStep(step)}: short neighbors are put together by cause, so their order is not kept. Sums are exact.`));
      return;
    }
    if (!band.isGap[i]) {
      if (band.what[i]) lines.push(paragraph(texts[band.what[i]]));
      tell(...lines);
      return;
    }
    const list = document.createElement("ol");
    const begin = Math.max(0, Math.min(here - 6, links.length - MOST_LINKS)), finish = Math.min(links.length, begin + MOST_LINKS);
    links.slice(begin, finish).forEach((link, place) => {
      const entry = document.createElement("li");
      entry.value = begin + place + 1;
      entry.append(begin + place === here ? bold(describeLink(step, link)) : describeLink(step, link));
      list.append(entry);
    });
    const ender = band.ender[last] ? `, ended by ${texts[band.ender[last]]}` : ", open at its end";
    const many = links.length === 1 ? "one link" : `${links.length} links in order of time${finish - begin < links.length ? `, ${begin + 1} to ${finish} here` : ""}`;
    lines.push(paragraph(bold(`Gap of ${duration(band.end[last] - band.start[first])}${ender}.`), ` Its chain, ${many}:`), list);
    tell(...lines);
  };
  const tellRow = (view, lane, i, index) => {
    const { step } = view, what = lane.what[i] ? `, ${texts[lane.what[i]]}` : "";
    view.chooseRow(lane, i, index);
    const rank = step.isTogether && lane.kind !== "rank" ? `, ${head.ranks[lane.place]}` : "";
    const where = step.isTogether ? `${duration(lane.start[i])} after the begin of the range` : session(step, lane.start[i]);
    const lines = [paragraph(bold(texts[lane.name[i]])), paragraph(`${duration(lane.end[i] - lane.start[i])} at ${where} on ${lane.lane}${rank}${what}`)];
    if (step.isTogether) lines.push(paragraph("Short neighbors are put together; the clocks are those that matched collectives tie."));
    if (lane.kind === "stream" && step.band) {
      if (lane.call[i]) {
        const lead = lane.lead[i] ? `, called ${duration(lane.lead[i] - 1)} before it began` : "";
        const number = lane.correlation[i] ? `, correlation id ${lane.correlation[i]}` : "";
        lines.push(paragraph(`Issued by ${texts[lane.call[i]]}${lead}${number}`));
      }
      if (lane.path[i]) lines.push(paragraph(`in ${texts[lane.path[i]]}`));
      const { causes } = view.sum(lane.start[i], lane.end[i]);
      const owners = [...causes].sort((one, two) => two[1] - one[1]).slice(0, 3).map(([cause, ns]) => `${say(cause)} ${duration(ns)}`);
      if (owners.length) lines.push(paragraph(`The ${unit} at that time is attributed to ${owners.join(", ")}`));
    }
    tell(...lines);
  };
  const pick = (view, x, y) => {
    const target = view.find(x, y);
    if (!target) return;
    if (target.lane) tellRow(view, target.lane, target.row, target.index); else tellSlice(view, target.slice);
    ask();
  };

  // Waits that are worth a stop: the longest ones, in order of time.
  const listWaits = (step) => {
    const length = ([first, last]) => step.band.end[last] - step.band.start[first];
    return listGaps(step).sort((one, two) => length(two) - length(one)).slice(0, MOST_WAITS).sort((one, two) => one[0] - two[0]);
  };
  const listGaps = ({ band }) => {
    const listed = [];
    if (!band) return listed;
    for (let i = 0; i < band.start.length; i++) {
      if (!band.isGap[i]) continue;
      const [first, last] = gapAround({ band }, i);
      listed.push([first, last]);
      i = last;
    }
    return listed;
  };
  const goTo = ([first, last]) => {
    const { band } = main.step, length = band.end[last] - band.start[first];
    show(band.start[first] - 2 * length, band.end[last] + 2 * length);
    let longest = first;
    for (let i = first; i <= last; i++) if (band.end[i] - band.start[i] > band.end[longest] - band.start[longest]) longest = i;
    tellSlice(main, longest);
  };
  const longestGap = () => {
    const { band } = main.step, length = ([first, last]) => band.end[last] - band.start[first];
    const listed = listGaps(main.step);
    if (listed.length) goTo(listed.reduce((best, gap) => (length(gap) > length(best) ? gap : best)));
  };
  const nextGap = (way) => {
    const { band } = main.step, listed = band ? listWaits(main.step) : [];
    if (!listed.length) return;
    const here = main.chosen ? main.chosen.start : shared.from;
    const next = way > 0 ? listed.find(([first]) => band.start[first] > here) : listed.findLast(([, last]) => band.end[last] <= here);
    goTo(next || listed[way > 0 ? 0 : listed.length - 1]);
  };

  const search = (text) => {
    const wanted = text.trim().toLowerCase(), { matching } = shared, { step } = main;
    matching.clear();
    hits = [];
    hit = -1;
    if (wanted) {
      texts.forEach((name, number) => { if (number && `${name}\n${head.short[number] ?? ""}`.toLowerCase().includes(wanted)) matching.add(number); });
      step.lanes.forEach((lane, index) => {
        for (let i = 0; i < lane.start.length; i++) if (matching.has(lane.name[i])) hits.push([lane.start[i], index, i]);
      });
      for (let i = 0; step.band && i < step.band.start.length; i++) if (matching.has(step.band.cause[i])) hits.push([step.band.start[i], -1, i]);
      hits.sort((one, two) => one[0] - two[0]);
    }
    find("hit-key").hidden = !wanted;
    found.textContent = wanted ? `${hits.length.toLocaleString("en")} found${hits.length ? ", Enter goes on" : ""}` : "";
    ask();
  };
  const nextHit = (way) => {
    if (!hits.length) return;
    hit = (hit + way + hits.length) % hits.length;
    const [start, index, i] = hits[hit];
    const lane = index < 0 ? main.step.band : main.step.lanes[index];
    const length = Math.max(lane.end[i] - start, 2000);
    if (start < shared.from || lane.end[i] > shared.to || length < (shared.to - shared.from) / 200) show(start - 6 * length, start + 7 * length);
    if (index < 0) tellSlice(main, i); else tellRow(main, lane, i, index);
    found.textContent = `${hit + 1} of ${hits.length.toLocaleString("en")}`;
    ask();
  };

  // What stands under the pointer, in a few lines; a click keeps it below, with all that is known.
  const brief = ({ step }, { lane, row, slice }) => {
    if (!lane) {
      const { band } = step;
      return `${WALLS[band.wall[slice]]}: ${say(band.cause[slice])}\n${duration(band.end[slice] - band.start[slice])}${band.isGap[slice] ? "; no compute kernel runs" : ""}`;
    }
    const lines = [texts[lane.name[row]], `${duration(lane.end[row] - lane.start[row])} on ${lane.lane}`];
    if (lane.kind === "stream" && lane.path && lane.path[row]) lines.push(`in ${texts[lane.path[row]]}`);
    if (lane.kind === "stream" && lane.lead && lane.lead[row]) lines.push(`called ${duration(lane.lead[row] - 1)} before it began, by ${texts[lane.call[row]]}`);
    return lines.join("\n");
  };
  const fold = (group) => {
    for (const view of views) if (view.folded.has(group)) view.folded.delete(group); else view.folded.add(group);
    main.chosen = main.arrow = null;
    listGroups();
    ask();
  };
  const listGroups = () => {
    const names = [...new Set(main.step.lanes.map(main.groupOf))].filter((name) => name && main.step.lanes.filter((lane) => main.groupOf(lane) === name).length > 1);
    find("groups").replaceChildren(...names.map((name) => {
      const button = element("button", `${main.folded.has(name) ? "▸" : "▾"} ${name}`);
      button.type = "button";
      button.setAttribute("aria-expanded", String(!main.folded.has(name)));
      button.addEventListener("click", () => { fold(name); [...find("groups").children][names.indexOf(name)].focus(); });
      return button;
    }));
  };

  const spot = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  views.forEach((view) => {
    const { canvas } = view, pointers = new Map();
    let dragged = 0, begun = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, spot(event));
      begun = isSelecting || event.shiftKey ? view.moment(spot(event)[0]) : null;
      dragged = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) {
        const target = view.find(...spot(event));
        window.wallscopeTip(target ? brief(view, target) : "", event.clientX, event.clientY);
        return;
      }
      window.wallscopeTip("");
      const now = spot(event);
      pointers.set(event.pointerId, now);
      if (pointers.size === 2) {
        const [second] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
        zoom(Math.max(Math.abs(before[0] - second[0]), 10) / Math.max(Math.abs(now[0] - second[0]), 10), view.moment((now[0] + second[0]) / 2));
        dragged = 99;
        return;
      }
      dragged += Math.abs(now[0] - before[0]);
      if (dragged <= 3) return;
      if (begun !== null) select(begun, view.moment(now[0])); else move((before[0] - now[0]) / view.scale());
    });
    canvas.addEventListener("pointerup", (event) => {
      pointers.delete(event.pointerId);
      if (dragged > 3) return;
      const group = view.findGroup(...spot(event));
      if (group) fold(group); else pick(view, ...spot(event));
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => window.wallscopeTip(""));
    canvas.addEventListener("dblclick", (event) => zoom(0.25, view.moment(spot(event)[0])));
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(Math.exp(event.deltaY * 0.004), view.moment(spot(event)[0]));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        move((event.deltaX || event.deltaY) / 800);
      }
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const action = KEYS[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
    new ResizeObserver(ask).observe(canvas);
  });
  const centreOn = (event) => {
    const span = shared.to - shared.from, middle = (spot(event)[0] / map.clientWidth) * shared.length;
    show(middle - span / 2, middle + span / 2);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); centreOn(event); });
  map.addEventListener("pointermove", (event) => { if (event.buttons) centreOn(event); });

  const selectVisible = () => select(shared.from, shared.to);
  const showSelection = () => { if (shared.selection) show(shared.selection.first, shared.selection.last); };
  const KEYS = {
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), ArrowUp: () => zoom(0.6), ArrowDown: () => zoom(1 / 0.6),
    a: () => move(-0.2), d: () => move(0.2), w: () => zoom(0.6), s: () => zoom(1 / 0.6), "+": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    Home: () => show(0, shared.length), n: () => nextGap(1), p: () => nextGap(-1), g: longestGap,
    b: selectVisible, z: showSelection, Escape: () => select(null), "/": () => find("find").focus(),
  };
  const press = (id, action) => find(id).addEventListener("click", action);
  press("in", () => zoom(0.5));
  press("out", () => zoom(2));
  press("all", () => show(0, shared.length));
  press("gap", longestGap);
  press("previous", () => nextGap(-1));
  press("next", () => nextGap(1));
  press("to-selection", showSelection);
  press("unselect", () => select(null));
  press("select", () => {
    isSelecting = !isSelecting;
    find("select").setAttribute("aria-pressed", String(isSelecting));
  });
  const pathButton = find("onpath");
  const dimOthers = (isOn) => {
    const lane = pathLane(main.step);
    main.onPath = isOn && lane ? new Set(lane.end) : null;
    pathButton.setAttribute("aria-pressed", String(Boolean(main.onPath)));
    pathButton.disabled = !lane;
    ask();
  };
  pathButton.hidden = !steps.some(pathLane);
  press("onpath", () => dimOthers(!main.onPath));

  const fit = () => {
    shared.length = Math.max(...drawn().map(({ step }) => step.length));
    map.dataset.key = "";
    show(0, shared.length);
  };
  const choose = (number) => {
    find("step").value = String(number);
    main.step = opened(number);
    if (main.step.isTogether) { find("other").value = "-1"; compare(-1); }
    for (const id of ["gap", "other"]) find(id).disabled = Boolean(main.step.isTogether);
    main.chosen = main.arrow = null;
    listGroups();
    select(null);
    fit();
    dimOthers(Boolean(main.onPath));
    search(find("find").value);
  };
  const compare = (number) => {
    other.step = number < 0 ? null : opened(number);
    other.chosen = null;
    other.canvas.hidden = number < 0;
    find("other-name").hidden = number < 0;
    if (other.step) find("other-name").textContent = `Below: ${nameStep(other.step)}, ${duration(other.step.length)}`;
    fit();
  };
  const fillChoices = () => {
    const groups = new Map();
    const isSingle = head.overviews.length < 2; // it is the one in detail
    const together = steps.flatMap((step, number) => (step.isTogether ? [[number, `${isNumbered ? `${unit} ${step.step}` : unit}: ${duration(step.length)}`]] : []));
    if (together.length) groups.set(`All ranks on one time axis`, together);
    steps.forEach((step, number) => {
      if (!step.isLow || isSingle || step.isTogether) return;
      const rank = head.ranks[step.place] ?? "", name = `All ${unit}s, low detail${Object.keys(head.ranks).length > 1 ? `, ${rank}` : ""}`;
      if (!groups.has(name)) groups.set(name, []);
      const text = isNumbered ? `${unit} ${step.step}: ${duration(step.length)}${step.steady ? "" : ", not steady"}` : `${unit}: ${duration(step.length)}`;
      groups.get(name).push([number, text]);
    });
    const option = (value, text) => { const made = element("option", text); made.value = String(value); return made; };
    const detailed = [...find("step").options].map(({ value, text }) => [value, text]);
    const low = (isPair) => [...groups].filter(([, entries]) => !isPair || entries !== together).map(([name, entries]) => {
      const group = document.createElement("optgroup");
      group.label = name;
      group.append(...entries.map(([value, text]) => option(value, text)));
      return group;
    });
    find("step").append(...low());
    find("other").append(...detailed.map(([value, text]) => option(value, text)), ...low(true));
    find("compare").hidden = find("step").options.length < 2;
  };
  fillChoices();
  if (steps.some(({ lanes, isLow, isTogether }) => lanes && !isLow && !isTogether && lanes.filter(({ kind }) => kind !== "host").length > MOST_STREAMS)) views.forEach((view) => view.folded.add("GPU"));
  if (window.innerWidth < 700) for (const { lanes } of steps.filter((step) => step.lanes && !step.isLow)) for (const lane of lanes) if (lane.kind === "host") views.forEach((view) => view.folded.add(lane.lane));

  const reveal = () => {
    find("viewer").scrollIntoView({ block: "nearest" });
  };
  const lead = (wanted) => {
    const number = steps.findIndex((shown) => shown.step === wanted && shown.place === steps[0].place && !shown.isTogether);
    reveal();
    if (number < 0) {
      tell(paragraph(`${unit} ${wanted} is not in this page. Choose one of the list.`));
      return false;
    }
    if (steps[number] !== main.step) choose(number);
    tell(paragraph(`Shows ${nameStep(main.step)}, ${duration(main.step.length)}.`));
    return true;
  };
  find("step").addEventListener("change", (event) => choose(Number(event.target.value)));
  find("other").addEventListener("change", (event) => compare(Number(event.target.value)));
  document.addEventListener("click", (event) => {
    const wanted = event.target.closest("[data-find]");
    if (wanted) {
      reveal();
      find("find").value = wanted.dataset.find;
      search(wanted.dataset.find);
      nextHit(1);
      return;
    }
    const button = event.target.closest("[data-step]");
    if (!button || !lead(Number(button.dataset.step)) || !button.dataset.at) return;
    goTo(gapAround(main.step, main.sliceAt(Number(BigInt(button.dataset.at) - BigInt(main.step.start)))));
  });
  window.addEventListener("wallscope-step", (event) => lead(event.detail));
  find("find").addEventListener("input", (event) => search(event.target.value));
  find("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); nextHit(event.shiftKey ? -1 : 1); }
  });
  new ResizeObserver(ask).observe(map);
  window.addEventListener("wallscope-draw", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
  // Without a step in detail the ranks together come first, at the step that is nearest to the median.
  if (steps[0].isLow) {
    const own = steps.map((step, number) => ({ step, number })).filter(({ step }) => step.isTogether || !steps.at(-1).isTogether);
    const steady = own.filter(({ step }) => step.steady && step.place === steps[0].place);
    const sorted = (steady.length ? steady : own).sort((one, two) => one.step.length - two.step.length);
    choose(sorted[sorted.length >> 1].number);
  } else {
    main.step = steps[0];
    listGroups();
    select(null);
  }
};
