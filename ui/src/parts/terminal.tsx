// Output line by line: numbers that are links and are not copied, the middle of long output folded, found text marked.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { bytes, many } from "../format";
import { fragment } from "../router";
import { copy } from "./controls";
import { Glyph } from "./marks";

const HEAD = 12;
const TAIL = 28;
const FOLD_FROM = 60;
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

/** Lines of a terminal's output: colours and cursor moves are left out, a line that was written over shows its last state. */
export function linesOf(text: string): string[] {
  const clean = text.replace(ESCAPES, "").replace(/\r+\n/g, "\n");
  const lines = clean.split("\n").map((line) => (line.includes("\r") ? (line.split("\r").filter(Boolean).pop() ?? "") : line));
  if (lines.length > 1 && lines[lines.length - 1] === "") lines.pop();
  return lines;
}

export function Marked({ text, find }: { text: string; find: string }): ComponentChildren {
  if (!find) return <>{text}</>;
  const parts: ComponentChildren[] = [];
  const lower = text.toLowerCase();
  const wanted = find.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0 && parts.length < 200; at = lower.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), <mark key={at}>{text.slice(at, at + find.length)}</mark>);
    from = at + find.length;
  }
  return <>{[...parts, text.slice(from)]}</>;
}

/** What somebody said: code, strong words and headings are set as such, everything else stays as it was written. */
export function Said({ text, find = "" }: { text: string; find?: string }) {
  const parts = text.length > 50_000 ? [text] : text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*|^#{1,6} .+$)/m);
  return (
    <>
      {parts.map((each, at) => {
        if (at % 2 === 0) return <Marked key={at} text={each} find={find} />;
        const Set = each.startsWith("`") ? "code" : "b";
        return (
          <Set key={at}>
            <Marked text={each.replace(/^(`|\*\*|#+ )|(`|\*\*)$/g, "")} find={find} />
          </Set>
        );
      })}
    </>
  );
}

