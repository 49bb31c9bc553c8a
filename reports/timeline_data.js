"use strict";
// The packed steps of the timeline as typed arrays, a lane a row and a band; times from gaps and lengths.
// Steps in detail are read at once, steps at low detail when they are asked for.
window.wallscopeSteps = (buffer) => {
  const view = new DataView(buffer);
  const size = view.getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const bytes = new Uint8Array(buffer, 4 + size), numbers = new Uint32Array(bytes.length / 4);
  for (let i = 0, count = numbers.length; i < count; i++) {
    numbers[i] = bytes[i] | (bytes[count + i] << 8) | (bytes[2 * count + i] << 16) | (bytes[3 * count + i] << 24);
  }
  let at = 0, part = 0;
  const column = () => numbers.subarray(at, (at += head.lengths[part++]));
  const summed = (difference) => {
    for (let i = 1; i < difference.length; i++) difference[i] += difference[i - 1];
    return difference;
  };
  const times = (gap, length, tick) => {
    const start = new Float64Array(gap.length), end = new Float64Array(gap.length);
    const reach = new Float64Array(gap.length);
    let now = 0, most = 0;
    for (let i = 0; i < gap.length; i++) {
      const begin = (now + gap[i]) % 2 ** 32;
      start[i] = begin * tick;
      end[i] = (now = begin + length[i]) * tick;
      reach[i] = most = Math.max(most, end[i]);
    }
    return { start, end, reach };
  };
  const readLane = (lane, tick) => {
    const row = { ...lane, ...times(column(), column(), tick), name: column(), what: column(), wall: column() };
    return lane.kind === "stream" ? { ...row, call: column(), lead: column(), correlation: summed(column()), path: column() } : row;
  };
  const steps = head.steps.map((step) => ({
    ...step,
    place: head.overviews.length ? head.overviews[0].place : 0,
    lanes: step.lanes.map((lane) => readLane(lane, step.tick)),
    band: {
      ...times(column(), column(), step.tick), wall: column(), cause: column(), what: column(), ender: column(), path: column(),
      isGap: column(), slack: column(),
    },
  }));
  const isComputing = new Set(["compute", "opaque_graph"].map((state) => head.texts.indexOf(state)));
  for (const { band } of steps) {
    band.state = band.isGap;
    band.isGap = band.state.map((state) => (isComputing.has(state) ? 0 : 1));
  }
  if (!head.overviews.length) return { head, steps };

  const [length, wall, cause, isGap] = [column(), column(), column(), column()];
  const [opStart, opLength, opName, opWall] = [column(), column(), column(), column()];
  let slice = 0, operation = 0;
  const none = (count) => new Uint32Array(count);
  for (const step of head.overviews) {
    const first = slice, last = slice += step.slices;
    const lanes = step.lanes.map(([lane, count]) => {
      const begin = operation;
      operation += count;
      return [lane, begin, begin + count];
    });
    const read = () => {
      const count = last - first, start = new Float64Array(count), end = new Float64Array(count);
      let now = 0;
      for (let i = 0; i < count; i++) {
        start[i] = now;
        now += length[first + i] * step.tick;
        end[i] = now;
      }
      const cut = (values) => values.subarray(first, last);
      return {
        ...step,
        isLow: true,
        band: {
          start, end, reach: end, wall: cut(wall), cause: cut(cause), isGap: cut(isGap), state: null,
          what: none(count), ender: none(count), path: none(count), slack: none(count),
        },
        lanes: lanes.map(([lane, begin, until]) => {
          const own = (values) => values.subarray(begin, until), zero = none(until - begin);
          return {
            kind: "stream", lane, depth: 0, ...times(own(opStart), own(opLength), step.tick), name: own(opName), wall: own(opWall),
            what: zero, call: zero, lead: zero, correlation: zero, path: zero,
          };
        }),
      };
    };
    steps.push({ ...step, isLow: true, read });
  }
  return { head, steps: [...steps, ...window.wallscopeTogether(head, steps)] };
};

