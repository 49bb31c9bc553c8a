"use strict";
// The packed steps of the timeline as typed arrays, a lane a row and a band; times from their differences.
// Steps in detail are read at once, steps at low detail when they are asked for.
window.wallscopeSteps = (buffer) => {
  const view = new DataView(buffer);
  const size = view.getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = 4 + size, part = 0;
  const column = () => {
    const length = head.lengths[part++];
    const values = new Uint32Array(buffer, at, length);
    at += 4 * length;
    return values;
  };
  const times = (difference, length, tick) => {
    const start = new Float64Array(difference.length), end = new Float64Array(difference.length);
    const reach = new Float64Array(difference.length);
    let now = 0, most = 0;
    for (let i = 0; i < difference.length; i++) {
      now += difference[i];
      start[i] = now * tick;
      end[i] = (now + length[i]) * tick;
      reach[i] = most = Math.max(most, end[i]);
    }
    return { start, end, reach };
  };
  const readLane = (lane, tick) => {
    const row = { ...lane, ...times(column(), column(), tick), name: column(), what: column(), wall: column() };
    return lane.kind === "stream" ? { ...row, call: column(), lead: column(), correlation: column(), path: column() } : row;
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
  return { head, steps };
};
