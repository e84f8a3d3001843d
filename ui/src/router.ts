// The address is the state: path, query and fragment as signals, and what changes them.
import { batch, computed, signal } from "@preact/signals";

const path = signal(location.pathname);
const search = signal(location.search);
export const fragment = signal(location.hash.slice(1));
export const query = computed(() => new URLSearchParams(search.value));
export const here = computed(() => path.value);

const places = new Map<string, number>();
let place = (history.state as { place?: string } | null)?.place ?? "";

function read(): void {
  batch(() => {
    path.value = location.pathname;
    search.value = location.search;
    fragment.value = location.hash.slice(1);
  });
}

function enter(kind: "push" | "replace", address: string): void {
  if (kind === "push") {
    places.set(place, scrollY);
    place = String(Date.now());
  }
  history[kind === "push" ? "pushState" : "replaceState"]({ place }, "", address);
  read();
}

/** Go to an address of this page; `replace` leaves no entry behind. */
export function go(address: string, replace = false): void {
  const before = path.value;
  enter(replace ? "replace" : "push", address);
  if (path.value !== before && !fragment.value) scrollTo(0, 0);
}

/** Change some parameters of the address; an empty value takes one away. Typing replaces the entry. */
export function put(changes: Record<string, string | null | undefined>, replace = true): void {
  const next = new URLSearchParams(search.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString().replace(/%3A/g, ":").replace(/%2C/g, ",");
  enter(replace ? "replace" : "push", path.value + (text ? `?${text}` : "") + location.hash);
}

/** Name a place on this page, such as a line. */
export function mark(name: string): void {
  enter("replace", path.value + search.value + (name ? `#${name}` : ""));
}

export function listen(): void {
  history.scrollRestoration = "manual";
  addEventListener("popstate", (event) => {
    places.set(place, scrollY);
    place = (event.state as { place?: string } | null)?.place ?? "";
    read();
    const at = places.get(place);
    if (at !== undefined) restore(at);
  });
  addEventListener("hashchange", read);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest?.("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (/^\/(api|static|docs|metrics|openapi)/.test(link.pathname)) return;
    if (link.pathname === location.pathname && link.search === location.search && link.hash) return;
    event.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}

/** What a page shows may come later than the page: try until it is tall enough, for half a second. */
function restore(at: number): void {
  const until = performance.now() + 500;
  const step = (): void => {
    scrollTo(0, at);
    if (Math.abs(scrollY - at) > 2 && performance.now() < until) requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

/** The values of `/runs/:run/:tab?` in a path, or nothing when it is another path. */
export function match(pattern: string, address: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter(Boolean);
  const given = address.split("/").filter(Boolean);
  if (given.length > wanted.length) return null;
  const found: Record<string, string> = {};
  for (const [at, part] of wanted.entries()) {
    const value = given[at];
    if (part.startsWith(":")) {
      if (value === undefined && !part.endsWith("?")) return null;
      if (value !== undefined) found[part.replace(/[:?]/g, "")] = decode(value);
    } else if (part !== value) return null;
  }
  return found;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A part of an address. */
export const part = encodeURIComponent;
