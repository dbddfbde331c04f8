// Makes elements. Text stays text: nothing from outside is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

const filled = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
};

export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);
export const find = (selector, within = document) => within.querySelector(selector);

// Colour `place` of the page's palette, for swatches, lines and areas.
export const colour = (place) => `c${place % 8}`;
export const swatch = (style) => h("i", { class: `swatch ${style}` });
