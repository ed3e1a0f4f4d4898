// Numbers, times and names as people read them. What is not known is a dash.
export const UNKNOWN = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** A metric or a number of no special kind: four significant digits. */
export function number(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return size !== 0 && size < 0.001 ? value.toExponential(2) : String(+value.toPrecision(4));
}

export function percent(part) {
  if (!known(part)) return UNKNOWN;
  return part > 0 && part < 0.005 ? "< 1 %" : `${Math.round(part * 100)} %`;
}

/** Cores of a cap: two digits tell as much as anybody can use. */
export const cores = (value) => (known(value) ? `${+value.toPrecision(2)} cores` : UNKNOWN);

/** Requests a second. */
export const rate = (count) => (known(count) ? (count >= 10 ? count.toFixed(0) : String(+count.toFixed(1))) : UNKNOWN);

export function bytes(count) {
  if (!known(count)) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(count) / 10));
  return `${+(count / 1024 ** power).toPrecision(3)} ${units[power]}`;
}

/** Seconds as at most two units: 8.2 s, 3 min 5 s, 2 h 4 min. */
export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const total = Math.max(0, seconds);
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
export const jobName = (job) => job.spec?.name || job.id;
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

export const FINAL_STATES = ["completed", "missed", "failed", "cancelled"];
export const isOver = (job) => FINAL_STATES.includes(job.state);
export const isWaiting = (job) => job.state === "pending" || job.state === "suspended";
