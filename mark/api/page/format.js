// Formats numbers; mark/studies/report/words.py has the same rules for terminals.

export const NONE = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const grouped = (value, digits) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

// Dollars to the cent, below ten cents to two significant digits.
export function usd(amount) {
  if (!known(amount)) return NONE;
  const size = Math.abs(amount);
  const digits = size > 0 && size < 0.1 ? 1 - Math.floor(Math.log10(size)) : size < 1e5 ? 2 : 0;
  return `${amount < 0 ? "−" : ""}$${grouped(size, digits)}`;
}

export function signedUsd(amount) {
  return amount > 0 ? `+${usd(amount)}` : usd(amount);
}

// A share as percent; rounded down near 100, so that 99.999 % never reads as 100 %.
export function percent(share, digits = 1) {
  if (!known(share)) return NONE;
  let value = share * 100;
  if (value < 100 && Number(value.toFixed(digits)) === 100) value = Math.floor(value * 10 ** digits) / 10 ** digits;
  return `${value.toFixed(digits).replace("-", "−")} %`;
}

export function rate(rps) {
  if (!known(rps)) return NONE;
  return rps >= 100 || rps === 0 ? grouped(rps, 0) : String(Number(rps.toPrecision(3)));
}

// A given number, such as RT_max, with six significant digits at most.
export const exact = (value) => String(Number(value.toPrecision(6)));

export function count(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} billion`;
  return n >= 1e6 ? `${(n / 1e6).toFixed(1)} million` : grouped(n, 0);
}

// The largest unit that reads naturally: 45 s, 10 min, 8.2 h, 7 days.
export function duration(seconds) {
  for (const [unit, name, least] of [[86400, "days", 2], [3600, "h", 1], [60, "min", 1]]) {
    if (seconds >= least * unit) return `${Number((seconds / unit).toPrecision(3))} ${name}`;
  }
  return `${Math.round(seconds)} s`;
}

// The part of an error budget that is left, or how many times it was spent: [number, word].
export function budget(left) {
  if (!known(left)) return [NONE, ""];
  return left < 0 ? [`${grouped(1 - left, 2)} times`, "spent"] : [percent(left, 0), "left"];
}

export function clock(unixS, seconds = false) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(unixS * 1e3).toLocaleTimeString("en-GB", seconds ? { ...options, second: "2-digit" } : options);
}

export const plural = (n, one) => `${grouped(n, 0)} ${one}${n === 1 ? "" : "s"}`;
