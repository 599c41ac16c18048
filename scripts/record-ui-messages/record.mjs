// Records what the npm package `ai` makes of streams of chunks, for the tests of crates/forever-chat/src/message: `npm install && npm run record`.
import { readFileSync, writeFileSync } from 'node:fs';
import { AbstractChat, parsePartialJson, readUIMessageStream, uiMessageChunkSchema, UIMessageStreamError } from 'ai';
import { fields } from './fields.mjs';
import { listed } from './listed.mjs';
import { texts } from './texts.mjs';
import { Random } from './random.mjs';

// A larger number of random streams than is kept can be asked for: `npm run record -- {folder} {seed} {streams} {texts}`.
const [folder = new URL('../../crates/forever-chat/src/message/tests/recorded/', import.meta.url).pathname, seed = 1, streams = 220, documents = 60] = process.argv.slice(2);

const plain = value => (value === undefined ? undefined : JSON.parse(JSON.stringify(value)));

function streamOf(chunks) {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(structuredClone(chunk));
      controller.close();
    },
  });
}

/** The message after `chunks`, and what the package refuses of them. */
async function read(message, chunks) {
  let last = message ?? { id: '', role: 'assistant', parts: [] };
  let refused;
  const onError = error => {
    if (UIMessageStreamError.isInstance(error) || error instanceof TypeError) refused = error.message;
  };
  for await (const state of readUIMessageStream({ message: structuredClone(message), stream: streamOf(chunks), onError })) last = state;
  return { message: plain(last), refused };
}

/** The same by way of the client: it keeps its parts when a start names another id. */
async function chat(message, chunks) {
  const state = {
    messages: message ? [structuredClone(message)] : [{ id: 'u', role: 'user', parts: [] }],
    last: undefined,
    status: 'ready',
    error: undefined,
    pushMessage(message) {
      this.messages = [...this.messages, message];
      this.last = plain(message);
    },
    popMessage() {
      this.messages = this.messages.slice(0, -1);
    },
    replaceMessage(at, message) {
      this.messages = this.messages.with(at, message);
      this.last = plain(message);
    },
    snapshot: structuredClone,
  };
  class Chat extends AbstractChat {}
  let refused;
  const client = new Chat({
    state,
    generateId: () => '',
    transport: { sendMessages: async () => streamOf(chunks), reconnectToStream: async () => null },
    onError: error => (refused = error.message),
  });
  await client.sendMessage();
  return { message: state.last ?? plain(message) ?? { id: '', role: 'assistant', parts: [] }, refused };
}

/** What has changed from one message to the next: parts are added and changed, never taken away. */
function change(before, after) {
  const differs = (a, b) => JSON.stringify(a) !== JSON.stringify(b);
  const changed = {};
  if (before.id !== after.id) changed.id = after.id;
  if (differs(before.metadata, after.metadata)) changed.metadata = after.metadata;
  const parts = after.parts.flatMap((part, at) => (differs(part, before.parts[at]) ? [[at, part]] : []));
  if (parts.length > 0) changed.parts = Object.fromEntries(parts);
  if (after.parts.length < before.parts.length) throw new Error('parts are gone');
  return Object.keys(changed).length > 0 ? changed : null;
}

/** One stream with the change that each chunk makes. A stream that is refused ends with the chunk that was. */
async function record({ name, message, chunks, via = 'read' }) {
  const run = { read, chat }[via];
  const after = [];
  let before = plain(message) ?? { id: '', role: 'assistant', parts: [] };
  let id = before.id;
  for (let length = 1; length <= chunks.length; length++) {
    const made = chunks.slice(0, length);
    id = made.at(-1).type === 'start' ? made.at(-1).messageId ?? id : id;
    // Some chunks change the message without telling: a start with the id that it has makes it be told, and changes nothing.
    const now = await run(message, [...made, { type: 'start', messageId: id }]);
    if (now.refused !== undefined) return plain({ name, message, chunks: made, after, refused: now.refused });
    after.push(wellFormed(change(before, now.message)));
    before = now.message;
  }
  return plain({ name, message, chunks, after });
}

/** Halves of surrogate pairs cannot be written in UTF-8: they become U+FFFD. */
function wellFormed(value) {
  if (typeof value === 'string') return value.toWellFormed();
  if (Array.isArray(value)) return value.map(wellFormed);
  if (value !== null && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, value]) => [key.toWellFormed(), wellFormed(value)]));
  return value;
}

/** What is read of a text when it is cut after each of its characters: `[]` for nothing, else `[value]`, and `0` for the same as before. */
async function cuts(text) {
  const read = [];
  let before;
  const characters = Array.from(text);
  for (let length = 0; length <= characters.length; length++) {
    const { value } = await parsePartialJson(characters.slice(0, length).join(''));
    const now = JSON.stringify(value === undefined ? [] : [wellFormed(value)]);
    read.push(now === before ? 0 : JSON.parse(now));
    before = now;
  }
  return { text, read };
}

function write(file, rows) {
  const ascii = row => JSON.stringify(row).replace(/[\u007f-\uffff]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
  writeFileSync(`${folder}/${file}`, `[\n${rows.map(ascii).join(',\n')}\n]\n`);
}

const all = async (list, one) => {
  const made = [];
  for (const item of list) made.push(await one(item));
  return made;
};

const wire = JSON.parse(readFileSync(new URL('wire.json', import.meta.url)));
const random = new Random(Number(seed));
const schema = uiMessageChunkSchema();
const valid = async chunk => (await schema.validate(structuredClone(chunk))).success;

const randomStreams = Array.from({ length: Number(streams) }, (_, n) => ({ name: `random ${n}`, chunks: random.stream(4 + random.below(18)) }));
for (const { chunks } of randomStreams) for (const chunk of chunks) if (!(await valid(chunk))) throw new Error(`not a chunk: ${JSON.stringify(chunk)}`);

write('wire.json', await all(wire, record));
write('listed.json', await all(listed, record));
write('random.json', await all(randomStreams, record));
write('fields.json', await all(fields, async chunk => [chunk, await valid(chunk)]));
const randomTexts = Array.from({ length: Number(documents) }, () => {
  const text = random.jsonText(random.object());
  return random.maybe(0.4) ? random.damaged(text).toWellFormed() : text;
});
write('partial-json.json', await all([...texts, ...randomTexts], cuts));
