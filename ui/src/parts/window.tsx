// A window on a long table: rows are fetched by page as they come into view, about sixty are in the document.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { asProblem, get, type Listed, type Problem } from "../api";

export interface Windowed<T> {
  rows: T[];
  total: number;
  matched: number;
  problem: Problem | undefined;
  loading: boolean;
  more: () => void;
  refresh: () => void;
}

/** The rows of a list so far; `more` fetches the next page, `refresh` those again that are here. */
export function useList<T>(address: string, size = 200): Windowed<T> {
  const [state, set] = useState<{ rows: T[]; next: string | null; total: number; matched: number; problem: Problem | undefined; loading: boolean }>({
    rows: [], next: null, total: 0, matched: 0, problem: undefined, loading: true,
  });
  const now = useRef(state);
  now.current = state;
  const asked = useRef(0);
  const load = async (cursor: string | null, keep: T[], want: number): Promise<void> => {
    const mine = ++asked.current;
    let rows = keep;
    let next: string | null = cursor;
    try {
      do {
        const link = address + (address.includes("?") ? "&" : "?") + `limit=${size}` + (next ? `&cursor=${encodeURIComponent(next)}` : "");
        const page = await get<Listed<T>>(link);
        if (asked.current !== mine) return;
        rows = [...rows, ...page.items];
        next = page.next;
        const total = page.total ?? rows.length;
        const told = { rows, next, total, matched: page.matched ?? total, problem: undefined, loading: false };
        if (rows.length >= want || !next) set(told);
      } while (rows.length < want && next);
    } catch (error) {
      if (asked.current === mine) set({ ...now.current, problem: asProblem(error), loading: false });
    }
  };
  useEffect(() => {
    set({ ...now.current, loading: true, problem: undefined });
    void load(null, [], 1);
    return () => void (asked.current += 1);
  }, [address]);
  return {
    ...state,
    more: () => {
      if (!now.current.next || now.current.loading) return;
      set({ ...now.current, loading: true });
      void load(now.current.next, now.current.rows, now.current.rows.length + 1);
    },
    refresh: () => void load(null, [], Math.min(now.current.rows.length, 2000)),
  };
}

const narrow = matchMedia("(max-width:860px)");

/** Whether the page is as narrow as a phone. */
export function useNarrow(): boolean {
  const [now, set] = useState(narrow.matches);
  useEffect(() => {
    const turn = (): void => set(narrow.matches);
    narrow.addEventListener("change", turn);
    return () => narrow.removeEventListener("change", turn);
  }, []);
  return now;
}

interface WindowProps<T> {
  rows: T[];
  height: number;
  columns: number;
  render: (row: T, at: number) => ComponentChildren;
  end?: (() => void) | undefined;
}

const EXTRA = 15;

/** The rows of a table body that can be seen, and room for those that cannot. */
export function WindowBody<T>({ rows, height, columns, render, end }: WindowProps<T>) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [range, set] = useState({ from: 0, to: 60 });
  // A row that was drawn is the same node again, so that scrolling costs only the rows that come into view.
  const drawn = useMemo(() => new Map<number, ComponentChildren>(), [rows, render]);
  const draw = (at: number): ComponentChildren => {
    const found = drawn.get(at) ?? render(rows[at] as T, at);
    drawn.set(at, found);
    return found;
  };
  useLayoutEffect(() => {
    let frame = 0;
    const measure = (): void => {
      frame = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const from = Math.max(0, Math.floor(-top / height) - EXTRA);
      const to = Math.min(rows.length, Math.ceil((innerHeight - top) / height) + EXTRA);
      set((before) => (before.from === from && before.to === to ? before : { from, to: Math.max(from, to) }));
      if (to >= rows.length - EXTRA) end?.();
    };
    const later = (): void => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
      cancelAnimationFrame(frame);
    };
  }, [rows.length, height, end]);
  const to = Math.min(range.to, rows.length);
  const from = Math.min(range.from, to);
  return (
    <tbody ref={body}>
      <Pad rows={from} height={height} columns={columns} />
      {Array.from({ length: to - from }, (_, at) => draw(from + at))}
      <Pad rows={rows.length - to} height={height} columns={columns} />
    </tbody>
  );
}

function Pad({ rows, height, columns }: { rows: number; height: number; columns: number }) {
  if (rows <= 0) return null;
  return (
    <tr class="winpad" aria-hidden="true">
      <td colSpan={columns} style={{ "--h": `${rows * height}px` }} />
    </tr>
  );
}

/** A heading that sorts: the first press by the better end, the second the other way round. */
export function SortHead({ name, sort, set, css = "", children }: { name: string; sort: string; set: (sort: string) => void; css?: string; children: ComponentChildren }) {
  const on = sort === name || sort === `-${name}`;
  const down = sort === `-${name}`;
  return (
    <th scope="col" class={css} aria-sort={on ? (down ? "descending" : "ascending") : undefined}>
      <button type="button" class="sort" onClick={() => set(down ? name : `-${name}`)}>
        {children} {on && <i class={`g g-${down ? "dn" : "up"}`} aria-hidden="true" />}
      </button>
    </th>
  );
}
