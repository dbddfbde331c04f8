"use strict";
// Unpacks plotly and draws a page's figures in the page's colours: light, dark, and on paper light and narrow.
const figures = ((onDark) => {
  const config = { displaylogo: false, displayModeBar: "hover", responsive: true, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
  const PAPER_PX = [676, 215]; // of A4 without its margins; as high as in page.css, which counts only once all is drawn
  const LEADER_PX = 22;
  const narrow = matchMedia("(max-width:760px)"); // as in page.css; no room for a line's name beside its end
  const shown = new Map(); // element -> figure
  let onPaper = false;

  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  // Relative luminance and contrast as WCAG 2 defines them.
  function luminance(channels) {
    const [r, g, b] = channels.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(a, b) {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  }

  // Colours are chosen for white paper; on a dark one those of lines have another, all others take as much white as reading needs.
  function readable(colour) {
    if (!/^#[0-9a-f]{6}$/i.test(colour ?? "")) return colour;
    const ground = rgb(variable("paper"));
    if (luminance(ground) > 0.5) return colour;
    if (onDark[colour]) return onDark[colour];
    for (let share = 0; share <= 1; share += 0.1) {
      const mixed = rgb(colour).map((c) => Math.round(c + (255 - c) * share));
      if (contrast(mixed, ground) >= 4.5) return `#${mixed.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
    }
    return "#ffffff";
  }

  function recoloured(part) {
    for (const key of ["line", "marker", "font", "error_y"]) if (part[key]?.color) part[key] = { ...part[key], color: readable(part[key].color) };
    return part;
  }

  const fontPx = () => (onPaper ? 10 : 12.5);

  function layoutOf(figure) {
    const layout = structuredClone(figure.layout ?? {});
    const axis = { gridcolor: variable("line"), linecolor: variable("faint"), zeroline: false, automargin: true };
    for (const key of Object.keys(layout)) if (/^[xy]axis\d*$/.test(key)) Object.assign(layout[key], axis);
    const labels = narrow.matches && !onPaper ? [] : figure.labels ?? [];
    Object.assign(layout, {
      font: { family: getComputedStyle(document.body).fontFamily, size: fontPx(), color: variable("soft") },
      margin: { l: 56, r: 16, t: 12, b: 44, ...layout.margin }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("faint"), activecolor: variable("ink") },
      hoverlabel: { bgcolor: variable("paper"), bordercolor: variable("line"), font: { color: variable("ink") } },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, ...layout.legend }, showlegend: !labels.length,
      shapes: (layout.shapes ?? []).map(recoloured),
      annotations: (layout.annotations ?? []).map((note) => recoloured(note.bgcolor ? { ...note, bgcolor: variable("paper"), opacity: 0.9 } : note)),
    });
    delete layout.template;
    if (labels.length) {
      layout.margin.r = 14 + LEADER_PX + 7.2 * Math.max(...labels.map((label) => label.text.length));
      if (!onPaper) layout.margin.t = 34; // else the buttons would lie on the uppermost name
      layout.annotations.push(...labels.map((label) => recoloured({ // a thin line leads from the name to where its line ends
        text: label.text, font: { color: label.color, size: fontPx() }, xref: "paper", x: 1, yref: "y", y: label.end, ax: LEADER_PX, ayref: "y", ay: label.y,
        xanchor: "left", yanchor: "middle", showarrow: true, arrowhead: 0, arrowwidth: 1, arrowcolor: readable(label.color),
      })));
    }
    if (!(figure.data ?? []).length) layout.annotations.push({ text: "nothing to show", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 });
    if (onPaper) [layout.width, layout.height] = [PAPER_PX[0], layout.height ?? PAPER_PX[1]];
    return layout;
  }

  function draw(element, figure) {
    shown.set(element, figure);
    const traces = (figure.data ?? []).map((trace) => recoloured({ ...(figure.x ? { x: figure.x } : {}), hoverlabel: { namelength: -1 }, ...trace }));
    Plotly.react(element, traces, layoutOf(figure), config);
  }

  const again = () => { for (const [element, figure] of shown) draw(element, figure); };
  function print(begins) {
    onPaper = begins;
    document.documentElement.classList.toggle("on-paper", begins);
    again();
    if (!begins) for (const element of shown.keys()) Plotly.Plots.resize(element); // by itself it stays as it was on paper
  }

  async function start(own) {
    try {
      const script = document.createElement("script");
      script.textContent = await unpacked("plotly");
      document.head.append(script);
    } catch (error) {
      for (const element of document.querySelectorAll(".plot,.figure")) element.textContent = `This browser cannot unpack the figures (${error.name}): one of 2023 or newer can.`;
      throw error;
    }
    for (const element of document.querySelectorAll(".figure")) {
      const figure = JSON.parse(element.firstElementChild.textContent);
      element.replaceChildren();
      draw(element, figure);
    }
    await own?.();
    for (const media of [narrow, matchMedia("(prefers-color-scheme: dark)")]) media.addEventListener("change", again);
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    document.documentElement.dataset.drawn = "yes";
  }

  return { draw, start, unpacked };
})(ON_DARK);
