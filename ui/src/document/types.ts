// A document as the server sends it: model/document.py of the package says what each part means.
export type Tone = "" | "good" | "warn" | "bad";

export interface CellData {
  text: string;
  value?: number;
  low?: number;
  high?: number;
  tone?: Tone;
  badge?: boolean;
  href?: string;
  note?: string;
  code?: boolean;
  strong?: boolean;
  share?: number;
}

export type Cell = CellData | string;

export interface Column {
  title: string;
  kind?: "text" | "number" | "whole" | "prose";
  spare?: boolean;
  note?: string;
}

export interface Table {
  type: "table";
  columns: Column[];
  rows?: Cell[][];
  title?: string;
  caption?: string;
  folded?: string;
  total?: number;
  rest?: string;
}

export interface Chart {
  type: "chart";
  title?: string;
  caption?: string;
  text?: string[];
  draw?: { chart: string; svg?: string };
}

export interface Facts {
  type: "facts";
  pairs: [string, Cell][];
  tiles?: boolean;
}

export interface SignData {
  text: string;
  look: "pass" | "part" | "fail" | "own" | "error" | "none";
  tooltip?: string;
  href?: string;
  level?: number;
}

export interface Matrix {
  type: "matrix";
  columns?: Column[];
  rows?: [string, SignData[][]][];
  legend?: [SignData, string][];
  counted?: boolean;
  caption?: string;
  total?: number;
  rest?: string;
}

export interface Entry {
  title: string;
  mark: Cell;
  text?: string;
  notes?: string[];
  items?: Cell[];
  code?: string;
  folded?: string;
  name?: string;
}

export type Block =
  | Table
  | Chart
  | Facts
  | Matrix
  | { type: "text"; text: string; quiet?: boolean }
  | { type: "listed"; items: Cell[] }
  | { type: "code"; text: string; title?: string }
  | { type: "entries"; entries: Entry[] }
  | { type: "fold"; title: string; blocks: Block[] };

export interface Section {
  title?: string;
  blocks?: Block[];
  note?: string;
  name?: string;
}

export interface DocumentData {
  kind: string;
  title: string;
  headline: string;
  verdict?: string;
  tone?: Tone;
  about?: [string, Cell][];
  warnings?: string[];
  sections?: Section[];
  links?: CellData[];
  footer?: string;
}
