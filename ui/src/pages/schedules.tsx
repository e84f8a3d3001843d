// Runs that start by themselves, with their time zone; a missed one is told.
import { useState } from "preact/hooks";
import { send, useResource, type Listed } from "../api";
import { when } from "../format";
import { Act, confirm, Empty } from "../parts/controls";
import { Badge } from "../parts/marks";
import { part } from "../router";
import { mayWrite } from "../shell";

interface Schedule {
  id: string;
  name: string;
  cron?: string;
  when?: string;
  timezone?: string;
  zone?: string;
  enabled?: boolean;
  next_at?: number | null;
  last_at?: number | null;
  last_run?: string | null;
  missed?: number;
}

export function Schedules() {
  const found = useResource<Listed<Schedule>>("/api/schedules");
  const [open, show] = useState(false);
  if (found.problem) return null;
  const items = found.data?.items ?? [];
  return (
    <section id="schedules">
      <div class="h2">
        <h2>Schedules</h2>
        <small>runs that start by themselves</small>
        {mayWrite() && (
          <div class="acts">
            <button type="button" class="btn sm" onClick={() => show(!open)}>
              New schedule
            </button>
          </div>
        )}
      </div>
      {open && (
        <NewSchedule
          done={() => {
            show(false);
            found.refresh();
          }}
        />
      )}
      {!items.length ? (
        !open && <Empty title="No run is scheduled." />
      ) : (
        <table>
          <thead>
            <tr>
              <th>name</th>
              <th>when</th>
              <th class="n phone-off">next</th>
              <th class="n phone-off">last</th>
              <th>
                <span class="vh">state</span>
              </th>
              <th />
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.id}>
                <td class="top2">
                  {each.name}
                  <span class="sub phone-only">next {when(each.next_at)}</span>
                </td>
                <td>
                  <code>{each.cron ?? each.when}</code> <small>{each.timezone ?? each.zone}</small>
                </td>
                <td class="n phone-off">{when(each.next_at)}</td>
                <td class="n phone-off">{each.last_run ? <a href={`/runs/${part(each.last_run)}`}>{when(each.last_at)}</a> : when(each.last_at)}</td>
                <td>{each.missed ? <Badge tone="warn">{each.missed} missed</Badge> : each.enabled === false ? <Badge>off</Badge> : null}</td>
                <td class="n wraps">
                  {mayWrite() && (
                    <Act css="sm" act={() => send("POST", `/api/schedules/${part(each.id)}/start`, {})} then="/runs">
                      Run now
                    </Act>
                  )}{" "}
                  {mayWrite() && (
                    <button
                      type="button"
                      class="btn sm danger"
                      onClick={() =>
                        confirm({
                          title: `Remove the schedule ${each.name}?`,
                          text: <p>Runs that it has started are kept.</p>,
                          yes: "Remove it",
                          act: () => void send("DELETE", `/api/schedules/${part(each.id)}`).then(found.refresh),
                        })
                      }
                    >
                      Remove
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function NewSchedule({ done }: { done: () => void }) {
  const [form, set] = useState({ name: "", cron: "daily 02:00", timezone: Intl.DateTimeFormat().resolvedOptions().timeZone, spec: "" });
  const field = (name: keyof typeof form, label: string, hint: string) => (
    <div class="field">
      <label for={`sch-${name}`}>{label}</label>
      <input id={`sch-${name}`} value={form[name]} onInput={(event) => set({ ...form, [name]: event.currentTarget.value })} />
      <p class="hint">{hint}</p>
    </div>
  );
  return (
    <div class="box">
      <div class="in stackx">
        <div class="formrow">
          {field("name", "Name", "such as nightly")}
          {field("cron", "When", "daily 02:00, weekly mon 02:00, or the five fields of cron")}
          {field("timezone", "Time zone", "such as Europe/Berlin")}
        </div>
        <label for="sch-spec">Spec</label>
        <p class="hint">What to run each time. Take it from a run’s page, under Spec.</p>
        <textarea id="sch-spec" rows={8} value={form.spec} onInput={(event) => set({ ...form, spec: event.currentTarget.value })} />
        <p class="acts start">
          <Act css="main" act={() => send("POST", "/api/schedules", form)} then={done}>
            Save schedule
          </Act>
        </p>
      </div>
    </div>
  );
}
