// Plotly, loaded once and after everything else.

const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };

let loading = null;

export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "static/plotly.min.js";
    script.addEventListener("load", () => resolve(globalThis.Plotly));
    script.addEventListener("error", () => {
      loading = null;
      script.remove();
      reject(new Error("The pictures could not be loaded; everything else works. Install forestall[serve] on the server."));
    });
    document.head.append(script);
  });
  return loading;
}

export async function draw(place, { data, layout }) {
  const Plotly = await plotly();
  await Plotly.react(place, data, { ...layout, showlegend: false }, CONFIG);
}

// Move the last trace, the setting, without drawing the rest anew.
export async function moveLast(place, { x, y }) {
  if (!place.data) return;
  const Plotly = await plotly();
  await Plotly.restyle(place, { x: [x], y: [y] }, [place.data.length - 1]);
}

export async function picture({ data, layout }, title, lines) {
  const Plotly = await plotly();
  const head = { text: title, subtitle: { text: lines, font: { size: 13 } }, x: 0.02, xanchor: "left", font: { size: 18 } };
  const whole = { ...layout, title: head, margin: { ...layout.margin, t: 84, b: 96 }, width: 1000, height: 640 };
  return Plotly.toImage({ data, layout: whole }, { format: "png", width: 1000, height: 640, scale: 2 });
}

export function download(name, url) {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}
