// Curves are kept as no more points than can be seen: the least and the greatest of each column of pixels.

/** Curves of [seconds, value] over one axis of 2 × columns steps, as uPlot wants them; what a curve has not is null. */
export function alignCurves(curves, columns) {
  const last = Math.max(0, ...curves.map((curve) => curve.at(-1)?.[0] ?? 0));
  if (!curves.some((curve) => curve.length)) return [[], ...curves.map(() => [])];
  const step = last / columns || 1;
  const xs = Array.from({ length: 2 * columns }, (_, index) => (index * step) / 2);
  return [xs, ...curves.map((curve) => columnsOf(curve, step, columns))];
}

function columnsOf(curve, step, columns) {
  const values = new Array(2 * columns).fill(null);
  for (const [seconds, value] of curve) {
    const column = 2 * Math.min(columns - 1, Math.floor(seconds / step));
    if (values[column] === null) values[column] = values[column + 1] = value;
    else if (value < Math.min(values[column], values[column + 1]))
      values[values[column] <= values[column + 1] ? column : column + 1] = value;
    else if (value > Math.max(values[column], values[column + 1]))
      values[values[column] > values[column + 1] ? column : column + 1] = value;
  }
  return values;
}

/** The curve with one more point; of its older half the least and greatest of each four stay once it is too long. */
export function withPoint(curve = [], point, most) {
  if (point[0] <= (curve.at(-1)?.[0] ?? -1)) return curve;
  const longer = [...curve, point];
  if (longer.length <= most) return longer;
  const half = 4 * (longer.length >> 3);
  const kept = [];
  for (let start = 0; start < half; start += 4) kept.push(...extremes(longer.slice(start, start + 4)));
  return [...kept, ...longer.slice(half)];
}

function extremes(points) {
  const ordered = [...points].sort((one, other) => one[1] - other[1]);
  return [ordered[0], ordered.at(-1)].sort((one, other) => one[0] - other[0]);
}
