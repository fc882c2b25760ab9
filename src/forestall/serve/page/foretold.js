// What a landscape that is known already says of a setting: a rough answer at once.

// told: an answer of /v1/landscape. Gives null where it does not reach the setting.
export function foretold(told, actions) {
  if (!Object.entries(told.at).every(([name, value]) => actions[name] === value)) return null;
  const point = told.over.map((name) => actions[name]);
  const read = (values) => between(told.axes, values, point);
  const probability = read(told.probability);
  if (probability === null) return null;
  return {
    probability,
    lower: read(told.lower),
    upper: read(told.upper),
    support: read(told.support),
    extrapolates: read(told.extrapolates) >= 0.5,
    no_action: told.no_action,
  };
}

// A grid between its points, one axis after the other; null outside of it.
export function between([axis, ...axes], values, [at, ...more]) {
  const i = axis.findIndex((value) => value >= at);
  if (i < 0 || at < axis[0]) return null;
  const side = (k) => (axes.length ? between(axes, values[k], more) : values[k]);
  const high = side(i);
  const low = i === 0 ? high : side(i - 1);
  if (low === null || high === null) return null;
  const t = i === 0 ? 1 : (at - axis[i - 1]) / (axis[i] - axis[i - 1]);
  return (1 - t) * low + t * high;
}
