// A section of settings: its heading, a button that unfolds a form, and the rows of a list as a table.
import type { ComponentChildren } from "preact";
import type { Listed, Problem } from "../api";
import { Trouble } from "./controls";

export interface Col<T> {
  /** Empty for the column of buttons. */
  name: string;
  css?: string;
  cell: (row: T) => ComponentChildren;
}

export interface Adding {
  label: string;
  open: boolean;
  toggle: () => void;
}

interface Found<T> {
  items: T[] | undefined;
  problem: Problem | undefined;
  refresh: () => void;
}

/** What an address answers as a list. */
export const listOf = <T,>(found: { data: Listed<T> | undefined } & Omit<Found<T>, "items">): Found<T> => ({ items: found.data?.items, problem: found.problem, refresh: found.refresh });

interface Props<T> {
  id: string;
  title: string;
  note: string;
  add?: Adding;
  found: Found<T>;
  empty?: ComponentChildren;
  keyOf: (row: T) => string | number;
  columns: Col<T>[];
  children?: ComponentChildren;
  after?: ComponentChildren;
}

export function Listing<T>({ id, title, note, add, found, empty, keyOf, columns, children, after }: Props<T>) {
  const items = found.items ?? [];
  return (
    <section id={id}>
      <div class="h2">
        <h2>{title}</h2>
        <small>{note}</small>
        {add && (
          <div class="acts">
            <button type="button" class="btn sm" aria-expanded={add.open} onClick={add.toggle}>
              {add.label}
            </button>
          </div>
        )}
      </div>
      {children}
      {found.problem && <Trouble problem={found.problem} retry={found.refresh} />}
      {found.items && !items.length && !add?.open && empty}
      {items.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={title}>
          <table>
            <thead>
              <tr>
                {columns.map((each) => (
                  <th key={each.name} class={each.css}>
                    {each.name || <span class="vh">act</span>}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {items.map((row) => (
                <tr key={keyOf(row)}>
                  {columns.map((each) => (
                    <td key={each.name} class={each.css}>
                      {each.cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {after}
    </section>
  );
}

