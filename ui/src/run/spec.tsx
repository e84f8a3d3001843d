// The spec as written and with every default, where it ran, and a person's notes.
import { useState } from "preact/hooks";
import { send } from "../api";
import { bytes, words } from "../format";
import { Act, Copy } from "../parts/controls";
import { Terminal } from "../parts/terminal";
import { part } from "../router";
import { mayWrite } from "../shell";
import type { RunDetail } from "../types";

const text = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

export function SpecTab({ run, set }: { run: RunDetail; set: (run: RunDetail) => void }) {
  const [filled, fill] = useState(false);
  const shown = text(filled ? run.resolved : run.spec);
  return (
    <section class="tabbody specgrid">
      <div>
        <div class="h2">
          <h2>Spec</h2>
          <div class="acts">
            <span class="seg" role="group" aria-label="Which spec">
              {[false, true].map((each) => (
                <button type="button" key={String(each)} aria-pressed={filled === each} onClick={() => fill(each)}>
                  {each ? "With every default" : "As written"}
                </button>
              ))}
            </span>
            <Copy text={() => shown} label="Copy the spec" small={false} />
            {mayWrite() && (
              <a class="btn" href={`/new?from=${part(run.id)}`}>
                Run again with changes
              </a>
            )}
          </div>
        </div>
        <Terminal id="spec" text={shown} bare />
      </div>
      <div>
        <Notes run={run} set={set} />
        <section>
          <h2>Where it ran</h2>
          <Facts groups={[run.vcs, run.versions, run.environment]} />
        </section>
        <p class="cap">
          Run it again: <code>proctor run SPEC</code>; take it elsewhere: <code>proctor export {run.id}</code>.
        </p>
      </div>
    </section>
  );
}

function Facts({ groups }: { groups: (Record<string, unknown> | null)[] }) {
  const simple = groups.flatMap((each) => Object.entries(each ?? {})).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value) && String(value).length < 300);
  return (
    <dl class="kv large">
      {simple.map(([name, value]) => (
        <>
          <dt>{words(name.replace(/_bytes$/, ""))}</dt>
          <dd>{value === true ? "yes" : value === false ? "no" : typeof value === "number" && name.endsWith("_bytes") ? bytes(value) : String(value)}</dd>
        </>
      ))}
    </dl>
  );
}

function Notes({ run, set }: { run: RunDetail; set: (run: RunDetail) => void }) {
  const [notes, note] = useState(run.notes ?? "");
  const [tags, tag] = useState(run.tags.join(", "));
  if (!mayWrite()) return run.notes ? <p class="said">{run.notes}</p> : null;
  const save = async (): Promise<void> => {
    const body = { notes, tags: tags.split(",").map((each) => each.trim()).filter(Boolean) };
    set(await send<RunDetail>("PATCH", `/api/runs/${part(run.id)}`, body));
  };
  return (
    <section class="notesbox leadtight">
      <h2>Notes</h2>
      <label for="run-notes" class="vh">
        Notes
      </label>
      <textarea id="run-notes" rows={3} value={notes} onInput={(event) => note(event.currentTarget.value)} placeholder="What this run was for" />
      <div class="formrow">
        <div class="field">
          <label for="run-tags">Tags</label>
          <input id="run-tags" value={tags} onInput={(event) => tag(event.currentTarget.value)} placeholder="nightly, tb2" />
        </div>
        <Act act={save}>Save</Act>
      </div>
    </section>
  );
}
