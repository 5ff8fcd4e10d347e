/** Files to upload: real documents of the sample company, and hostile ones. */
import { execFileSync } from "node:child_process";
import { resolve } from "node:path";

const PYTHON = resolve(import.meta.dirname, "../../../.venv/bin/python");

export const CONTRACT = "SA-2024-027 Noyyal Valve Works supply agreement.pdf";
export const POLICY = "POL-14 Travel policy.docx";

export interface Sample {
  name: string;
  mimeType: string;
  buffer: Buffer;
}

/** A document of the sample company, as the demo would upload it. */
export function companyDocument(name: string): Sample {
  const program = [
    "import sys",
    "from bos_demo.documents.rendering import render",
    "from bos_demo.documents.sources import load_sources",
    "(source,) = [each for each in load_sources() if each.name == sys.argv[1]]",
    "sys.stdout.buffer.write(render(source))",
  ].join("\n");
  const buffer = execFileSync(PYTHON, ["-c", program, name], { maxBuffer: 64 * 1024 * 1024 });
  return { name, mimeType: "application/octet-stream", buffer };
}

export const sample = (name: string, content: string | Buffer): Sample => ({
  name,
  mimeType: "application/octet-stream",
  buffer: Buffer.from(content),
});

/** A picture of one red point. */
export const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC",
  "base64",
);
