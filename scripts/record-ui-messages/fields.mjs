// Each kind of chunk as it should be, without each of its fields, and with something else in each of them.
const meta = { p: { n: 1 } };
const call = { toolCallId: 'c', toolName: 'look' };
const more = { providerExecuted: true, providerMetadata: meta, toolMetadata: { n: 1 } };

const whole = [
  { type: 'text-start', id: 't', providerMetadata: meta },
  { type: 'text-delta', id: 't', delta: 'x', providerMetadata: meta },
  { type: 'text-end', id: 't', providerMetadata: meta },
  { type: 'reasoning-start', id: 't', providerMetadata: meta },
  { type: 'reasoning-delta', id: 't', delta: 'x', providerMetadata: meta },
  { type: 'reasoning-end', id: 't', providerMetadata: meta },
  { type: 'error', errorText: 'x' },
  { type: 'tool-input-start', ...call, ...more, dynamic: true, title: 'x', inputEncoding: 'json' },
  { type: 'tool-input-start', ...call, inputEncoding: 'text' },
  { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: 'x' },
  { type: 'tool-input-available', ...call, ...more, input: {}, dynamic: true, title: 'x' },
  { type: 'tool-input-error', ...call, ...more, input: {}, errorText: 'x', dynamic: true, title: 'x' },
  { type: 'tool-approval-request', toolCallId: 'c', approvalId: 'p', approvalDescriptor: {}, inputSchemaInput: {}, signature: 'x' },
  { type: 'tool-output-available', toolCallId: 'c', output: 1, ...more, dynamic: true, preliminary: true },
  { type: 'tool-output-error', toolCallId: 'c', errorText: 'x', ...more, dynamic: true },
  { type: 'tool-output-denied', toolCallId: 'c' },
  { type: 'source-url', sourceId: 's', url: 'u', title: 'x', providerMetadata: meta },
  { type: 'source-document', sourceId: 's', mediaType: 'x/y', title: 'x', filename: 'x', providerMetadata: meta },
  { type: 'file', url: 'u', mediaType: 'x/y', providerMetadata: meta },
  { type: 'data-w', data: 1, id: 'x', transient: true },
  { type: 'start-step' },
  { type: 'finish-step' },
  { type: 'start', messageId: 'm', messageMetadata: {} },
  { type: 'finish', finishReason: 'tool-calls', messageMetadata: {} },
  ...['stop', 'length', 'content-filter', 'error', 'other'].map(finishReason => ({ type: 'finish', finishReason })),
  { type: 'abort', reason: 'x' },
  { type: 'message-metadata', messageMetadata: {} },
];

const others = [null, 1, 'no such word', false, [], {}, { p: 1 }, { p: [] }, { p: { n: [1] } }];

function* variants(chunk) {
  yield chunk;
  for (const field of Object.keys(chunk).filter(field => field !== 'type')) {
    const { [field]: _, ...without } = chunk;
    yield without;
    for (const other of others) yield { ...chunk, [field]: other };
  }
  yield { ...chunk, unknown: { a: 1 } };
}

export const fields = whole.flatMap(chunk => [...variants(chunk)]);
