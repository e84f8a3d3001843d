// The page: which address shows what.
import { render, type ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { listenKeys } from "./keys";
import { listenLive } from "./live";
import { CostsPage } from "./pages/costs";
import { Experiments } from "./pages/experiments";
import { NewRun } from "./pages/newrun";
import { Pair } from "./pages/pair";
import { QueuePage } from "./pages/queue";
import { Certificates, Compare, History, Leaderboard } from "./pages/results";
import { Runs } from "./pages/runs";
import { Settings } from "./pages/settings";
import { Tasks } from "./pages/tasks";
import { Timings } from "./pages/timings";
import { Empty } from "./parts/controls";
import { go, here, listen, match } from "./router";
import { RunPage } from "./run/page";
import { Page, Shell } from "./shell";
import { TrialPage } from "./trial/page";

type Found = Record<string, string>;

const ROUTES: [string, (found: Found) => ComponentChildren][] = [
  ["/runs", () => <Runs />],
  ["/runs/:run/:tab?", ({ run = "", tab }) => <RunPage key={run} run={run} tab={tab} />],
  ["/trials/:run/:index/:tab?", ({ run = "", index = "", tab }) => <TrialPage run={run} index={index} tab={tab} />],
  ["/pair", () => <Pair />],
  ["/compare", () => <Compare />],
  ["/history", () => <History />],
  ["/leaderboard", () => <Leaderboard />],
  ["/experiments", () => <Experiments />],
  ["/certificates", () => <Certificates />],
  ["/timings", () => <Timings />],
  ["/tasks", () => <Tasks />],
  ["/new", () => <NewRun />],
  ["/queue", () => <QueuePage />],
  ["/schedules", () => <QueuePage />],
  ["/costs", () => <CostsPage />],
  ["/settings", () => <Settings />],
];

function Lost() {
  return (
    <Page title="Not found" css="mid">
      <div class="head">
        <div>
          <h1>Not found</h1>
        </div>
      </div>
      <Empty title="There is no page at this address.">
        <a href="/runs">All runs</a>
      </Empty>
    </Page>
  );
}

function Shown() {
  const address = here.value;
  useEffect(() => {
    if (address === "/") go("/runs", true);
  }, [address]);
  if (address === "/") return null;
  for (const [pattern, show] of ROUTES) {
    const found = match(pattern, address);
    if (found) return <>{show(found)}</>;
  }
  return <Lost />;
}

function App() {
  const [broken, again] = useErrorBoundary((error) => console.error(error));
  if (broken) {
    return (
      <Page title="A mistake in this page">
        <div class="notice bad" role="alert">
          <h2>This page made a mistake</h2>
          <p>{(broken as Error).message}</p>
          <p class="acts start">
            <button type="button" class="btn" onClick={again}>
              Draw it again
            </button>
          </p>
        </div>
      </Page>
    );
  }
  return (
    <Shell>
      <Shown />
    </Shell>
  );
}

listen();
listenKeys();
listenLive();
const place = document.getElementById("app");
if (place) render(<App />, place);
