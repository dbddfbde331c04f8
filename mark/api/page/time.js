// The service's own clock. On a testbed in a hurry it runs faster than the wall's, and ages, prices, plans and the words
// of decisions are of it; so everything on the page is told by it. Elsewhere the two are the same.

// The Unix time that the service's clock shows at a Unix time of the wall. Both agreed when the service began.
export function toldAt(view, unixS) {
  const began = view.at_unix_s - view.at_s / view.time_scale;
  return began + (unixS - began) * view.time_scale;
}

// A history or a forecast, whose steps are of the wall, by the service's clock.
export const told = (view, row, start) =>
  row && { ...row, [start]: toldAt(view, row[start]), step_s: row.step_s * view.time_scale };
