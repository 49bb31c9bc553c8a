"use strict";
// The packed steps of the timeline as typed arrays, a lane a row and a band; times from their differences.
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
  const times = (tick) => {
    const difference = column(), length = column();
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
  const steps = head.steps.map((step) => ({
    ...step,
    lanes: step.lanes.map((lane) => ({ ...lane, ...times(step.tick), name: column(), what: column(), wall: column() })),
    band: {
      ...times(step.tick), wall: column(), cause: column(), what: column(), ender: column(), path: column(),
      state: column(), slack: column(),
    },
  }));
  return { head, steps };
};