// All ranks in one step of the first one, on the clock of the job: a row of causes and the busiest streams of each.
window.wallscopeTogether = (head, steps) => {
  const MOST_STREAMS = 2;
  const low = steps.filter((step) => step.isLow && step.shift !== null);
  const places = [...new Set(low.map(({ place }) => place))].sort((one, two) => one - two);
  if (places.length < 2) return [];
  const first = (step) => BigInt(step.start) + BigInt(step.shift);
  const origin = low.reduce((least, step) => (first(step) < least ? first(step) : least), first(low[0]));
  const begin = new Map(low.map((step) => [step, Number(first(step) - origin)]));
  const end = (step) => begin.get(step) + step.length;
  const shared = (one, two) => Math.min(end(one), end(two)) - Math.max(begin.get(one), begin.get(two));
  const total = (lane) => lane.start.reduce((sum, start, i) => sum + lane.end[i] - start, 0);
  const cut = (lane, by, length) => {
    const kept = [];
    for (let i = 0; i < lane.start.length; i++) if (lane.end[i] + by > 0 && lane.start[i] + by < length) kept.push(i);
    const pick = (values) => Uint32Array.from(kept, (i) => values[i]);
    const start = Float64Array.from(kept, (i) => Math.max(lane.start[i] + by, 0));
    const ends = Float64Array.from(kept, (i) => Math.min(lane.end[i] + by, length));
    let most = 0;
    return { start, end: ends, reach: ends.map((value) => (most = Math.max(most, value))), pick, none: new Uint32Array(kept.length) };
  };
  const join = (lanes) => {
    const size = lanes.reduce((sum, lane) => sum + lane.start.length, 0), made = {};
    for (const key of ["start", "end", "reach"]) made[key] = new Float64Array(size);
    for (const key of ["name", "what", "wall", "call", "lead", "correlation", "path"]) made[key] = new Uint32Array(size);
    let at = 0;
    for (const lane of lanes) {
      for (const key of Object.keys(made)) made[key].set(lane[key], at);
      at += lane.start.length;
    }
    return made;
  };
  return low.filter(({ place }) => place === low[0].place).map((base) => {
    const nearest = places.map((place) => low.filter((step) => step.place === place).reduce((best, step) => (shared(step, base) > shared(best, base) ? step : best)));
    const together = nearest.filter((step) => 2 * shared(step, base) > base.length);
    const from = Math.min(...together.map((step) => begin.get(step))), length = Math.max(...together.map(end)) - from;
    const read = () => {
      const lanes = [];
      for (const place of places) {
        const own = together.filter((step) => step.place === place);
        const rows = own.map((step) => ({ step: step.read(), by: begin.get(step) - from }));
        lanes.push({
          kind: "rank", lane: head.ranks[place], depth: 0, place,
          ...join(rows.map(({ step: { band }, by }) => {
            const { pick, none, ...times } = cut(band, by, length);
            return { ...times, name: pick(band.cause), wall: pick(band.wall), what: none, call: none, lead: none, correlation: none, path: none };
          })),
        });
        const sums = new Map();
        for (const { step } of rows) for (const lane of step.lanes) sums.set(lane.lane, (sums.get(lane.lane) || 0) + total(lane));
        const busiest = new Set([...sums].sort((one, two) => two[1] - one[1]).slice(0, MOST_STREAMS).map(([name]) => name));
        for (const name of sums.keys()) {
          if (!busiest.has(name)) continue;
          lanes.push({
            kind: "stream", lane: name, depth: 0, place,
            ...join(rows.flatMap(({ step, by }) => step.lanes.filter((lane) => lane.lane === name).map((lane) => {
              const { pick, none, ...times } = cut(lane, by, length);
              return { ...times, name: pick(lane.name), wall: pick(lane.wall), what: none, call: none, lead: none, correlation: none, path: none };
            }))),
          });
        }
      }
      return { ...base, start: String(BigInt(base.start) + BigInt(Math.round(from - begin.get(base)))), length, isLow: true, isTogether: true, read: null, band: null, lanes };
    };
    return { ...base, length, isTogether: true, read };
  });
};
