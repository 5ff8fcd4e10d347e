// What a program does with OpenAI's client: ask, stream, drop and resume, reply to what asks back,
// approve. The last line printed is what it found, as JSON.
import OpenAI from 'openai';

const [url, token] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: token });
const model = 'bos';

async function streamed(stream, text = '', most = Infinity) {
  let id;
  let after = -1;
  for await (const event of stream) {
    if (event.type === 'response.created') id = event.response.id;
    after = event.sequence_number;
    if (event.type === 'response.output_text.delta') {
      text += event.delta;
      if (--most === 0) break;
    }
  }
  return { id, after, text };
}

const found = {};
const asked = await openai.responses.create({ model, input: 'Who brought what?' });
found.answer = asked.output_text;
found.status = asked.status;

const chat = await openai.chat.completions.create({
  model, messages: [{ role: 'user', content: 'Who brought what?' }], stream: true,
  stream_options: { include_usage: true },
});
found.chunks = '';
for await (const chunk of chat) {
  found.chunks += chunk.choices[0]?.delta.content ?? '';
  if (chunk.usage) found.usage = Object.keys(chunk.usage).sort();
}

const dropped = await streamed(
  await openai.responses.create({ model, input: 'Who brought what?', stream: true }), '', 1,
);
const resumed = await streamed(
  await openai.responses.retrieve(dropped.id, { stream: true, starting_after: dropped.after }),
  dropped.text,
);
found.resumed = resumed.text;

const waiting = await openai.responses.create({ model, input: 'Put it into production' });
found.shown = ['trigger_deployment', 'shop-web', '1.2'].every(
  (part) => waiting.output_text.includes(part),
);
const approved = await openai.responses.create({
  model, input: 'yes', previous_response_id: waiting.id,
});
found.approved = approved.output_text;

try {
  await openai.chat.completions.create({ model, n: 2, messages: [{ role: 'user', content: 'x' }] });
} catch (error) {
  found.refused = [error.status, error.param];
}
found.models = [];
for await (const each of openai.models.list()) found.models.push(each.id);
console.log(JSON.stringify(found));
