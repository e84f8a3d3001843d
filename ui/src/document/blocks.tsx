// The parts of a document: cells, tables, charts, facts, matrices, entries and folds.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { prose } from "../format";
import { Command } from "../parts/controls";
import { Badge, Glyph } from "../parts/marks";
import { Said } from "../parts/terminal";
import type { Block, Cell, CellData, Chart, Column, Entry, Facts, Matrix, SignData, Table } from "./types";

const MARKS: Record<string, string> = { good: "check", warn: "bang", bad: "cross" };
const LOOKS: Record<string, string> = { pass: "p", part: "h", fail: "f", own: "o", error: "x", none: "w" };
const MANY_SIGNS = 20;

const asCell = (cell: Cell): CellData => (typeof cell === "string" ? { text: cell } : cell);

/** Addresses of the page and of others; a file beside a report has no address here. */
const leads = (href: string | undefined): href is string => !!href && /^(\/|#|https?:)/.test(href);

const RUN = /^(?:\S+ )?(\d{8}T\d{6}-[0-9a-f]{6})$/;
const LOGS = /^proctor logs (\S+) (\d+)$/;

/** A line of blocks of different height, as the terminal has it. */
const SPARKS = /^[\u2581-\u2588 ·]+$/;

export function CellText({ cell }: { cell: Cell }) {
  const { text, tone, badge, href, note, code, strong, share } = asCell(cell);
  let shown: ComponentChildren = code ? <code class={SPARKS.test(text) ? "sparks" : undefined}>{prose(text)}</code> : <Said text={prose(text)} />;
  const named = RUN.exec(text)?.[1];
  const to = leads(href) ? href : named && `/runs/${named}`;
  if (to) shown = <a href={to}>{shown}</a>;
  if (badge) shown = <Badge tone={tone}>{shown}</Badge>;
  else if (tone) {
    shown = (
      <span class={`${tone}-t nw`}>
        <Glyph name={MARKS[tone] ?? "bang"} /> {shown}
      </span>
    );
  }
  if (strong) shown = <b>{shown}</b>;
  return (
    <>
      {shown}
      {share !== undefined && (
        <span class="share" aria-hidden="true">
          <i style={{ width: `${Math.round(share * 100)}%` }} />
        </span>
      )}
      {note && <small> {prose(note)}</small>}
    </>
  );
}

const kind = (column: Column | undefined): string =>
  `${column?.kind === "number" ? "n" : column?.kind === "whole" ? "nw" : column?.kind === "prose" ? "pr" : ""} ${column?.spare ? "mid-up" : ""}`;

function TableBlock({ table }: { table: Table }) {
  const rows = table.rows ?? [];
  const left = (table.total ?? rows.length) - rows.length;
  const shown = (
    <div class="scroll" tabIndex={0} role="region" aria-label={table.title || table.folded || table.columns.map((each) => each.title).join(", ")}>
      <table class="doc-t">
        <thead>
          <tr>
            {table.columns.map((column, at) => (
              <th key={at} scope="col" class={kind(column)}>
                {column.title || <span class="vh">value</span>}
                {column.note && <small>{column.note}</small>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, line) => (
            <tr key={line}>
              {row.map((cell, at) => (
                <td key={at} class={kind(table.columns[at])}>
                  <CellText cell={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
  return (
    <>
      {table.title && <h3>{table.title}</h3>}
      <Folded title={table.folded}>{shown}</Folded>
      {left > 0 && <p class="cap">And {left} more.</p>}
      {table.caption && <p class="cap">{prose(table.caption)}</p>}
    </>
  );
}

/** A picture of the server's, its words set as elsewhere. Its style attributes are set through the CSSOM, because the page's policy forbids them. */
export function Picture({ svg }: { svg: string }) {
  const holder = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = holder.current;
    if (!element) return;
    const parsed = new DOMParser().parseFromString(svg.replaceAll(' style="', ' data-css="'), "text/html");
    element.replaceChildren(...parsed.body.childNodes);
    for (const each of element.querySelectorAll<SVGElement | HTMLElement>("[data-css]")) {
      for (const declaration of (each.dataset.css ?? "").split(";")) {
        const at = declaration.indexOf(":");
        if (at > 0) each.style.setProperty(declaration.slice(0, at).trim(), declaration.slice(at + 1).trim());
      }
      delete each.dataset.css;
    }
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let each = texts.nextNode(); each; each = texts.nextNode()) each.nodeValue = prose(each.nodeValue ?? "");
  }, [svg]);
  return <div class="scroll picture" tabIndex={0} role="group" aria-label="Chart" ref={holder} />;
}

function ChartBlock({ chart }: { chart: Chart }) {
  return (
    <figure>
      {chart.title && <h3>{chart.title}</h3>}
      {chart.draw?.svg ? <Picture svg={chart.draw.svg} /> : chart.text && <pre class="code">{chart.text.join("\n")}</pre>}
      {chart.caption && <figcaption class="cap">{prose(chart.caption)}</figcaption>}
    </figure>
  );
}

const FactsBlock = ({ facts }: { facts: Facts }) => (
  <dl class={facts.tiles ? "tiles" : "facts"}>
    {facts.pairs.map(([name, cell]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>
          <CellText cell={cell} />
        </dd>
      </div>
    ))}
  </dl>
);

function DocumentSign({ sign }: { sign: SignData }) {
  const style = sign.level !== undefined ? { "--v": (100 * sign.level).toFixed(0) } : undefined;
  const css = `c ${LOOKS[sign.look] ?? "w"}`;
  const named = sign.tooltip || undefined;
  const shared = { class: css, style, title: named, "aria-label": named, "data-l": sign.text };
  return leads(sign.href) ? <a href={sign.href} {...shared} /> : <i {...shared} role={named ? "img" : undefined} />;
}

function Signs({ signs, counted }: { signs: SignData[]; counted: boolean }) {
  const scored = signs.filter((each) => ["pass", "part", "fail", "own"].includes(each.look)).length;
  const passed = signs.filter((each) => each.look === "pass").length;
  return (
    <td>
      <div class="cs wrap">
        {signs.map((each, at) => (
          <DocumentSign key={at} sign={each} />
        ))}
        {counted && signs.length > 1 && (
          <small class="nw">
            {passed} of {scored}
          </small>
        )}
      </div>
    </td>
  );
}

function MatrixBlock({ matrix }: { matrix: Matrix }) {
  const rows = matrix.rows ?? [];
  const most = Math.max(0, ...rows.flatMap(([, cells]) => cells.map((each) => each.length)));
  const left = (matrix.total ?? rows.length) - rows.length;
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Every trial">
        <table class={`doc-m ${most > MANY_SIGNS ? "small" : ""}`}>
          <thead>
            <tr>
              <td />
              {matrix.columns?.map((each, at) => (
                <th key={at} scope="col">
                  {each.title}
                  {each.note && <small>{prose(each.note)}</small>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([label, cells]) => (
              <tr key={label}>
                <th scope="row">{label}</th>
                {cells.map((signs, at) => (
                  <Signs key={at} signs={signs} counted={matrix.counted ?? false} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ul class="legend">
        {matrix.legend?.map(([sign, meaning]) => (
          <li key={meaning}>
            <DocumentSign sign={sign} />
            {meaning}
          </li>
        ))}
      </ul>
      {matrix.caption && <p class="cap">{prose(matrix.caption)}</p>}
      {left > 0 && <p class="cap">And {left} more.</p>}
    </>
  );
}

const Items = ({ items }: { items: Cell[] }) => (
  <ul class="listed">
    {items.map((each, at) => (
      <li key={at}>
        <CellText cell={each} />
      </li>
    ))}
  </ul>
);

function EntryBlock({ entry }: { entry: Entry }) {
  return (
    <article class="box entry" id={entry.name}>
      <header>
        <h3>
          <Said text={prose(entry.title)} />
        </h3>
        <CellText cell={entry.mark} />
      </header>
      <div class="in">
        {entry.text && (
          <p>
            <Said text={prose(entry.text)} />
          </p>
        )}
        {entry.notes?.map((each) => (
          <p class="cap" key={each}>
            {prose(each)}
          </p>
        ))}
        {entry.items && <Items items={entry.items} />}
        {entry.code && (
          <Folded title={entry.folded}>
            <pre class="code">{entry.code}</pre>
          </Folded>
        )}
      </div>
    </article>
  );
}

function Folded({ title, children }: { title?: string | undefined; children: ComponentChildren }) {
  if (!title) return <>{children}</>;
  return (
    <details class="folded">
      <summary>{title}</summary>
      {children}
    </details>
  );
}

/** What a terminal would be told; where the page shows the same, a link. */
function CommandBlock({ text }: { text: string }) {
  const trial = LOGS.exec(text);
  return (
    <>
      <Command text={text} />
      {trial && (
        <p class="acts start">
          <a class="btn" href={`/trials/${trial[1]}/${trial[2]}`}>
            Open this trial
          </a>
        </p>
      )}
    </>
  );
}

export function BlockView({ block }: { block: Block }) {
  switch (block.type) {
    case "table":
      return <TableBlock table={block} />;
    case "chart":
      return <ChartBlock chart={block} />;
    case "facts":
      return <FactsBlock facts={block} />;
    case "text":
      return <p class={block.quiet ? "cap" : "said"}>{prose(block.text)}</p>;
    case "listed":
      return <Items items={block.items} />;
    case "code":
      return <Folded title={block.title}>{/^proctor .+$/.test(block.text) ? <CommandBlock text={block.text} /> : <pre class="code">{block.text}</pre>}</Folded>;
    case "matrix":
      return <MatrixBlock matrix={block} />;
    case "entries":
      return (
        <div class={`entries ${block.entries.length > 1 ? "two" : ""}`}>
          {block.entries.map((each) => (
            <EntryBlock key={each.title} entry={each} />
          ))}
        </div>
      );
    case "fold":
      return (
        <Folded title={block.title}>
          {block.blocks.map((each, at) => (
            <BlockView key={at} block={each} />
          ))}
        </Folded>
      );
  }
}
