// The pictures as plotly takes them: landscape and outcomes.

import { called, pretty } from "./format.js";
import { clipped, sidesOn, span } from "./region.js";

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const told = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: told("ink"), soft: told("soft"), line: told("line"), card: told("card"),
    accent: told("accent"), faint: told("faint"), grey: told("grey"), hatch: told("hatch"),
    low: told("map-low"), middle: told("map-middle"), high: told("map-high"),
    font: style.getPropertyValue("font-family") || "sans-serif",
  };
}

function frame(look, x, y) {
  const axis = {
    gridcolor: look.line, zeroline: false, linecolor: look.line, tickcolor: look.line,
    tickfont: { color: look.soft, size: 12 }, automargin: true, fixedrange: true,
  };
  const title = (text) => ({ text, font: { color: look.soft, size: 13 }, standoff: 8 });
  return {
    font: { family: look.font, color: look.ink, size: 13 },
    paper_bgcolor: look.card, plot_bgcolor: look.card,
    margin: { l: 48, r: 14, t: 8, b: 40 },
    xaxis: { ...axis, title: title(x) }, yaxis: { ...axis, title: title(y) },
    legend: { orientation: "h", x: 0, y: -0.24, yanchor: "top", font: { color: look.soft, size: 12 } },
    hovermode: "closest", showlegend: true, dragmode: false,
    hoverlabel: { font: { family: look.font, size: 12 } },
  };
}

// marks: usual and advised as objects of actions; advice: the row; setting: actions.
export function landscapeFigure(told, marks, look) {
  return told.over.length === 1 ? curve(told, marks, look) : map(told, marks, look);
}

function curve(told, marks, look) {
  const [name] = told.over;
  const [x] = told.axes;
  const layout = frame(look, pretty(name), "");
  Object.assign(layout.yaxis, { range: [0, 1.02], tickformat: ".0%", dtick: 0.25 });
  layout.xaxis.range = [x[0], x.at(-1)];
  layout.annotations = arrow(marks, [name], look, told.no_action);
  const data = [
    patch(stripes(told.extrapolates, x), look),
    ...band(told, x, look),
    {
      x, y: told.probability, mode: "lines", name: "chance of a good outcome",
      line: { color: look.accent, width: 2.5 },
      hovertemplate: `${pretty(name)} %{x:.4g}: %{y:.0%}<extra></extra>`,
    },
    {
      x: [x[0], x.at(-1)], y: [told.no_action, told.no_action], mode: "lines",
      name: "without action", line: { color: look.soft, width: 1.5, dash: "dot" },
      hovertemplate: "without action: %{y:.0%}<extra></extra>",
    },
    ...points(marks, [name], look, told.no_action),
  ];
  return { data, layout };
}

function band(told, x, look) {
  if (told.lower.some((value) => value === null)) return [];
  const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
  return [
    { ...edge, x, y: told.lower, showlegend: false },
    { ...edge, x, y: told.upper, fill: "tonexty", fillcolor: look.faint, name: "90% interval" },
  ];
}

function map(told, marks, look) {
  const [first, second] = told.over;
  const [x, y] = told.axes;
  const z = y.map((_, j) => x.map((_, i) => told.probability[i][j]));
  const layout = frame(look, pretty(first), pretty(second));
  layout.xaxis.range = [x[0], x.at(-1)];
  layout.yaxis.range = [y[0], y.at(-1)];
  layout.annotations = arrow(marks, told.over, look, null);
  const data = [
    {
      type: "contour", x, y, z, zmin: 0, zmax: 1, autocontour: false,
      colorscale: [[0, look.low], [0.5, look.middle], [1, look.high]],
      contours: { start: 0.1, end: 0.9, size: 0.1, coloring: "heatmap" },
      line: { width: 0.7, color: look.card },
      colorbar: { tickformat: ".0%", thickness: 10, outlinewidth: 0, tickfont: { color: look.soft, size: 11 }, dtick: 0.25 },
      hovertemplate: `${pretty(first)} %{x:.4g}, ${pretty(second)} %{y:.4g}: %{z:.0%}<extra></extra>`,
    },
    patch(cellsOf(told.extrapolates, x, y), look),
    ...points(marks, told.over, look, null),
  ];
  return { data, layout };
}

function patch({ x, y }, look) {
  return {
    x, y, mode: "lines", fill: "toself", line: { width: 0 }, hoverinfo: "skip",
    name: "hardly any record", showlegend: x.length > 0,
    fillpattern: { shape: "/", size: 7, solidity: 0.16, fgcolor: look.hatch, bgcolor: "rgba(0,0,0,0)" },
  };
}

// Runs of points where history is silent, as rectangles over the whole height.
export function stripes(flags, x) {
  return rectangles(runs(flags).map(([i, j]) => [edge(x, i), edge(x, j + 1), 0, 1.02]));
}

export function cellsOf(flags, x, y) {
  const boxes = flags.flatMap((column, i) =>
    runs(column).map(([j, k]) => [edge(x, i), edge(x, i + 1), edge(y, j), edge(y, k + 1)]),
  );
  return rectangles(boxes);
}

function runs(flags) {
  const found = [];
  flags.forEach((flag, i) => {
    if (!flag) return;
    if (i && flags[i - 1]) found.at(-1)[1] = i;
    else found.push([i, i]);
  });
  return found;
}

