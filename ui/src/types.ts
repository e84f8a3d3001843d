// What the API answers, as docs/reference/api.md lists it.
export interface Score {
  value: number;
  low: number | null;
  high: number | null;
  n?: number;
  pass_rate?: number;
}

export interface RunRow {
  id: string;
  name: string;
  kind: string;
  execution?: string;
  status: string;
  created_at: number | null;
  started_at: number | null;
  finished_at: number | null;
  total: number;
  done: number;
  counts: Record<string, number>;
  running: number;
  pending: number;
  tags: string[];
  notes: string;
  owner: string | null;
  project: string | null;
  agents: string[];
  models: string[];
  headline: string;
  score: Score | null;
  scores?: (Score & { label: string })[];
  /** Rollouts that passed, that are in the score, and that ended in an error not caused by the agent. */
  passed: number;
  scored: number;
  errors: number;
  wanted?: boolean;
  failure?: string;
  cost_usd: number | null;
  unknown_cost: number;
  tokens: number | null;
  gate: { verdict: string } | null;
  spark: (number | null)[];
}

export interface RunDetail extends RunRow {
  spec: unknown;
  resolved: unknown;
  environment: Record<string, unknown> | null;
  vcs: Record<string, unknown> | null;
  versions: Record<string, unknown> | null;
  warnings: string[];
  budget: Record<string, number | null> | null;
  spent: Record<string, number | null> | null;
  eta_s: number | null;
  coordinator: unknown;
  errors_to_retry: number;
}

export interface TrialRow {
  index: number;
  key: string;
  label: string;
  task: string;
  agent: string | null;
  model: string | null;
  params: Record<string, unknown> | null;
  rollout: number | null;
  state: string;
  outcome: string | null;
  blame: string | null;
  reward: number | null;
  took_s: number | null;
  attempts: number;
  cost_usd: number | null;
  tokens: number | null;
  suspect: boolean;
  started_at: number | null;
  ended_at: number | null;
  message: string | null;
}

export interface Sign {
  i: number;
  r: number;
  s: string;
  o: string | null;
  w: number | null;
  t: number | null;
  x?: boolean;
}

export interface Counts {
  passed: number;
  scored: number;
  errors: number;
}

export interface MatrixData {
  columns: { agent: string | null; model: string | null; label: string }[];
  rows: { task: string; cells: Sign[][]; counts: Counts[] }[];
  order: string;
}

export interface Session {
  read_only?: boolean;
  mode?: string;
  user?: string | null;
  scopes?: string[];
  project?: string | null;
}
