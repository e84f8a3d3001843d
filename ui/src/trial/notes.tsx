// Labels and comments of people on a trial.
import { useState } from "preact/hooks";
import { send } from "../api";
import { when } from "../format";
import { Act, Empty } from "../parts/controls";
import { part } from "../router";
import { mayWrite } from "../shell";
import type { TrialDetail } from "./types";

const USUAL = ["looked at", "task is wrong", "agent cheated", "flaky", "good example"];

export function Notes({ detail, refresh }: { detail: TrialDetail; refresh: () => void }) {
  const base = `/api/trials/${part(detail.run.id)}/${detail.trial.index}`;
  const [text, write] = useState("");
  const [label, name] = useState("");
  const put = (labels: string[]) => () => send("PUT", `${base}/labels`, { labels });
  const offered = [...new Set([...USUAL, ...detail.labels])];
  return (
    <section class="tabbody cols">
      <section>
        <h2>Labels</h2>
        {mayWrite() ? (
          <>
            <div class="trial-labels">
              {offered.map((each) => {
                const on = detail.labels.includes(each);
                return (
                  <Act key={each} css={`sm ${on ? "main" : ""}`} act={put(on ? detail.labels.filter((other) => other !== each) : [...detail.labels, each])} then={refresh}>
                    {each}
                  </Act>
                );
              })}
            </div>
            <div class="formrow tokbox">
              <div class="field">
                <label for="label">Another label</label>
                <input id="label" value={label} maxLength={60} onInput={(event) => name(event.currentTarget.value)} />
              </div>
              <Act
                act={put([...detail.labels, label.trim()].filter(Boolean))}
                then={() => {
                  name("");
                  refresh();
                }}
              >
                Add label
              </Act>
            </div>
          </>
        ) : (
          <p>{detail.labels.join(", ") || "None."}</p>
        )}
        <p class="cap">A label does not change the score. A trial with a label is kept when old runs are cleared.</p>
      </section>
      <section>
        <h2>Comments</h2>
        {detail.comments.length ? (
          <ul class="stackx">
            {detail.comments.map((each, at) => (
              <li key={at} class="box">
                <div class="in">
                  <p>{each.text}</p>
                  <small>
                    {each.author ?? each.user ?? "somebody"}, {when(each.at ?? each.created_at)}
                  </small>
                </div>
              </li>
            ))}
          </ul>
        ) : (
          <Empty title="Nobody has written here yet." />
        )}
        {mayWrite() && (
          <>
            <label for="comment" class="tokbox">
              Comment
            </label>
            <textarea id="comment" rows={3} value={text} onInput={(event) => write(event.currentTarget.value)} />
            <p class="acts start">
              <Act
                act={() => send("POST", `${base}/comments`, { text })}
                then={() => {
                  write("");
                  refresh();
                }}
              >
                Add comment
              </Act>
            </p>
          </>
        )}
      </section>
    </section>
  );
}
