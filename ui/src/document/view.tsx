// A whole document: the sentence first, then warnings, then numbers. One component for every kind of result.
import { capital, prose } from "../format";
import { Badge } from "../parts/marks";
import { BlockView, CellText } from "./blocks";
import type { DocumentData, Section } from "./types";

export function Warnings({ warnings }: { warnings: string[] | undefined }) {
  if (!warnings?.length) return null;
  return (
    <aside class="notice" aria-label="Warnings">
      <h2>Before you quote these numbers</h2>
      <ul>
        {warnings.slice(0, 20).map((each) => (
          <li key={each}>{prose(each)}</li>
        ))}
        {warnings.length > 20 && <li>and {warnings.length - 20} more</li>}
      </ul>
    </aside>
  );
}

export function Sections({ sections, skip = [] }: { sections: Section[] | undefined; skip?: string[] }) {
  return (
    <div class="secs">
      {sections
        ?.filter((each) => !skip.includes(each.name ?? ""))
        .map((section, at) => (
          <section key={at} id={section.name} class={`doc ${isPicture(section) ? "half" : ""}`}>
            {section.title && <h2>{section.title}</h2>}
            {section.blocks?.map((each, line) => (
              <BlockView key={line} block={each} />
            ))}
            {section.note && <p class="cap">{prose(section.note)}</p>}
          </section>
        ))}
    </div>
  );
}

/** A section of pictures and sentences; two of them stand side by side where there is room. */
const isPicture = (section: Section): boolean => !!section.blocks?.some((each) => each.type === "chart") && section.blocks.every((each) => each.type === "chart" || each.type === "text");

export function DocumentHead({ document, level = 1 }: { document: DocumentData; level?: 1 | 2 }) {
  const Heading = level === 1 ? "h1" : "h2";
  return (
    <div class="head">
      <div>
        <Heading>
          {document.title} {document.verdict && <Badge tone={document.tone}>{document.verdict}</Badge>}
        </Heading>
        <p class="lead">{prose(document.verdict && document.headline.startsWith(document.verdict) ? capital(document.headline) : document.headline)}</p>
        {document.about && (
          <dl class="kv about">
            {document.about.map(([name, cell]) => (
              <>
                <dt>{name}</dt>
                <dd>
                  <CellText cell={cell} />
                </dd>
              </>
            ))}
          </dl>
        )}
      </div>
    </div>
  );
}

export function DocumentView({ document, level = 1 }: { document: DocumentData; level?: 1 | 2 }) {
  return (
    <div class="document">
      <DocumentHead document={document} level={level} />
      <Warnings warnings={document.warnings} />
      <Sections sections={document.sections} />
      {document.footer && <p class="cap footer">{document.footer}</p>}
    </div>
  );
}
