// The service's own clock, by which the page tells all times, because ages, prices, plans and decisions use it. On a
// testbed it may run faster than the wall clock; elsewhere the two are the same.

// Returns the service's time at a Unix time of the wall clock. Both clocks agreed when the service began.
export function toldAt(view, unixS) {
  const began = view.at_unix_s - view.at_s / view.time_scale;
  return began + (unixS - began) * view.time_scale;
}

// Converts a history or a forecast from the wall clock to the service's clock.
export const told = (view, row, start) =>
  row && { ...row, [start]: toldAt(view, row[start]), step_s: row.step_s * view.time_scale };
