// Every trial as a cell: tasks by rollouts, for one or several agents, live.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useResource } from "../api";
import { apart, duration, stored, store } from "../format";
import { useLive } from "../live";
import { isApart, nameOf, ORDER } from "../outcomes";
import { Bones, Empty, Find, Trouble } from "../parts/controls";
import { Sign as Mark } from "../parts/marks";
import { WindowBody } from "../parts/window";
import { part, put, query } from "../router";
import type { Counts, MatrixData, RunDetail, Sign } from "../types";
import { Rail } from "./rail";

const SORTS: [string, string][] = [["", "Most informative first"], ["task", "By name"], ["best", "Most passed first"], ["worst", "Fewest passed first"], ["slow", "Slowest first"]];
type Size = "cells" | "compact" | "tiny" | "counts";
const HEIGHT: Record<Size, number> = { cells: 27, compact: 19, tiny: 23, counts: 33 };

const PITCH: Record<Size, number> = { cells: 24, compact: 14, tiny: 9, counts: 9 };

/** Cells as large as there is room for; where there is none, and where a finger could not hit them, a count. */
function fitting(width: number, columns: { label: string }[], rollouts: number, wanted: boolean): Size {
  const phone = innerWidth <= 860;
  const longest = phone && columns.length > 1 ? 7 * Math.max(...columns.map((each) => each.label.length)) : 0;
  const needed = (pitch: number): number => columns.length * (Math.max(rollouts * pitch, longest) + 66) + (phone ? 90 : 180);
  if (phone) return needed(27) <= width ? "cells" : "counts";
  if (!wanted && needed(24) <= width) return "cells";
  return needed(14) <= width ? "compact" : needed(9) <= width ? "tiny" : "counts";
}

/** Known before the first paint, so that nothing is drawn in one size and then in another. */
function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, set] = useState(Math.min(1392, innerWidth - 48));
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = (): void => set(element.clientWidth);
    const watch = new ResizeObserver(measure);
    measure();
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}

interface Row {
  task: string;
  cells: Sign[][];
  counts: Counts[];
  passed: number;
  scored: number;
  apart: number;
  median: number | null;
}

function summed(row: MatrixData["rows"][number]): Row {
  const all = row.cells.flat();
  const sum = (name: keyof Counts): number => row.counts.reduce((total, each) => total + each[name], 0);
  const times = all.map((each) => each.t).filter((each): each is number => each !== null).sort((a, b) => a - b);
  return {
    ...row,
    passed: sum("passed"),
    scored: sum("scored"),
    apart: sum("errors"),
    median: times.length ? (times[Math.floor((times.length - 1) / 2)] ?? null) : null,
  };
}

/** Where rollouts disagree a reader learns most; then where something went wrong. */
function informative(row: Row): number {
  const rate = row.scored ? row.passed / row.scored : 0;
  return (row.apart ? 2 : 0) + (row.scored ? rate * (1 - rate) * 4 : 0);
}

function ordered(rows: Row[], sort: string): Row[] {
  const rate = (row: Row): number => (row.scored ? row.passed / row.scored : -1);
  const by: Record<string, (a: Row, b: Row) => number> = {
    task: (a, b) => a.task.localeCompare(b.task),
    best: (a, b) => rate(b) - rate(a),
    worst: (a, b) => rate(a) - rate(b),
    slow: (a, b) => (b.median ?? 0) - (a.median ?? 0),
  };
  return [...rows].sort(by[sort] ?? ((a, b) => informative(b) - informative(a) || a.task.localeCompare(b.task)));
}

export function MatrixTab({ run }: { run: RunDetail }) {
  const matrix = useResource<MatrixData>(`/api/runs/${part(run.id)}/matrix`);
  useLive((changes) => {
    if (!changes.length || changes.some((each) => each.run === run.id)) matrix.refresh();
  }, 700);
  if (!matrix.data) return matrix.problem ? <Trouble problem={matrix.problem} retry={matrix.refresh} /> : <Bones rows={10} />;
  const live = run.status === "running";
  const shown = <MatrixTable run={run} matrix={matrix.data} />;
  if (!live) return <div class="tabbody mxw">{shown}</div>;
  return (
    <div class="split">
      <div class="mxw">{shown}</div>
      <Rail run={run} />
    </div>
  );
}

