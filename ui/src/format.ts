// Numbers as people read them: three digits, the unit that fits, a dash where there is no value.
export const NONE = "–";
const THIN = "\u202f";
export type Maybe = number | null | undefined;

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const known = (value: Maybe): value is number => value !== null && value !== undefined && Number.isFinite(value);

export const count = (value: Maybe): string => (known(value) ? whole.format(value) : NONE);

export function many(value: number, one: string, more = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}

export function percent(value: Maybe, digits = 1): string {
  if (!known(value)) return NONE;
  if (value > 0.9995 && value < 1) return `> 99.9${THIN}%`;
  return `${(value * 100).toFixed(value === 0 || value === 1 ? 0 : digits)}${THIN}%`;
}

export function interval(low: Maybe, high: Maybe): string {
  if (!known(low) || !known(high)) return "";
  return `${(low * 100).toFixed(1)}–${(high * 100).toFixed(1)}${THIN}%`;
}

export function duration(seconds: Maybe): string {
  if (!known(seconds)) return NONE;
  const at = Math.abs(seconds);
  if (at === 0) return `0${THIN}s`;
  if (at < 1e-3) return `${brief(seconds * 1e6)}${THIN}µs`;
  if (at < 1) return `${brief(seconds * 1e3)}${THIN}ms`;
  if (at < 59.95) return `${at < 10 ? seconds.toFixed(1) : seconds.toFixed(0)}${THIN}s`;
  const total = Math.round(at);
  if (total < 3600) return `${Math.floor(total / 60)}m${THIN}${two(total % 60)}s`;
  if (total < 172_800) return `${Math.floor(total / 3600)}h${THIN}${two(Math.floor(total / 60) % 60)}m`;
  return `${Math.round(total / 86_400)}${THIN}days`;
}

/** About how long: minutes, not seconds. */
export function about(seconds: Maybe): string {
  if (!known(seconds)) return NONE;
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))}${THIN}s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}${THIN}min`;
  return `${Math.floor(seconds / 3600)}${THIN}h ${Math.round((seconds % 3600) / 60)}`;
}

/** Below a dollar three digits, as in the reports; whole cents, such as a budget, stay cents. */
export function dollars(value: Maybe): string {
  if (!known(value)) return NONE;
  const cents = Math.abs(value * 100 - Math.round(value * 100)) < 1e-9;
  if (Math.abs(value) < 1 && !cents) return `$${Number(value.toPrecision(3)).toLocaleString("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 })}`;
  return `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

export function tokens(value: Maybe): string {
  if (!known(value)) return NONE;
  if (value >= 1e6) return `${short(value / 1e6)}${THIN}M`;
  if (value >= 1e4) return `${short(value / 1e3)}${THIN}k`;
  return count(value);
}

export function bytes(value: Maybe): string {
  if (!known(value)) return NONE;
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]] as const) {
    if (value >= size) return `${short(value / size)}${THIN}${unit}`;
  }
  return `${value}${THIN}B`;
}

export function short(value: number): string {
  const at = Math.abs(value);
  return at >= 100 ? value.toFixed(0) : at >= 10 ? value.toFixed(1) : value.toFixed(2);
}

const brief = (value: number): string => value.toFixed(Math.abs(value) < 10 ? 1 : 0);

/** A number with three digits; the minus is a real one. */
export function plain(value: Maybe): string {
  if (!known(value)) return NONE;
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return whole.format(value);
  return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 6 }).replace("-", "−");
}

export const reward = (value: Maybe): string => (known(value) ? (Number.isInteger(value) ? String(value) : value.toFixed(2)) : NONE);

const two = (value: number): string => String(value).padStart(2, "0");

export const preferUtc = (): boolean => stored("times") === "utc";

export function stored(name: string): string {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

export function store(name: string, value: string): void {
  try {
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch {
    // Kept for this visit only.
  }
}

/** A moment, as seconds or as a text of a time. */
export function moment(value: number | string | null | undefined): Date | null {
  if (value === null || value === undefined || value === "") return null;
  const at = new Date(typeof value === "number" ? value * 1000 : value);
  return Number.isNaN(at.getTime()) ? null : at;
}

export function clock(value: number | string | null | undefined): string {
  const at = moment(value);
  if (!at) return NONE;
  const zone = preferUtc() ? { timeZone: "UTC" } : {};
  return at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...zone });
}

/** “today 16:10”, “yesterday 02:00”, “tomorrow 02:00”, “Nov 4”, “Nov 4, 2025”. */
export function when(value: number | string | null | undefined): string {
  const at = moment(value);
  if (!at) return NONE;
  const zone = preferUtc() ? { timeZone: "UTC" } : {};
  const day = (each: Date): string => each.toLocaleDateString("en-CA", zone);
  const now = new Date();
  if (day(at) === day(now)) return `today ${clock(value)}`;
  if (day(at) === day(new Date(now.getTime() - 86_400_000))) return `yesterday ${clock(value)}`;
  if (day(at) === day(new Date(now.getTime() + 86_400_000))) return `tomorrow ${clock(value)}`;
  const year = at.getFullYear() === now.getFullYear() ? {} : { year: "numeric" as const };
  return at.toLocaleDateString("en-US", { month: "short", day: "numeric", ...year, ...zone });
}

export function exact(value: number | string | null | undefined): string {
  const at = moment(value);
  return at ? at.toISOString().replace("T", " ").slice(0, 19) + " UTC" : "";
}

export const words = (name: string | null | undefined): string => (name ?? "").replaceAll("_", " ");

/** Names without what they all begin with, up to a separator: “terminal · a/x” and “terminal · a/y” are “x” and “y”. */
export function apart(names: string[]): string[] {
  const [first = "", ...others] = names;
  let shared = 0;
  for (const { index, 0: mark } of first.matchAll(/ · |\//g)) {
    const end = index + mark.length;
    if (others.length && others.every((each) => each.startsWith(first.slice(0, end)))) shared = end;
  }
  return names.map((each) => each.slice(shared));
}

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** Text with numbers kept on one line with their units, agents with their models, and options whole. */
export const prose = (text: string): string => text.replace(/ · (?=\S)/g, "\u00a0· ").replace(/(\d) (?=(?:[nµm]?s|min|h|pp|[KMG]?i?B)\b|%|–)/g, "$1\u00a0").replace(/– /g, "–\u2060\u00a0").replace(/(\d)–(?=\d)/g, "$1\u2060–\u2060").replace(/(^|[\s(])-(?=\d)/g, "$1−").replace(/--[a-z][a-z-]*/g, (option) => option.replaceAll("-", "-\u2060"));
