// Long series are drawn by uPlot, which is loaded when one is shown. Its style sheet is ours (more.css).
import uPlot from "uplot";

function colour(name: string): string {
  // A canvas knows no custom properties: an element that has the colour is asked.
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export function draw(holder: HTMLElement, at: number[], values: (number | null)[], show: (value: number) => string, limit: number | null): uPlot {
  const start = at[0] ?? 0;
  const axis = { stroke: colour("--ink-3"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "11.5px system-ui, sans-serif" };
  const lines: uPlot.Series[] = [{}, { stroke: colour("--s0"), width: 1.5, fill: "rgba(31,95,191,.12)", points: { show: false } }];
  const data: (number | null)[][] = [at.map((each) => each - start), values];
  if (limit !== null) {
    lines.push({ stroke: colour("--ink"), width: 1, dash: [5, 4], points: { show: false } });
    data.push(at.map(() => limit));
  }
  return new uPlot(
    {
      width: holder.clientWidth || 600,
      height: 150,
      legend: { show: false },
      cursor: { y: false },
      scales: { x: { time: false }, y: { range: (_, __, most) => [0, Math.max(most, limit ?? 0) * 1.05 || 1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((each) => `${each} s`) },
        { ...axis, size: 66, values: (_, ticks) => ticks.map(show) },
      ],
      series: lines,
    },
    data as uPlot.AlignedData,
    holder,
  );
}