function useFresh(matrix: MatrixData): Set<number> {
  const before = useRef<Map<number, string | null> | null>(null);
  const [fresh, set] = useState<Set<number>>(new Set());
  useEffect(() => {
    const now = new Map(matrix.rows.flatMap((row) => row.cells.flat().map((each) => [each.i, each.o] as const)));
    const ended = before.current ? [...now].filter(([index, outcome]) => outcome && !before.current?.get(index)).map(([index]) => index) : [];
    before.current = now;
    if (!ended.length) return;
    set(new Set(ended));
    const timer = setTimeout(() => set(new Set()), 2000);
    return () => clearTimeout(timer);
  }, [matrix]);
  return fresh;
}

function MatrixTable({ run, matrix }: { run: RunDetail; matrix: MatrixData }) {
  const find = query.value.get("task") ?? "";
  const sort = query.value.get("sort") ?? "";
  const [compact, setCompact] = useState(stored("cells") === "compact");
  const [held, hold] = useState<string[] | null>(null);
  const fresh = useFresh(matrix);
  const rows = useMemo(() => matrix.rows.map(summed), [matrix]);
  const order = useMemo(() => ordered(rows, sort), [rows, sort]);
  // The order stays while the pointer or the focus is in the table.
  const kept = held ? held.map((task) => rows.find((row) => row.task === task)).filter((row): row is Row => !!row) : order;
  const moved = held !== null && held.some((task, at) => order[at]?.task !== task);
  const shown = kept.filter((row) => row.task.toLowerCase().includes(find.toLowerCase()));
  const several = matrix.columns.length > 1;
  const most = Math.max(1, ...rows.flatMap((row) => row.cells.map((each) => each.length)));
  const rollouts = Array.from({ length: most }, (_, at) => at + 1);
  const columns = matrix.columns.length * 2 + (several ? 1 : 2);
  const [box, width] = useWidth();
  const size = fitting(width, matrix.columns, most, compact);
  const names = apart(matrix.columns.map((each) => each.label));
  return (
    <>
      <div ref={box} />
      <div class="toolbar">
        <Find label="Filter tasks" value={find} set={(task) => put({ task })} />
        <select aria-label="Order of the tasks" value={sort} onChange={(event) => { hold(null); put({ sort: event.currentTarget.value }); }}>
          {SORTS.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
        {moved && (
          <button type="button" class="chip" aria-pressed="true" onClick={() => hold(null)}>
            Order has changed, sort again
          </button>
        )}
        <div class="end phone-off">
          <div class="seg" role="group" aria-label="Cell size">
            {[false, true].map((each) => (
              <button
                type="button"
                key={String(each)}
                aria-pressed={compact === each}
                onClick={() => {
                  setCompact(each);
                  store("cells", each ? "compact" : "");
                }}
              >
                {each ? "Compact" : "Comfortable"}
              </button>
            ))}
          </div>
        </div>
      </div>
      <Legend matrix={matrix} />
      {shown.length === 0 ? (
        <Empty title="No task matches this filter." />
      ) : (
        <div class={size === "counts" && several ? "scroll" : "clip"}>
        <table
          style={{ "--own": `${matrix.columns.length * (most * PITCH[size] + 96) + 340}px` }}
          class={`mx ${size === "counts" && several ? "" : "stick"} ${size} ${several ? "many" : ""}`}
          onMouseEnter={() => run.status === "running" && hold(order.map((row) => row.task))}
          onMouseLeave={() => hold(null)}
          onKeyDown={arrows}
        >
          <thead>
            <tr>
              <th>task</th>
              {matrix.columns.map((column, at) => (
                <>
                  <th title={column.label}>{several ? names[at] : size === "cells" && most <= 30 ? <span class="rn">{rollouts.map((each) => <span key={each}>{each}</span>)}</span> : "rollouts"}</th>
                  {size !== "counts" && <th class="n">passed</th>}
                </>
              ))}
              {!several && <th class="n phone-off">median time</th>}
            </tr>
          </thead>
          <WindowBody rows={shown} height={HEIGHT[size]} columns={columns} render={(row, at) => <MatrixRow key={row.task} row={row} run={run} first={at === 0} several={several} fresh={fresh} size={size} />} />
        </table>
        </div>
      )}
      <p class="cap">Most informative: tasks with errors come first, then tasks whose rollouts disagree. A field leads to its trial; arrow keys move between fields.</p>
    </>
  );
}

function MatrixRow({ row, run, first, several, fresh, size }: { row: Row; run: RunDetail; first: boolean; several: boolean; fresh: Set<number>; size: Size }) {
  return (
    <tr>
      <th scope="row">
        <a class="trunc" href={`/runs/${part(run.id)}/trials?task=${part(row.task)}`} title={row.task}>
          {row.task}
        </a>
      </th>
      {row.cells.map((cell, column) => {
        const { scored, passed } = row.counts[column] ?? { scored: 0, passed: 0 };
        if (size === "counts") {
          return (
            <td class="mc" key={column}>
              {cell.length > 0 && (
                <a class={`ct ${cell.some((each) => isApart(each.o)) ? "ap" : ""}`} href={`/runs/${part(run.id)}/trials?task=${part(row.task)}`} style={{ "--k": `${scored ? Math.round((60 * passed) / scored) : 0}%` }} title={`${row.task}: ${passed} of ${scored} passed, ${cell.length} planned`}>
                  {scored ? `${passed}/${scored}` : "–"}
                </a>
              )}
            </td>
          );
        }
        return (
          <>
            <td class="cs">
              {cell.map((each, at) => (
                <Mark
                  key={each.i}
                  outcome={each.o}
                  state={each.s}
                  reward={each.w}
                  fresh={fresh.has(each.i)}
                  href={`/trials/${part(run.id)}/${each.i}`}
                  title={`${row.task}, rollout ${each.r + 1}: ${nameOf(each.o, each.s)}${each.x ? ", suspect" : ""}${each.t !== null ? `, ${duration(each.t)}` : ""}`}
                  tab={first && column === 0 && at === 0 ? 0 : -1}
                />
              ))}
            </td>
            <td class="n nwk">{scored ? `${passed} of ${scored}` : <span class="dim">–</span>}</td>
          </>
        );
      })}
      {!several && <td class="n phone-off">{duration(row.median)}</td>}
    </tr>
  );
}

/** Arrow keys move between cells; the table is one stop of the tab key. */
function arrows(event: KeyboardEvent): void {
  const cell = event.target as HTMLElement;
  if (!cell.matches("a.c")) return;
  const row = cell.closest("tr") as HTMLTableRowElement;
  const mine = [...row.querySelectorAll<HTMLElement>("a.c")];
  const at = mine.indexOf(cell);
  const beside = (other: Element | null): HTMLElement | undefined => {
    const cells = [...(other?.querySelectorAll<HTMLElement>("a.c") ?? [])];
    return cells[Math.min(at, cells.length - 1)];
  };
  const next: Record<string, () => HTMLElement | undefined> = {
    ArrowRight: () => mine[at + 1],
    ArrowLeft: () => mine[at - 1],
    ArrowDown: () => beside(row.nextElementSibling),
    ArrowUp: () => beside(row.previousElementSibling),
    Home: () => mine[0],
    End: () => mine[mine.length - 1],
  };
  const target = next[event.key]?.();
  if (!(event.key in next)) return;
  event.preventDefault();
  if (!target) return;
  cell.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}

function Legend({ matrix }: { matrix: MatrixData }) {
  const found = new Set(matrix.rows.flatMap((row) => row.cells.flat().map((each) => each.o ?? each.s)));
  const known = ORDER.filter((each) => found.has(each));
  const states = ["running", "retry", "pending"].filter((each) => found.has(each) || (each === "running" && found.has("leased")));
  return (
    <ul class="legend">
      {known.map((each) => (
        <li key={each}>
          <Mark outcome={each} />
          {nameOf(each)}
          {isApart(each) && <small>not in the score</small>}
        </li>
      ))}
      {states.map((each) => (
        <li key={each}>
          <Mark outcome={null} state={each} />
          {nameOf(null, each)}
        </li>
      ))}
    </ul>
  );
}
