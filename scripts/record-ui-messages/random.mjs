// Random streams and texts, the same for the same seed. Most streams are well-formed; some have one chunk that cannot be.

/** Numbers below 1, by mulberry32. */
export function numbers(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const tools = ['look', 'find-it'];
const scraps = ['a', 'bc', ' ', '\n', '"', '\\', '\u00e9', '\u{1f600}', ''];

export class Random {
  constructor(seed) {
    this.next = numbers(seed);
  }
  below(n) {
    return Math.floor(this.next() * n);
  }
  one(list) {
    return list[this.below(list.length)];
  }
  maybe(chance = 0.3) {
    return this.next() < chance;
  }

  string() {
    return Array.from({ length: this.below(4) }, () => this.one(scraps)).join('');
  }

  json(depth = 3) {
    switch (this.below(depth > 0 ? 9 : 6)) {
      case 0:
        return null;
      case 1:
        return this.maybe(0.5);
      case 2:
        return this.below(2000) - 1000;
      case 3:
        return this.below(1000) / 8;
      case 4:
      case 5:
        return this.string();
      case 6:
        return Array.from({ length: this.below(4) }, () => this.json(depth - 1));
      default:
        return this.object(depth);
    }
  }

  object(depth = 3) {
    return Object.fromEntries(Array.from({ length: this.below(4) }, () => [this.maybe(0.8) ? this.one(['a', 'b', 'deep']) : this.string(), this.json(depth - 1)]));
  }

  /** The text of a value: with or without spaces, plain or escaped. */
  jsonText(value) {
    let text = this.maybe() ? JSON.stringify(value, null, this.one([1, '\t'])) : JSON.stringify(value);
    if (this.maybe()) text = text.replace(/[\u0080-\uffff]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
    return text;
  }

  /** A text with something left out, doubled or put in. */
  damaged(text) {
    const at = this.below(text.length + 1);
    const wrong = this.one(['', '', ',', ':', '"', '{', '}', '[', ']', '-', '.', '\\', ' ', 't', '0', text.slice(at, at + 3)]);
    return text.slice(0, at) + wrong + text.slice(at + this.below(2));
  }

  /** Pieces of a text, cut between characters. */
  pieces(text) {
    const characters = Array.from(text);
    const pieces = [];
    while (characters.length > 0) pieces.push(characters.splice(0, 1 + this.below(6)).join(''));
    return pieces;
  }

  extras(fields) {
    const all = { providerMetadata: { p: { n: this.below(9) } }, toolMetadata: { n: this.below(9) }, title: this.one(['x', 'y']), providerExecuted: this.maybe(0.5) };
    return Object.fromEntries(fields.filter(() => this.maybe(0.15)).map(field => [field, all[field]]));
  }

  /** A stream of about `length` chunks. */
  stream(length) {
    const chunks = [{ type: 'start', messageId: 'm' }];
    const open = { text: new Set(), reasoning: new Set() };
    // What each call has still to be given, and what it has come to.
    const calls = new Map();
    let steps = 0;
    while (chunks.length < length) {
      const kind = this.one(['text', 'text', 'reasoning']);
      switch (this.below(12)) {
        case 0: {
          const id = this.one(['1', '2', '3']);
          open[kind].add(id);
          chunks.push({ type: `${kind}-start`, id, ...this.extras(['providerMetadata']) });
          break;
        }
        case 1:
        case 2:
        case 3: {
          if (open[kind].size > 0) chunks.push({ type: `${kind}-delta`, id: this.one([...open[kind]]), delta: this.string(), ...this.extras(['providerMetadata']) });
          break;
        }
        case 4: {
          if (open[kind].size === 0) break;
          const id = this.one([...open[kind]]);
          open[kind].delete(id);
          chunks.push({ type: `${kind}-end`, id, ...this.extras(['providerMetadata']) });
          break;
        }
        case 5: {
          const call = this.maybe(0.1) && calls.size > 0 ? this.one([...calls.keys()]) : `c${calls.size}`;
          const tool = { toolCallId: call, toolName: this.one(tools), ...(this.maybe() ? { dynamic: true } : {}) };
          const encoding = this.maybe(0.1) ? { inputEncoding: this.one(['json', 'text']) } : {};
          const input = this.maybe(0.9) ? this.object() : this.json();
          if (this.maybe(0.7)) {
            chunks.push({ type: 'tool-input-start', ...tool, ...encoding, ...this.extras(['title', 'toolMetadata', 'providerExecuted', 'providerMetadata']) });
            calls.set(call, { tool, input, left: this.pieces(this.jsonText(input)) });
          } else {
            chunks.push({ type: 'tool-input-available', ...tool, input, ...this.extras(['title', 'toolMetadata', 'providerExecuted', 'providerMetadata']) });
            calls.set(call, { tool, input, done: true });
          }
          break;
        }
        case 6:
        case 7:
        case 8: {
          const all = [...calls.entries()];
          if (all.length === 0) break;
          const [toolCallId, call] = all[this.maybe(0.8) ? all.length - 1 : this.below(all.length)];
          if (call.left?.length > 0 && this.maybe(0.8)) {
            chunks.push({ type: 'tool-input-delta', toolCallId, inputTextDelta: call.left.shift() });
          } else if (!call.done) {
            call.left = undefined;
            call.done = true;
            const extras = this.extras(['toolMetadata', 'providerExecuted', 'providerMetadata']);
            if (this.maybe(0.85)) chunks.push({ type: 'tool-input-available', ...call.tool, input: call.input, ...extras, ...this.extras(['title']) });
            else chunks.push({ type: 'tool-input-error', ...call.tool, input: this.json(), errorText: this.string(), ...extras });
          } else {
            const extras = this.extras(['toolMetadata', 'providerExecuted', 'providerMetadata']);
            chunks.push(
              this.one([
                { type: 'tool-output-available', toolCallId, output: this.json(), ...extras },
                { type: 'tool-output-available', toolCallId, output: this.json(), preliminary: this.maybe(0.7), ...extras },
                { type: 'tool-output-error', toolCallId, errorText: this.string(), ...extras },
                { type: 'tool-approval-request', toolCallId, approvalId: this.string() },
                { type: 'tool-output-denied', toolCallId },
              ]),
            );
          }
          break;
        }
        case 9: {
          chunks.push(
            this.one([
              { type: 'file', url: 'data:,', mediaType: 'x/y', ...this.extras(['providerMetadata']) },
              { type: 'source-url', sourceId: 's', url: 'u', ...this.extras(['title', 'providerMetadata']) },
              { type: 'source-document', sourceId: 's', mediaType: 'x/y', title: 't', ...this.extras(['providerMetadata']) },
            ]),
          );
          break;
        }
        case 10: {
          if (this.maybe(0.6)) {
            chunks.push({ type: this.one(['data-v', 'data-w']), data: this.json(1), ...(this.maybe(0.6) ? { id: this.one(['x', 'y']) } : {}), ...(this.maybe(0.2) ? { transient: this.maybe(0.5) } : {}) });
          } else {
            chunks.push({ type: this.one(['message-metadata', 'message-metadata', 'start', 'finish']), messageMetadata: this.object(2) });
          }
          break;
        }
        case 11: {
          if (steps++ % 2 === 1) {
            chunks.push({ type: 'finish-step' });
            open.text.clear();
            open.reasoning.clear();
          } else {
            chunks.push({ type: 'start-step' });
          }
          break;
        }
      }
    }
    if (this.maybe(0.15)) {
      chunks.push(
        this.one([
          { type: 'text-delta', id: 'never', delta: 'x' },
          { type: 'text-end', id: 'never' },
          { type: 'reasoning-end', id: 'never' },
          { type: 'tool-input-delta', toolCallId: 'never', inputTextDelta: '{' },
          { type: 'tool-output-available', toolCallId: 'never', output: 1 },
        ]),
      );
    }
    return chunks;
  }
}
