// What everything has cost: by day, model, agent and run. What has no price is said and left out.
import { useResource } from "../api";
import { count, dollars, many } from "../format";
import { Bones, Empty, Trouble } from "../parts/controls";
import { put, query } from "../router";
import { CostSection, type CostLine } from "../run/costs";
import { Page } from "../shell";

interface CostAnswer {
  items?: (CostLine & { key?: string; day?: string })[];
  lines?: CostLine[];
  sum?: { cost_usd: number | null; unknown_cost: number; calls: number };
}

const PERIODS: [string, string][] = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["0", "All"]];

const lines = (answer: CostAnswer | undefined): CostLine[] => (answer?.items ?? answer?.lines ?? []).map((each) => ({ ...each, name: each.name ?? (each as { key?: string }).key ?? (each as { day?: string }).day ?? "–" }));

export function CostsPage() {
  const days = query.value.get("days") ?? "30";
  const from = `&from=${days === "0" ? 0 : Math.floor(Date.now() / 86_400_000 - Number(days)) * 86_400}`;
  const byDay = useResource<CostAnswer>(`/api/costs?by=day${from}`);
  const byModel = useResource<CostAnswer>(`/api/costs?by=model${from}`);
  const byAgent = useResource<CostAnswer>(`/api/costs?by=agent${from}`);
  const byRun = useResource<CostAnswer>(`/api/costs?by=run${from}`);
  const models = lines(byModel.data);
  const total = byModel.data?.sum?.cost_usd ?? models.reduce((sum, each) => sum + (each.cost_usd ?? 0), 0);
  const unknown = byModel.data?.sum?.unknown_cost ?? models.reduce((sum, each) => sum + (each.unknown_cost ?? 0), 0);
  return (
    <Page title="Costs">
      <div class="head">
        <div>
          <h1>Costs</h1>
          <p class="lead">
            {byModel.data ? (
              <>
                <b>
                  {unknown ? "At least " : ""}
                  {dollars(total)}
                </b>{" "}
                {days === "0" ? "in all" : `in ${days} days`}.
              </>
            ) : (
              "…"
            )}
          </p>
        </div>
        <div class="acts">
          <span class="seg" role="group" aria-label="Period">
            {PERIODS.map(([value, title]) => (
              <button type="button" key={title} aria-pressed={days === value} onClick={() => put({ days: value }, false)}>
                {title}
              </button>
            ))}
          </span>
        </div>
      </div>
      {unknown > 0 && (
        <div class="notice">
          <h2>Before you quote these numbers</h2>
          <p>{many(unknown, "call")} went to a model without a known price. They are left out of all sums and never counted as $0.</p>
        </div>
      )}
      {byModel.problem && <Trouble problem={byModel.problem} retry={byModel.refresh} />}
      {!byModel.data && !byModel.problem && <Bones />}
      {byModel.data && !models.length && <Empty title="No model was called in this time.">Agents such as the oracle cost nothing.</Empty>}
      <Days days={lines(byDay.data)} />
      <div class="cols">
        <div>
          {models.length > 0 && <CostSection title="By model" name="model" lines={models} />}
          {lines(byAgent.data).length > 0 && <CostSection title="By agent" name="agent" lines={lines(byAgent.data)} />}
        </div>
        {lines(byRun.data).length > 0 && <CostSection title="By run" name="run" lines={lines(byRun.data)} />}
      </div>
      {models.length > 0 && <p class="cap">Metered by the gateway at list prices. Your invoice may differ by discounts.</p>}
    </Page>
  );
}

function Days({ days }: { days: CostLine[] }) {
  const sorted = [...days].sort((a, b) => a.name.localeCompare(b.name)).slice(-60);
  const top = Math.max(0, ...sorted.map((each) => each.cost_usd ?? 0));
  if (sorted.length < 2 || !top) return null;
  const width = 100 / sorted.length;
  return (
    <section>
      <h2>
        By day <small>dollars</small>
      </h2>
      <div class="plot" style={{ "--h": "180px" }} role="img" aria-label={`Spend by day, at most ${dollars(top)}`}>
        {sorted.map((each, at) => (
          <span key={each.name} class="bar" title={`${each.name}: ${dollars(each.cost_usd)}, ${count(each.calls ?? each.requests)} calls`} style={{ "--x": (at * width).toFixed(2), width: `calc(${width}% - 3px)` }}>
            <i style={{ "--v": ((100 * (each.cost_usd ?? 0)) / top).toFixed(1), "--c": "var(--s0)" }} />
          </span>
        ))}
        <span class="yl" style={{ top: "0" }}>
          {dollars(top)}
        </span>
        <span class="yl" style={{ top: "100%" }}>
          $0
        </span>
        <span class="xl" style={{ left: "0", transform: "none" }}>
          {sorted[0]?.name}
        </span>
        <span class="xl" style={{ left: "100%", transform: "translateX(-100%)" }}>
          {sorted[sorted.length - 1]?.name}
        </span>
      </div>
    </section>
  );
}