function edge(axis, i) {
  if (i <= 0) return axis[0];
  return i >= axis.length ? axis.at(-1) : (axis[i - 1] + axis[i]) / 2;
}

function rectangles(boxes) {
  const x = boxes.flatMap(([a, b]) => [a, b, b, a, a, null]);
  const y = boxes.flatMap(([, , c, d]) => [c, c, d, d, c, null]);
  return { x, y };
}

function arrow({ usual, advised, advice }, over, look, without) {
  if (advised === null || advice.verdict !== "act") return [];
  const [x, y] = over.length === 1 ? [advised[over[0]], advice.probability] : over.map((k) => advised[k]);
  const [ax, ay] = over.length === 1 ? [usual[over[0]], without] : over.map((k) => usual[k]);
  if ([x, y, ax, ay].some((value) => value === null || value === undefined)) return [];
  return [{
    x, y, ax, ay, xref: "x", yref: "y", axref: "x", ayref: "y", text: "", showarrow: true,
    arrowhead: 2, arrowsize: 1.1, arrowwidth: 1.6, arrowcolor: look.ink, standoff: 9, startstandoff: 7,
  }];
}

// The last three traces: what is usual, the best that was found, what is set.
function points({ usual, advised, advice, setting, answer }, over, look, without) {
  const at = (actions, p) => spot(actions, p, over);
  const dot = (name, symbol, size, color, width, where) => ({
    ...where, name, mode: "markers", cliponaxis: false,
    marker: { symbol, size, color, line: { color: look.ink, width } },
    hovertemplate: `${name}<extra></extra>`,
  });
  return [
    dot("usual action, today", "diamond", 10, look.card, 1.6, at(usual, without)),
    dot(called(advice?.verdict), "circle", 12, look.accent, 1.6, at(advised, advice?.probability)),
    dot("your setting", "circle-open", 17, look.ink, 2, at(setting, answer?.probability)),
  ];
}

export function spot(actions, p, over) {
  if (!actions || over.some((k) => actions[k] === undefined)) return { x: [], y: [] };
  if (over.length === 2) return { x: [actions[over[0]]], y: [actions[over[1]]] };
  return p === null || p === undefined ? { x: [], y: [] } : { x: [actions[over[0]]], y: [p] };
}

// before, after: answers of /v1/outcomes. shown: one index or two.
export function outcomesFigure(before, after, shown, constraints, look) {
  const { sides } = sidesOn(constraints, shown);
  return shown.length === 1
    ? histogram(before, after, shown, sides, look)
    : scatter(before, after, shown, sides, look);
}

function histogram(before, after, [k], sides, look) {
  const values = [before, after].map((told) => column(told, k));
  const window = around(values.flat());
  const layout = frame(look, pretty(before.outcomes[k]), "share of draws");
  Object.assign(layout, { barmode: "overlay", bargap: 0.04 });
  layout.xaxis.range = window;
  Object.assign(layout.yaxis, { tickformat: ".0%", rangemode: "tozero" });
  const kept = span(window, sides);
  layout.shapes = kept === null ? [] : [{
    type: "rect", xref: "x", yref: "paper", x0: kept[0], x1: kept[1], y0: 0, y1: 1,
    fillcolor: look.faint, line: { color: look.accent, width: 1, dash: "dot" }, layer: "below",
  }];
  const xbins = { start: window[0], end: window[1], size: (window[1] - window[0]) / 30 };
  const bars = (x, name, color, opacity) => ({
    type: "histogram", x, name, xbins, histnorm: "probability", opacity,
    marker: { color }, hovertemplate: `${name}: %{y:.1%}<extra></extra>`,
  });
  const data = [
    desired({ x: [null], y: [null] }, look),
    bars(values[0], "without action", look.grey, 0.75),
    bars(values[1], "with your setting", look.accent, 0.7),
  ];
  return { data, layout };
}

function scatter(before, after, [k, l], sides, look) {
  const told = [before, after].map((each) => [column(each, k), column(each, l)]);
  const window = [0, 1].map((axis) => around(told.flatMap((each) => each[axis])));
  const layout = frame(look, pretty(before.outcomes[k]), pretty(before.outcomes[l]));
  layout.xaxis.range = window[0];
  layout.yaxis.range = window[1];
  const corners = clipped(window, sides);
  const ring = corners.length ? [...corners, corners[0]] : [];
  const cloud = ([x, y], name, color, symbol) => ({
    x, y, name, mode: "markers", marker: { color, size: 5.5, opacity: 0.62, symbol },
    hovertemplate: `${name}: %{x:.3g}, %{y:.3g}<extra></extra>`,
  });
  const data = [
    desired({ x: ring.map(([x]) => x), y: ring.map(([, y]) => y) }, look),
    cloud(told[0], "without action", look.grey, "circle"),
    cloud(told[1], "with your setting", look.accent, "circle"),
  ];
  return { data, layout };
}

function desired(where, look) {
  return {
    ...where, name: "desired", mode: "lines", fill: "toself", fillcolor: look.faint,
    line: { color: look.accent, width: 1, dash: "dot" }, hoverinfo: "skip",
  };
}

function column(told, k) {
  return told.draws.map((row) => row[k]).filter((value) => value !== null);
}

function around(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = 0.06 * (high - low || 1);
  return [low - room, high + room];
}
