// Requests: answers are kept with their ETag, so that asking again costs little; a refusal is a Problem.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly errors: { where: string; message: string }[] = [],
  ) {
    super(message);
  }
}

export interface Answer<T> {
  data: T | undefined;
  problem: Problem | undefined;
  loading: boolean;
}

export interface Listed<T> {
  items: T[];
  next: string | null;
  total?: number;
  matched?: number;
}

export const mustSignIn = signal(false);

interface Kept {
  etag: string;
  data: unknown;
}

const MOST_KEPT = 200;
const kept = new Map<string, Kept>();

async function refusal(response: Response): Promise<Problem> {
  const text = await response.text();
  try {
    const said = JSON.parse(text) as Record<string, unknown>;
    const detail = String(said.detail ?? said.title ?? response.statusText);
    const errors = Array.isArray(said.errors) ? (said.errors as { where: string; message: string }[]) : [];
    return new Problem(response.status, String(said.code ?? ""), detail, errors);
  } catch {
    return new Problem(response.status, "", text.slice(0, 300) || `The server answered ${response.status}.`);
  }
}

async function ask(address: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The server does not answer. This page tries again by itself.");
  }
}

const expected = new Map<string, Promise<unknown>>();

/** Ask for something now that will be wanted in a moment; whoever asks first gets the answer. */
export function expectAnswer(address: string): void {
  if (kept.has(address) || expected.has(address)) return;
  const answer = get(address);
  answer.catch(() => undefined);
  expected.set(address, answer);
  setTimeout(() => expected.delete(address), 5000);
}

export async function get<T>(address: string, signal?: AbortSignal): Promise<T> {
  const soon = expected.get(address);
  if (soon) {
    expected.delete(address);
    return soon as Promise<T>;
  }
  const before = kept.get(address);
  const headers: Record<string, string> = before ? { "If-None-Match": before.etag } : {};
  const response = await ask(address, { headers, signal, cache: "no-store" });
  if (response.status === 304 && before) return before.data as T;
  if (response.status === 401) mustSignIn.value = true;
  if (!response.ok) throw await refusal(response);
  const json = response.headers.get("content-type")?.includes("json");
  const data = (json ? await response.json() : await response.text()) as T;
  const etag = response.headers.get("etag");
  if (etag) {
    kept.delete(address);
    kept.set(address, { etag, data });
    if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value as string);
  }
  return data;
}

export async function send<T>(method: string, address: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { "X-Proctor-Request": "1" };
  if (method === "POST" || method === "DELETE") headers["Idempotency-Key"] = randomId();
  const options: RequestInit = { method, headers };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await ask(address, options);
  if (response.status === 401) mustSignIn.value = true;
  if (!response.ok) throw await refusal(response);
  if (response.status === 204) return undefined as T;
  const json = response.headers.get("content-type")?.includes("json");
  return (json ? await response.json() : await response.text()) as T;
}

/** A random name; `crypto.randomUUID` is missing where a page comes over plain HTTP from another machine. */
export function randomId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
}

export function asProblem(error: unknown): Problem {
  return error instanceof Problem ? error : new Problem(0, "page", (error as Error).message);
}

export interface Resource<T> extends Answer<T> {
  refresh: () => void;
  /** Put in what is known already, such as the answer to a change. */
  set: (data: T) => void;
}

/** What an address answers, as it changes; an empty address asks nothing. Old data stays while new data comes. */
export function useResource<T>(address: string): Resource<T> {
  const state = useMemo<Signal<Answer<T>>>(() => signal({ data: undefined, problem: undefined, loading: !!address }), []);
  const control = useMemo(() => new Loader<T>(state), []);
  useEffect(() => {
    control.load(address);
    return () => control.stop();
  }, [address]);
  const now = state.value;
  return { ...now, refresh: () => control.again(), set: (data) => control.set(data) };
}

class Loader<T> {
  private address = "";
  private abort: AbortController | undefined;
  private waiting = false;
  private timer = 0;

  constructor(private readonly state: Signal<Answer<T>>) {}

  load(address: string): void {
    this.stop();
    const same = this.address.split("?")[0] === address.split("?")[0];
    this.address = address;
    const known = kept.get(address)?.data as T | undefined;
    const data = known ?? (same ? this.state.peek().data : undefined);
    this.state.value = { data, problem: undefined, loading: !!address };
    if (address) void this.fetch();
  }

  /** Ask again; a request under way is followed by one more, never by a heap of them. */
  again(): void {
    if (!this.address) return;
    if (this.abort) this.waiting = true;
    else void this.fetch();
  }

  set(data: T): void {
    this.state.value = { data, problem: undefined, loading: false };
  }

  stop(): void {
    this.abort?.abort();
    this.abort = undefined;
    this.waiting = false;
    clearTimeout(this.timer);
  }

  private async fetch(): Promise<void> {
    const abort = (this.abort = new AbortController());
    try {
      const data = await get<T>(this.address, abort.signal);
      if (this.abort !== abort) return;
      const before = this.state.peek();
      if (before.data !== data || before.loading || before.problem) this.state.value = { data, problem: undefined, loading: false };
    } catch (error) {
      if (this.abort !== abort || (error as Error).name === "AbortError") return;
      const problem = asProblem(error);
      this.state.value = { data: this.state.peek().data, problem, loading: false };
      if (!problem.status) this.timer = window.setTimeout(() => this.again(), 4000);
    }
    this.abort = undefined;
    if (this.waiting) {
      this.waiting = false;
      void this.fetch();
    }
  }
}
