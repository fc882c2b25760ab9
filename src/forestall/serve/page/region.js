// The desired region, cut out of a window of two outcomes.

// Corners of the part of a window where every half-plane normal·y <= offset holds.
export function clipped(window, halves) {
  const [[x0, x1], [y0, y1]] = window;
  let corners = [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
  for (const half of halves) corners = cut(corners, half);
  return corners;
}

function cut(corners, { normal, offset }) {
  const slack = ([x, y]) => offset - normal[0] * x - normal[1] * y;
  const kept = [];
  corners.forEach((corner, i) => {
    const next = corners[(i + 1) % corners.length];
    const [a, b] = [slack(corner), slack(next)];
    if (a >= 0) kept.push(corner);
    if (a >= 0 !== b >= 0) {
      const t = a / (a - b);
      kept.push([corner[0] + t * (next[0] - corner[0]), corner[1] + t * (next[1] - corner[1])]);
    }
  });
  return kept;
}

// The sides that only speak of the shown outcomes; the others cannot be drawn.
export function sidesOn(constraints, shown) {
  const drawn = constraints.filter(({ normal }) =>
    normal.every((value, k) => value === 0 || shown.includes(k)),
  );
  const sides = drawn.map(({ normal, offset }) => ({ normal: shown.map((k) => normal[k]), offset }));
  return { sides, whole: drawn.length === constraints.length };
}

// The interval of one outcome that all sides leave, inside a window.
export function span(window, sides) {
  let [low, high] = window;
  for (const { normal, offset } of sides) {
    const [m] = normal;
    if (m > 0) high = Math.min(high, offset / m);
    if (m < 0) low = Math.max(low, offset / m);
  }
  return low < high ? [low, high] : null;
}
