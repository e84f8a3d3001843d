// Logs by byte range: the end of one at once, however long it is, and a search that the server makes.
import { useState } from "preact/hooks";
import { useResource } from "../api";
import { bytes, count, many } from "../format";
import { Bones, Empty, Find, Trouble } from "../parts/controls";
import { Marked, Terminal } from "../parts/terminal";
import { part, put, query } from "../router";
import { Follow, useLogs } from "./tail";
import type { Attempt, TrialDetail } from "./types";

const PAGE = 131_072;

interface Match {
  line: number;
  offset: number;
  text: string;
}

export function Logs({ detail, attempt }: { detail: TrialDetail; attempt: Attempt | undefined }) {
  const { run, trial } = detail;
  const logs = useLogs(run.id, trial.index);
  const chosen = query.value.get("log") ?? "";
  const find = query.value.get("find") ?? "";
  if (!logs.data) return logs.problem ? <Trouble problem={logs.problem} retry={logs.refresh} /> : <Bones />;
  const found = logs.data.logs;
  if (!found.length) return <Empty title={attempt ? "This trial has written no log." : "Nothing has been written yet."} />;
  const now = found.find((each) => each.name === chosen) ?? found.find((each) => each.live) ?? found[0];
  if (!now) return null;
  return (
    <section class="tabbody">
      <div class="toolbar">
        <Find label="Find in this log" hint="f" value={find} set={(text) => put({ find: text })} />
        <div class="seg scrollx" role="group" aria-label="Log">
          {found.map((each) => (
            <button type="button" key={each.name} aria-pressed={each === now} onClick={() => put({ log: each.name, offset: null }, false)}>
              {each.name} <span class="count">{bytes(each.size)}</span>
            </button>
          ))}
        </div>
      </div>
      {find.length > 1 && <Matches run={run.id} index={trial.index} name={now.name} find={find} />}
      {now.live ? <Follow key={now.name} run={run.id} index={trial.index} name={now.name} /> : <Pages key={now.name} run={run.id} index={trial.index} name={now.name} size={now.size} find={find} />}
    </section>
  );
}

function Matches({ run, index, name, find }: { run: string; index: number; name: string; find: string }) {
  const found = useResource<{ matches: Match[]; total?: number; next?: number | null }>(`/api/trials/${part(run)}/${index}/logs/${part(name)}/search?q=${part(find)}`);
  if (found.problem) return <Trouble problem={found.problem} />;
  const matches = found.data?.matches ?? [];
  return (
    <div class="box">
      <header>
        <h2>{found.data ? (matches.length ? `${many(found.data.total ?? matches.length, "line")} match` : "Nothing found") : "Searching"}</h2>
      </header>
      {matches.length > 0 && (
        <div class="term">
          <span class="ln">
            {matches.slice(0, 50).map((each) => (
              <span key={each.offset}>
                <a
                  href={`?offset=${each.offset}`}
                  onClick={(event) => {
                    event.preventDefault();
                    put({ offset: String(Math.max(0, each.offset - 2000)) }, false);
                  }}
                >
                  {count(each.line)}
                </a>
                <code>
                  <Marked text={each.text} find={find} />
                </code>
              </span>
            ))}
          </span>
        </div>
      )}
    </div>
  );
}

/** One page of a log that has ended; the last one first. */
function Pages({ run, index, name, size, find }: { run: string; index: number; name: string; size: number; find: string }) {
  const asked = query.value.get("offset");
  const [start, move] = useState(asked !== null ? Number(asked) : Math.max(0, size - PAGE));
  const from = asked !== null ? Number(asked) : start;
  const found = useResource<unknown>(`/api/trials/${part(run)}/${index}/logs/${part(name)}?offset=${from}&length=${PAGE}`);
  const go = (to: number): void => {
    const next = Math.max(0, Math.min(to, Math.max(0, size - 1)));
    move(next);
    put({ offset: String(next) });
  };
  if (found.problem) return <Trouble problem={found.problem} retry={found.refresh} />;
  const text = typeof found.data === "string" ? found.data : found.data === undefined ? undefined : JSON.stringify(found.data, null, 2);
  const many = size > PAGE;
  return (
    <>
      {many && (
        <div class="toolbar">
          <button type="button" class="btn" disabled={from === 0} onClick={() => go(0)}>
            Beginning
          </button>
          <button type="button" class="btn" disabled={from === 0} onClick={() => go(from - PAGE)}>
            Earlier
          </button>
          <button type="button" class="btn" disabled={from + PAGE >= size} onClick={() => go(from + PAGE)}>
            Later
          </button>
          <button type="button" class="btn" disabled={from + PAGE >= size} onClick={() => go(size - PAGE)}>
            End
          </button>
          <small>
            bytes {count(from)} to {count(Math.min(size, from + PAGE))} of {count(size)}
          </small>
        </div>
      )}
      {text === undefined ? <Bones /> : <Terminal id="log" text={text} find={find.length > 1 ? find : ""} head={<b class="mono">{name}</b>} />}
    </>
  );
}
