// Addresses that are told when something happens to a run.
import { useState } from "preact/hooks";
import { send, useResource, type Listed } from "../api";
import { when } from "../format";
import { Act, Command, confirm, Empty } from "../parts/controls";
import { Listing, listOf } from "../parts/listing";
import { Badge } from "../parts/marks";
import { part } from "../router";

interface Webhook {
  id: string;
  url: string;
  kind: string;
  events: string[];
  enabled: boolean;
  last_at: number | null;
  last_status: string | number | null;
}

const EVENTS: [string, string][] = [["run.queued", "is queued"], ["run.started", "starts"], ["run.finished", "ends"], ["run.judged", "is judged"], ["run.paused", "is paused"], ["run.interrupted", "is interrupted"], ["run.cancelled", "is cancelled"], ["run.failed", "cannot be run"]];

function WebhookForm({ done }: { done: (secret: string) => void }) {
  const [url, set] = useState("");
  const [kind, choose] = useState("event");
  const [events, tell] = useState(["run.finished", "run.failed"]);
  const [secret, hide] = useState("");
  const comment = kind === "comment";
  const add = async (): Promise<void> => {
    const made = await send<{ secret?: string }>("POST", "/api/webhooks", { url, kind, ...(comment ? {} : { events }), ...(secret ? { secret } : {}) });
    done(made.secret ?? "");
  };
  return (
    <div class="box">
      <div class="in stackx">
        <div class="formrow">
          <div class="field">
            <label for="hook-url">Address</label>
            <input id="hook-url" type="url" value={url} onInput={(event) => set(event.currentTarget.value)} placeholder="https://example.org/proctor" />
          </div>
          <div class="field">
            <label for="hook-kind">What is sent</label>
            <select id="hook-kind" value={kind} onChange={(event) => choose(event.currentTarget.value)}>
              <option value="event">A signed event</option>
              <option value="comment">The verdict, as a comment of a pull request</option>
            </select>
          </div>
          <div class="field">
            <label for="hook-secret">{comment ? "Token of that server" : "Secret"}</label>
            <input id="hook-secret" type="password" autocomplete="off" value={secret} onInput={(event) => hide(event.currentTarget.value)} placeholder={comment ? "" : "empty: one is made"} />
          </div>
        </div>
        {!comment && (
          <fieldset class="picks">
            <legend class="lab">When a run</legend>
            {EVENTS.map(([name, title]) => (
              <label class="pick" key={name}>
                <input type="checkbox" checked={events.includes(name)} onChange={() => tell(events.includes(name) ? events.filter((each) => each !== name) : [...events, name])} /> {title}
              </label>
            ))}
          </fieldset>
        )}
        <p class="acts start">
          <Act css="main" act={add}>
            Add webhook
          </Act>
        </p>
      </div>
    </div>
  );
}

const WORDS = new Map(EVENTS);

export function Webhooks() {
  const found = useResource<Listed<Webhook>>("/api/webhooks?limit=200");
  const [open, unfold] = useState(false);
  const [secret, show] = useState("");
  const done = (made: string): void => {
    unfold(false);
    show(made);
    found.refresh();
  };
  return (
    <Listing
      id="webhooks"
      title="Webhooks"
      note="addresses that are told when something happens to a run"
      add={{ label: "New webhook", open, toggle: () => unfold(!open) }}
      found={listOf(found)}
      empty={<Empty title="Nobody is told." />}
      keyOf={(each) => each.id}
      columns={[
        {
          name: "address",
          css: "top2 wrapany",
          cell: (each) => (
            <>
              {each.url} {!each.enabled && <Badge>off</Badge>}
            </>
          ),
        },
        { name: "when a run", css: "phone-off", cell: (each) => (each.kind === "comment" ? "is judged: a comment" : each.events.map((name) => WORDS.get(name) ?? name).join(", ")) },
        { name: "last", css: "phone-off dim", cell: (each) => (each.last_at ? `${each.last_status ?? ""} ${when(each.last_at)}` : "never told") },
        { name: "", css: "n", cell: (each) => <Buttons webhook={each} refresh={found.refresh} /> },
      ]}
    >
      {secret && (
        <div class="notice info">
          <h3>This secret signs the events. Copy it now: it is shown this once.</h3>
          <Command text={secret} />
        </div>
      )}
      {open && <WebhookForm done={done} />}
    </Listing>
  );
}

function Buttons({ webhook, refresh }: { webhook: Webhook; refresh: () => void }) {
  const base = `/api/webhooks/${part(webhook.id)}`;
  const remove = (): void =>
    confirm({
      title: "Remove this webhook?",
      text: <p>{webhook.url} is told nothing more.</p>,
      yes: "Remove it",
      act: () => void send("DELETE", base).then(refresh),
    });
  return (
    <span class="acts">
      <Act css="sm" act={() => send("POST", `${base}/test`)} then={refresh}>
        Test
      </Act>
      <Act css="sm" act={() => send("PATCH", base, { enabled: !webhook.enabled })} then={refresh}>
        {webhook.enabled ? "Switch off" : "Switch on"}
      </Act>
      <button type="button" class="btn sm danger" onClick={remove}>
        Remove
      </button>
    </span>
  );
}