const isError = (line: string): boolean => /^(Traceback \(|[\w.]*(Error|Exception)\b.*:|E {3,}|>\s+assert|FAILED |fatal:|error(:|\[))/.test(line);

interface Props {
  id: string;
  text: string;
  find?: string;
  /** What stands in the head, such as an exit code. */
  head?: ComponentChildren;
  bare?: boolean;
  /** How much of the text was left out, and what fetches it. */
  cut?: number | undefined;
  whole?: (() => void) | undefined;
  first?: number;
  mono?: boolean;
}

export function Terminal({ id, text, find = "", head, bare, cut, whole, first = 1 }: Props) {
  const lines = useMemo(() => linesOf(text), [text]);
  const [open, unfold] = useState(false);
  const [wrap, setWrap] = useState(true);
  const linked = fragment.value.startsWith(`${id}-L`) ? Number(fragment.value.slice(id.length + 2)) : 0;
  const folded = !open && lines.length > FOLD_FROM;
  const hidden = (at: number): boolean => folded && at >= HEAD && at < lines.length - TAIL && !(find && lines[at]?.toLowerCase().includes(find.toLowerCase())) && at + first !== linked;
  return (
    <div class={`term ${wrap ? "" : "nowrap"}`}>
      {!bare && (
        <header>
          {head}
          <span>
            {many(lines.length, "line")}, {bytes(text.length + (cut ?? 0))}
          </span>
          <span class="end">
            <button type="button" class="btn quiet sm phone-off" aria-pressed={wrap} onClick={() => setWrap(!wrap)}>
              Wrap
            </button>
            <button type="button" class="btn quiet sm" onClick={() => void copy(text)}>
              Copy
            </button>
          </span>
        </header>
      )}
      <span class="ln">
        <Lines id={id} lines={lines} first={first} find={find} hidden={hidden} linked={linked} unfold={() => unfold(true)} />
        {cut ? (
          <button type="button" class="fold" onClick={whole}>
            {bytes(cut)} more: show all of it
          </button>
        ) : null}
      </span>
    </div>
  );
}

function Lines({ id, lines, first, find, hidden, linked, unfold }: { id: string; lines: string[]; first: number; find: string; hidden: (at: number) => boolean; linked: number; unfold: () => void }) {
  useEffect(() => {
    if (linked) document.getElementById(`${id}-L${linked}`)?.scrollIntoView({ block: "center" });
  }, [linked]);
  const shown: ComponentChildren[] = [];
  let left = 0;
  const fold = (at: number): void => {
    if (!left) return;
    shown.push(
      <button type="button" class="fold" key={`f${at}`} onClick={unfold}>
        {many(left, "line")} more
      </button>,
    );
    left = 0;
  };
  for (const [at, line] of lines.entries()) {
    if (hidden(at)) {
      left += 1;
      continue;
    }
    fold(at);
    const number = at + first;
    shown.push(
      <span key={at} id={`${id}-L${number}`} class={`${isError(line) ? "er" : ""} ${number === linked ? "hit" : ""}`}>
        <a href={`#${id}-L${number}`} tabIndex={-1} aria-label={`line ${number}`}>
          {number}
        </a>
        <code>
          <Marked text={line} find={find} />
        </code>
      </span>,
    );
  }
  fold(lines.length);
  return <>{shown}</>;
}

interface Hunk {
  path: string;
  added: number;
  removed: number;
  lines: [string, number | null, number | null, string][];
  fresh: boolean;
  gone: boolean;
}

/** The files of a unified diff. Inside a hunk its own counts say which lines belong to it: a removed `-- x` is no header. */
export function parseDiff(text: string): Hunk[] {
  const files: Hunk[] = [];
  let file: Hunk | undefined;
  let before = 0;
  let after = 0;
  let oldLines = 0;
  let newLines = 0;
  let oldName = "";
  const begin = (path: string) => {
    file = { path, added: 0, removed: 0, lines: [], fresh: false, gone: false };
    files.push(file);
    return file;
  };
  for (const line of text.split("\n")) {
    if (file && (oldLines > 0 || newLines > 0)) {
      if (line.startsWith("+")) {
        file.added += 1;
        newLines -= 1;
        file.lines.push(["add", null, after++, line]);
      } else if (line.startsWith("-")) {
        file.removed += 1;
        oldLines -= 1;
        file.lines.push(["del", before++, null, line]);
      } else if (!line.startsWith("\\")) {
        oldLines -= 1;
        newLines -= 1;
        file.lines.push(["", before++, after++, line]);
      }
      continue;
    }
    const start = /^diff --git a\/(.*?) b\/(.*)$/.exec(line);
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (start) begin(start[2] ?? "");
    else if (line.startsWith("--- ")) oldName = headerName(line);
    else if (line.startsWith("+++ ")) {
      const newName = headerName(line);
      const path = (newName === "/dev/null" ? oldName : newName).replace(/^[ab]\//, "");
      const named = !file || file.lines.length ? begin(path) : file;
      named.path = path;
      named.fresh ||= oldName === "/dev/null";
      named.gone ||= newName === "/dev/null";
    } else if (!file) continue;
    else if (hunk) {
      before = Number(hunk[1]);
      oldLines = Number(hunk[2] ?? 1);
      after = Number(hunk[3]);
      newLines = Number(hunk[4] ?? 1);
      file.lines.push(["hunk", null, null, line]);
    } else if (line.startsWith("new file")) file.fresh = true;
    else if (line.startsWith("deleted file")) file.gone = true;
    else if (/^(Binary|GIT binary)/.test(line)) file.lines.push(["hunk", null, null, line]);
  }
  return files;
}

function headerName(line: string): string {
  return line.slice(4).replace(/\t.*$/, "");
}

const MOST = 400;

export function FileDiff({ file, extra }: { file: Hunk; extra?: ComponentChildren }) {
  const [all, show] = useState(false);
  const lines = all ? file.lines : file.lines.slice(0, MOST);
  return (
    <article class="term fdiff" id={`f-${file.path}`}>
      <header>
        <b class="mono">{file.path}</b>
        {file.added > 0 && <span class="good-t">+{file.added}</span>}
        {file.removed > 0 && <span class="bad-t">−{file.removed}</span>}
        {file.fresh && <span>new</span>}
        {file.gone && <span>removed</span>}
        {extra}
      </header>
      <span class="ln d2">
        {lines.map(([css, before, after, text], at) => (
          <span key={at} class={css}>
            <i>{before ?? ""}</i>
            <i>{after ?? ""}</i>
            <code>{text}</code>
          </span>
        ))}
        {file.lines.length > lines.length && (
          <button type="button" class="fold" onClick={() => show(true)}>
            {file.lines.length - lines.length} lines more
          </button>
        )}
      </span>
    </article>
  );
}

export const ExitCode = ({ code }: { code: number | null }) =>
  code === null ? null : (
    <span class={code ? "bad-t" : "good-t"}>
      <Glyph name={code ? "cross" : "check"} /> exit {code}
    </span>
  );
