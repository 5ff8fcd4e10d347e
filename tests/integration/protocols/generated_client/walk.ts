// What a program does with the generated client: ask, stream, approve, read a table. It converts
// nothing: each value is used as the client gives it. The last line printed is what it found, as JSON.
import {
  askStream, getApproval, getRun, listApprovals, respondApproval, submitRun,
} from './generated/index.js';
import { createClient } from './generated/client/index.js';
import type { Run } from './generated/index.js';

const [url, token] = process.argv.slice(2);
const client = createClient({ baseUrl: url, auth: () => token, throwOnError: true });

async function settled(run: Run): Promise<Run> {
  let now = run;
  while (now.response === undefined && now.status !== 'RUN_STATUS_WAITING_FOR_APPROVAL') {
    const query = { wait: '30s', after_sequence: now.last_sequence };
    now = (await getRun({ client, path: { run_id: run.run_id }, query })).data!;
  }
  return now;
}

async function ask(question: string): Promise<Run> {
  return settled((await submitRun({ client, body: { question } })).data!);
}

async function stream(question: string): Promise<{ text: string; steps: string[] }> {
  let text = '';
  const steps: string[] = [];
  const { stream: events } = await askStream({ client, body: { question } });
  for await (const event of events) {
    if ('answer_started' in event) text = '';
    if ('answer_delta' in event) text += event.answer_delta!.text;
    if ('step_finished' in event) steps.push(event.step_finished!.step_id);
  }
  return { text, steps };
}

async function approve(run: Run): Promise<{ shown: string[]; run: Run }> {
  const query = { status: 'APPROVAL_STATUS_PENDING' } as const;
  const { approvals } = (await listApprovals({ client, query })).data!;
  const path = { approval_id: approvals.find((each) => each.run_id === run.run_id)!.approval_id };
  const { display } = (await getApproval({ client, path })).data!;
  await respondApproval({ client, path, body: { decision: 'APPROVAL_DECISION_APPROVE' } });
  let now = run;
  while (now.response === undefined) {
    const wait = { wait: '30s', after_sequence: now.last_sequence };
    now = (await getRun({ client, path: { run_id: run.run_id }, query: wait })).data!;
  }
  const shown = display!.actions[0].arguments.map((each) => `${each.label}=${each.lines.join()}`);
  return { shown, run: now };
}

const asked = await ask('Who brought what?');
const table = asked.response!.data!;
const streamed = await stream('Who brought what?');
const waiting = await ask('Put it into production');
const approved = await approve(waiting);
console.log(JSON.stringify({
  status: asked.status,
  answer: asked.response!.answer,
  columns: table.columns.map((column) => `${column.name}: ${column.type}`),
  first: table.rows[0],
  amounts: table.rows.map((row) => (Array.isArray(row) ? row[1] : row.amount)),
  streamed: streamed.text,
  steps: streamed.steps,
  waiting: waiting.status,
  shown: approved.shown,
  approved: approved.run.status,
}));
