// The 17 outcomes: how each looks, its letter, and whether it is in the score.
export type Outcome = string | null | undefined;

const OWN: Record<string, string> = { passed: "p", partial: "h", failed: "f", agent_timeout: "t", agent_error: "e", budget_exhausted: "b" };
const APART: Record<string, string> = {
  verifier_error: "V",
  verifier_timeout: "V",
  reward_invalid: "R",
  sandbox_error: "S",
  image_error: "I",
  worker_lost: "L",
  starved: "M",
  provider_error: "P",
  invalid: "?",
};
const BLAME: Record<string, string> = {
  verifier_error: "task",
  verifier_timeout: "task",
  reward_invalid: "task",
  sandbox_error: "infrastructure",
  image_error: "infrastructure",
  worker_lost: "infrastructure",
  starved: "infrastructure",
  provider_error: "provider",
  cancelled: "person",
  skipped: "person",
  invalid: "author",
};

export const SCORED = Object.keys(OWN);
export const NOT_SCORED = Object.keys(APART);
export const ORDER = [...SCORED, ...NOT_SCORED, "cancelled", "skipped"];

export const isApart = (outcome: Outcome): boolean => !!outcome && outcome in APART;
export const blameOf = (outcome: string): string => BLAME[outcome] ?? "agent";

/** The class of a cell, and its letter where it has one. */
export function look(outcome: Outcome, state?: string): { css: string; letter: string | undefined } {
  if (outcome) {
    const own = OWN[outcome];
    if (own) return { css: own, letter: undefined };
    const apart = APART[outcome];
    if (apart) return { css: "x", letter: apart };
    return { css: "k", letter: undefined };
  }
  if (state === "running" || state === "leased") return { css: "r", letter: undefined };
  if (state === "retry") return { css: "q", letter: undefined };
  if (state === "cancelled" || state === "skipped") return { css: "k", letter: undefined };
  return { css: "w", letter: undefined };
}

export function nameOf(outcome: Outcome, state?: string): string {
  if (outcome) return outcome.replaceAll("_", " ");
  if (state === "leased") return "starting";
  if (state === "pending" || !state) return "waiting";
  return state === "retry" ? "trying again" : state;
}

export function toneOf(outcome: Outcome): "good" | "bad" | "apart" | "" {
  if (outcome === "passed") return "good";
  if (isApart(outcome)) return "apart";
  return outcome && outcome in OWN && outcome !== "partial" ? "bad" : "";
}
