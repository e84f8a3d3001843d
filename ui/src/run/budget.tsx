// Raise the budget of a run that has stopped, and go on: what was spent counts.
import { useRef, useState } from "preact/hooks";
import { count, dollars } from "../format";
import { Act } from "../parts/controls";
import type { RunDetail } from "../types";

type Name = "budget_usd" | "budget_tokens" | "budget_requests";

const FIELDS: [Name, string, (run: RunDetail) => string][] = [
  ["budget_usd", "Dollars", (run) => (run.spent?.cost_usd ? `${run.unknown_cost ? "at least " : ""}${dollars(run.spent.cost_usd)} spent` : "nothing spent")],
  ["budget_tokens", "Tokens", (run) => `${count(run.spent?.tokens ?? 0)} used`],
  ["budget_requests", "Calls of models", (run) => `${count(run.spent?.requests ?? 0)} made`],
];

export function RaiseBudget({ run, resume }: { run: RunDetail; resume: (budget: Record<string, number>) => Promise<void> }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const before = (name: Name): string => String(run.budget?.[name] ?? "");
  const [asked, set] = useState<Record<string, string>>({});
  const values = (): Record<string, number> => Object.fromEntries(FIELDS.map(([name]) => [name, asked[name] ?? before(name)] as const).filter(([name, text]) => text !== "" && text !== before(name)).map(([name, text]) => [name, Number(text)]));
  return (
    <>
      <button type="button" class="btn" onClick={() => dialog.current?.showModal()}>
        Raise budget …
      </button>
      <dialog class="dialog" ref={dialog} aria-labelledby="budget-title">
        <header id="budget-title">Raise the budget and go on?</header>
        <div class="in stackx">
          <p>
            {count(run.done)} of {count(run.total)} trials have ended and are kept. What was spent counts against the new budget.
          </p>
          {FIELDS.map(([name, label, spent]) => (
            <div class="field" key={name}>
              <label for={name}>{label}</label>
              <input id={name} inputMode="decimal" value={asked[name] ?? before(name)} placeholder="no limit" onInput={(event) => set({ ...asked, [name]: event.currentTarget.value })} />
              <p class="hint">{spent(run)}</p>
            </div>
          ))}
        </div>
        <footer>
          <button type="button" class="btn" autofocus onClick={() => dialog.current?.close()}>
            Leave it
          </button>
          <Act css="main" act={() => resume(values())} then={() => dialog.current?.close()}>
            Go on
          </Act>
        </footer>
      </dialog>
    </>
  );
}
