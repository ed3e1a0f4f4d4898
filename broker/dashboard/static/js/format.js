// Numbers, times and names as people read them. What is not known is a dash.
export const UNKNOWN = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

// From a million millions on, and below a thousandth, a power of ten says more than digits.
const HUGE = 1e12;
const TINY = 1e-3;
// A double has no more digits than so many that tell it from another.
const MOST_DIGITS = 17;

/** A metric or a number of no special kind, by default with four significant digits: core/figures.py has the same rule. */
export function number(value, digits = 4) {
  if (!known(value)) return UNKNOWN;
  // What is nearly 1, as an accuracy, is never told as 1.
  const isNearly = Math.abs(+value.toPrecision(digits)) === 1 && Math.abs(value) < 1 && digits < MOST_DIGITS;
  return isNearly ? number(value, digits + 1) : inDigits(value, digits);
}

function inDigits(value, digits) {
  const rounded = value.toPrecision(digits);
  const size = Math.abs(+rounded);
  if (size !== 0 && (size < TINY || size >= HUGE)) return value.toExponential(digits - 1).replace(/\.?0+e/, "e");
  if (size < 1000) return String(+rounded);
  return value.toLocaleString("en", { maximumFractionDigits: Math.max(0, digits - 1 - Math.floor(Math.log10(size))) });
}

/** Two numbers with as few digits as show which one is larger. */
export function compared(value, other) {
  let digits = 4;
  while (value !== other && digits < MOST_DIGITS && number(value, digits) === number(other, digits)) digits += 1;
  return [number(value, digits), number(other, digits)];
}

/** A part as whole percent; what is neither none nor all is never told as such. */
export function percent(part) {
  if (!known(part)) return UNKNOWN;
  const whole = Math.round(part * 100);
  if (part > 0 && whole === 0) return "< 1 %";
  return part < 1 && whole === 100 ? "> 99 %" : `${whole} %`;
}

/** Cores of a cap: two digits tell as much as anybody can use. */
export const cores = (value) => (known(value) ? `${+value.toPrecision(2)} cores` : UNKNOWN);

/** Requests a second. */
export const rate = (count) => (known(count) ? (count >= 10 ? count.toFixed(0) : String(+count.toFixed(1))) : UNKNOWN);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A number of bytes in three digits. */
export function bytes(count) {
  if (!known(count)) return UNKNOWN;
  let [left, unit] = [count, 0];
  for (; left >= 999.5 && unit < UNITS.length - 1; unit += 1) left /= 1024;
  return `${inDigits(left, 3)} ${UNITS[unit]}`;
}

const TEN_YEARS = 3650 * 86400; // what is predicted to take longer is not known any better

/** Seconds as at most two units: 8.2 s, 3 min 5 s, 2 h 4 min. */
export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const total = Math.max(0, seconds);
  if (total > TEN_YEARS) return "> 10 years";
  if (total < 10) return `${+total.toFixed(1)} s`;
  const whole = Math.round(total);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(whole, 60, "min", 1, "s");
  return whole < 86400 ? two(whole, 3600, "h", 60, "min") : two(whole, 86400, "d", 3600, "h");
}

function two(seconds, large, largeUnit, small, smallUnit) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${largeUnit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
}

export const milliseconds = (seconds) => (known(seconds) ? `${+(seconds * 1000).toPrecision(3)} ms` : UNKNOWN);

/** Core-seconds as core-hours once they are many. */
export const coreTime = (seconds) =>
  !known(seconds) ? UNKNOWN : seconds < 3600 ? duration(seconds) : `${+(seconds / 3600).toPrecision(3)} h`;

/** The clock's time of an ISO date, with the day unless it is today. */
export function clock(iso) {
  const at = iso ? new Date(iso) : null;
  if (!at || Number.isNaN(at.getTime())) return UNKNOWN;
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

export const secondsSince = (iso) => (Date.now() - new Date(iso).getTime()) / 1000;
/** Where something answers over HTTP: addresses on other machines come with their scheme, those on this one without. */
export const url = (address) => (address.includes("://") ? address : `http://${address}`);
export const jobName = (job) => job.spec?.name || job.id;
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const FINAL_STATES = ["completed", "missed", "failed", "cancelled"];
export const isOver = (job) => FINAL_STATES.includes(job.state);
export const isIdle = (job) => job.state === "pending" || job.state === "suspended";
