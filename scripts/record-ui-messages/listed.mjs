// Streams written by hand: every chunk type, every way in which a stream can go wrong, and what was found to be easy to get wrong.
const start = { type: 'start', messageId: 'm' };
const meta = n => ({ provider: { n } });
const textStart = (id, more) => ({ type: 'text-start', id, ...more });
const text = (id, delta, more) => ({ type: 'text-delta', id, delta, ...more });
const textEnd = (id, more) => ({ type: 'text-end', id, ...more });
const reasonStart = (id, more) => ({ type: 'reasoning-start', id, ...more });
const reason = (id, delta, more) => ({ type: 'reasoning-delta', id, delta, ...more });
const reasonEnd = (id, more) => ({ type: 'reasoning-end', id, ...more });
const inputStart = (toolCallId, toolName, more) => ({ type: 'tool-input-start', toolCallId, toolName, ...more });
const inputDelta = (toolCallId, inputTextDelta) => ({ type: 'tool-input-delta', toolCallId, inputTextDelta });
const input = (toolCallId, toolName, input, more) => ({ type: 'tool-input-available', toolCallId, toolName, input, ...more });
const inputError = (toolCallId, toolName, input, errorText, more) => ({ type: 'tool-input-error', toolCallId, toolName, input, errorText, ...more });
const approval = (toolCallId, approvalId, more) => ({ type: 'tool-approval-request', toolCallId, approvalId, ...more });
const output = (toolCallId, output, more) => ({ type: 'tool-output-available', toolCallId, output, ...more });
const outputError = (toolCallId, errorText, more) => ({ type: 'tool-output-error', toolCallId, errorText, ...more });
const denied = toolCallId => ({ type: 'tool-output-denied', toolCallId });
const step = { type: 'start-step' };
const stepEnd = { type: 'finish-step' };
const finish = { type: 'finish' };
const metadata = messageMetadata => ({ type: 'message-metadata', messageMetadata });
const data = (name, data, more) => ({ type: `data-${name}`, data, ...more });

const partial = (...parts) => ({ id: 'm', role: 'assistant', parts });
const tool = (state, more) => ({ type: 'tool-look', toolCallId: 'c', state, input: { a: 1 }, ...more });
const dynamic = (state, more) => ({ type: 'dynamic-tool', toolName: 'look', toolCallId: 'c', state, input: { a: 1 }, ...more });

export const listed = [
  { name: 'nothing', chunks: [] },
  { name: 'a start without an id', chunks: [{ type: 'start' }, finish] },
  { name: 'text', chunks: [start, step, textStart('t'), text('t', 'Hel'), text('t', 'lo'), textEnd('t'), stepEnd, finish] },
  { name: 'text with metadata at each chunk', chunks: [start, textStart('t', { providerMetadata: meta(1) }), text('t', 'a'), text('t', 'b', { providerMetadata: meta(2) }), textEnd('t', { providerMetadata: meta(3) })] },
  { name: 'text whose metadata comes late', chunks: [start, textStart('t'), text('t', 'a', { providerMetadata: meta(2) }), textEnd('t')] },
  { name: 'text beyond the basic plane', chunks: [start, textStart('t'), text('t', '\u{1f600}'), text('t', 'e\u0301\u0000"\\')] },
  { name: 'two texts side by side', chunks: [start, textStart('a'), textStart('b'), text('b', '2'), text('a', '1'), textEnd('a'), text('b', '2'), textEnd('b')] },
  { name: 'an id that is used again after its end', chunks: [start, textStart('a'), text('a', '1'), textEnd('a'), textStart('a'), text('a', '2'), textEnd('a')] },
  { name: 'an id that is used again before its end', chunks: [start, textStart('a'), text('a', '1'), textStart('a'), text('a', '2'), textEnd('a')] },
  { name: 'a text that its step leaves open', chunks: [start, step, textStart('a'), text('a', '1'), stepEnd, step, textStart('a'), text('a', '2'), textEnd('a'), stepEnd, finish] },
  { name: 'text and reasoning of one id', chunks: [start, reasonStart('a'), textStart('a'), reason('a', 'r'), text('a', 't'), reasonEnd('a'), textEnd('a')] },
  { name: 'ids that are names of objects', chunks: [start, textStart('__proto__'), text('__proto__', '1'), textEnd('__proto__'), textStart('constructor'), text('constructor', '2')] },
  { name: 'an empty id', chunks: [start, textStart(''), text('', '1'), textEnd('')] },
  { name: 'reasoning', chunks: [start, step, reasonStart('r', { providerMetadata: meta(1) }), reason('r', 'so'), reason('r', '...', { providerMetadata: meta(2) }), reasonEnd('r', { providerMetadata: meta(3) }), textStart('t'), text('t', 'yes'), textEnd('t'), stepEnd, finish] },

  { name: 'more of a text that has not begun', chunks: [start, text('t', 'a')] },
  { name: 'the end of a text that has not begun', chunks: [start, textEnd('t')] },
  { name: 'more of a text that has ended', chunks: [start, textStart('t'), text('t', 'a'), textEnd('t'), text('t', 'b')] },
  { name: 'more of a text whose step has ended', chunks: [start, step, textStart('t'), text('t', 'a'), stepEnd, text('t', 'b')] },
  { name: 'more of a reasoning that has not begun', chunks: [start, textStart('r'), reason('r', 'a')] },
  { name: 'the end of a reasoning that has not begun', chunks: [start, textStart('r'), reasonEnd('r')] },
  { name: 'more of an input that has not begun', chunks: [start, inputDelta('c', '{')] },
  { name: 'the result of a call that nobody made', chunks: [start, output('c', 1)] },
  { name: 'the error of a call that nobody made', chunks: [start, outputError('c', 'no')] },
  { name: 'the refusal of a call that nobody made', chunks: [start, denied('c')] },
  { name: 'a question about a call that nobody made', chunks: [start, approval('c', 'p')] },

  { name: 'files and sources', chunks: [start,
    { type: 'file', url: 'data:,x', mediaType: 'text/plain' },
    { type: 'file', url: 'data:,y', mediaType: 'text/plain', providerMetadata: meta(1), filename: 'not kept' },
    { type: 'source-url', sourceId: 's', url: 'https://example.com' },
    { type: 'source-url', sourceId: 's', url: 'https://example.com', title: 'x', providerMetadata: meta(2), more: 'not kept' },
    { type: 'source-document', sourceId: 'd', mediaType: 'application/pdf', title: 'x' },
    { type: 'source-document', sourceId: 'd', mediaType: 'application/pdf', title: 'x', filename: 'x.pdf', providerMetadata: meta(3) }] },

  { name: 'a tool', chunks: [start, step, inputStart('c', 'look'), inputDelta('c', '{"wh'), inputDelta('c', 'ere":"he'), inputDelta('c', 're","n":[1,2'), inputDelta('c', ']}'), input('c', 'look', { where: 'here', n: [1, 2] }), output('c', { found: true }), stepEnd, finish] },
  { name: 'a tool without deltas', chunks: [start, input('c', 'look', {}), output('c', null)] },
  { name: 'a tool whose name has hyphens', chunks: [start, inputStart('c', 'look-at-it'), inputDelta('c', '{'), input('c', 'look-at-it', {}), output('c', 'x')] },
  { name: 'a tool with everything', chunks: [start,
    inputStart('c', 'look', { title: 'Looking', toolMetadata: { a: 1 }, providerExecuted: true, providerMetadata: meta(1) }),
    inputDelta('c', '{"a":'), inputDelta('c', '1}'),
    input('c', 'look', { a: 1 }, { providerExecuted: true, providerMetadata: meta(2), title: 'Looked', toolMetadata: { b: 2 } }),
    output('c', 1, { providerExecuted: true, providerMetadata: meta(3), toolMetadata: { c: 3 } })] },
  { name: 'a tool with everything at first and nothing later', chunks: [start,
    inputStart('c', 'look', { title: 'Looking', toolMetadata: { a: 1 }, providerExecuted: true, providerMetadata: meta(1) }),
    inputDelta('c', '{"a":'), input('c', 'look', { a: 1 }), output('c', 1)] },
  { name: 'a tool with everything at last', chunks: [start, inputStart('c', 'look'), inputDelta('c', '{'),
    input('c', 'look', { a: 1 }), outputError('c', 'no', { providerExecuted: false, providerMetadata: meta(3), toolMetadata: { c: 3 } })] },
  { name: 'a dynamic tool with everything', chunks: [start,
    inputStart('c', 'look', { dynamic: true, title: 'Looking', toolMetadata: { a: 1 }, providerExecuted: true, providerMetadata: meta(1) }),
    inputDelta('c', '{"a":'), inputDelta('c', '1}'),
    input('c', 'look', { a: 1 }, { dynamic: true, providerExecuted: true, providerMetadata: meta(2), title: 'Looked', toolMetadata: { b: 2 } }),
    output('c', 1, { dynamic: true, providerExecuted: true, providerMetadata: meta(3), toolMetadata: { c: 3 } })] },
  { name: 'a dynamic tool without deltas', chunks: [start, input('c', 'look', {}, { dynamic: true }), outputError('c', 'no')] },
  { name: 'a dynamic tool that fails in the middle of its input', chunks: [start, inputStart('c', 'look', { dynamic: true }), inputDelta('c', '{"a":1'), outputError('c', 'no')] },
  { name: 'a tool that fails in the middle of its input', chunks: [start, inputStart('c', 'look'), inputDelta('c', '{"a":1'), outputError('c', 'no')] },
  { name: 'more input after an error', chunks: [start, inputStart('c', 'look'), inputDelta('c', '{"a"'), outputError('c', 'no'), inputDelta('c', ':1')] },
  { name: 'input that is text', chunks: [start, inputStart('c', 'look', { inputEncoding: 'text' }), inputDelta('c', '{"a"'), inputDelta('c', ' is not JSON'), input('c', 'look', '{"a" is not JSON')] },
  { name: 'dynamic input that is text', chunks: [start, inputStart('c', 'look', { inputEncoding: 'text', dynamic: true }), inputDelta('c', 'a'), inputDelta('c', 'b'), input('c', 'look', 'ab', { dynamic: true })] },
  { name: 'input that is said to be JSON', chunks: [start, inputStart('c', 'look', { inputEncoding: 'json' }), inputDelta('c', '[1,'), input('c', 'look', [1])] },
  { name: 'input that is no JSON', chunks: [start, inputStart('c', 'look'), inputDelta('c', 'no'), inputDelta('c', ' JSON'), inputError('c', 'look', 'no JSON', 'bad input')] },
  { name: 'input with a forbidden key', chunks: [start, inputStart('c', 'look'), inputDelta('c', '{"a":1'), inputDelta('c', ',"__proto__":{"b":2'), inputDelta('c', '}}')] },
  { name: 'input cut inside an escape', chunks: [start, inputStart('c', 'look'), inputDelta('c', '{"a":"\\'), inputDelta('c', 'u00'), inputDelta('c', 'e9\\n'), inputDelta('c', '"}')] },
  { name: 'an input error without a start', chunks: [start, inputError('c', 'look', { a: 1 }, 'bad', { providerExecuted: true, providerMetadata: meta(1), toolMetadata: { a: 1 }, title: 'not kept' })] },
  { name: 'an input error of a dynamic tool without a start', chunks: [start, inputError('c', 'look', { a: 1 }, 'bad', { dynamic: true, providerMetadata: meta(1) })] },
  { name: 'an input error of a dynamic tool that does not say so', chunks: [start, inputStart('c', 'look', { dynamic: true, title: 'Looking' }), inputDelta('c', '{'), inputError('c', 'look', '{', 'bad')] },
  { name: 'an input error that says dynamic of a tool that is not', chunks: [start, inputStart('c', 'look'), inputDelta('c', '{'), inputError('c', 'look', '{', 'bad', { dynamic: true })] },
  { name: 'a result after an input error', chunks: [start, inputError('c', 'look', '{', 'bad'), output('c', 1)] },
  { name: 'an error after an input error', chunks: [start, inputError('c', 'look', '{', 'bad'), outputError('c', 'worse')] },
  { name: 'an error after an input error, dynamic', chunks: [start, inputError('c', 'look', '{', 'bad', { dynamic: true }), outputError('c', 'worse')] },
  { name: 'preliminary results', chunks: [start, input('c', 'look', {}), output('c', 1, { preliminary: true }), output('c', 2, { preliminary: true }), output('c', 3, { preliminary: false }), output('c', 4)] },
  { name: 'preliminary results of a dynamic tool', chunks: [start, input('c', 'look', {}, { dynamic: true }), output('c', 1, { preliminary: true }), output('c', 2)] },
  { name: 'a preliminary result, then an error', chunks: [start, input('c', 'look', {}), output('c', 1, { preliminary: true }), outputError('c', 'no')] },
  { name: 'two tools side by side', chunks: [start, step, inputStart('a', 'look'), inputStart('b', 'find'), inputDelta('b', '{"x":'), inputDelta('a', '{"y":'), inputDelta('b', '1'), inputDelta('a', '2}'), input('a', 'look', { y: 2 }), inputDelta('b', '}'), input('b', 'find', { x: 1 }), output('b', 'B'), outputError('a', 'A'), stepEnd, finish] },
  { name: 'a dynamic and a static call of one id', chunks: [start, inputStart('c', 'look'), inputStart('c', 'find', { dynamic: true }), inputDelta('c', '{"a":1'), input('c', 'look', { a: 1 }), output('c', 'x')] },
  { name: 'a call whose tool changes', chunks: [start, inputStart('c', 'look'), input('c', 'find', {}), output('c', 1)] },
  { name: 'a call that is begun again', chunks: [start, inputStart('c', 'look', { title: 'x' }), inputDelta('c', '{"a":1}'), inputStart('c', 'look'), inputDelta('c', '{"b":')] },
  { name: 'a call that is made again after its result', chunks: [start, input('c', 'look', { a: 1 }), output('c', 1), inputStart('c', 'look'), inputDelta('c', '{'), input('c', 'look', { a: 2 })] },
  { name: 'the same id in another step', chunks: [start, step, input('c', 'look', { a: 1 }), output('c', 1), stepEnd, step, input('c', 'look', { a: 2 }), output('c', 2)] },
  { name: 'a result in a later step', chunks: [start, step, input('c', 'look', { a: 1 }), stepEnd, step, output('c', 2)] },
  { name: 'more input in a later step', chunks: [start, step, inputStart('c', 'look', { title: 'x', toolMetadata: { a: 1 } }), inputDelta('c', '{"a"'), stepEnd, step, inputDelta('c', ':1'), inputDelta('c', ',')] },
  { name: 'more dynamic input in a later step', chunks: [start, step, inputStart('c', 'look', { dynamic: true, title: 'x' }), inputDelta('c', '{"a"'), stepEnd, step, inputDelta('c', ':1'), inputDelta('c', ',')] },
  { name: 'an input error in a later step', chunks: [start, step, inputStart('c', 'look', { dynamic: true }), stepEnd, step, inputError('c', 'look', '{', 'bad')] },
  { name: 'a question', chunks: [start, input('c', 'pay', { n: 5 }), approval('c', 'p')] },
  { name: 'a question with everything', chunks: [start, input('c', 'pay', { n: 5 }, { dynamic: true }), approval('c', 'p', { approvalDescriptor: { why: 1 }, inputSchemaInput: null, signature: 'x', more: 'not kept' })] },
  { name: 'a question without a descriptor', chunks: [start, input('c', 'pay', { n: 5 }), approval('c', 'p', { approvalDescriptor: null, inputSchemaInput: { n: 5 } })] },
  { name: 'a question in the middle of the input', chunks: [start, inputStart('c', 'pay'), inputDelta('c', '{"n":5'), approval('c', 'p'), output('c', 'paid')] },
  { name: 'a question asked again', chunks: [start, input('c', 'pay', {}), approval('c', 'p', { signature: 'x' }), approval('c', 'q')] },
  { name: 'a refusal', chunks: [start, step, input('c', 'pay', { n: 5 }), approval('c', 'p'), denied('c'), stepEnd, finish] },
  { name: 'a result after a question', chunks: [start, input('c', 'pay', { n: 5 }), approval('c', 'p'), output('c', 'paid')] },
  { name: 'input that is null', chunks: [start, inputStart('c', 'look'), inputDelta('c', 'nul'), inputDelta('c', 'l'), input('c', 'look', null), outputError('c', 'no')] },

  { name: 'data', chunks: [start, data('w', 1), data('w', 2), data('w', { a: 1 }, { id: 'x' }), data('w', { b: 2 }, { id: 'x', more: 'not kept' }), data('v', 3, { id: 'x' }), data('w', 4, { id: 'y', more: 'kept', transient: false }), data('w', null, { id: 'y' })] },
  { name: 'transient data', chunks: [start, data('w', 1, { id: 'x' }), data('w', 2, { id: 'x', transient: true }), data('w', 3, { transient: true })] },
  { name: 'data with an empty id', chunks: [start, data('w', 1, { id: '' }), data('w', 2, { id: '' })] },
  { name: 'data in the middle of a text', chunks: [start, textStart('t'), text('t', 'a'), data('w', 1, { id: 'x' }), text('t', 'b'), data('w', 2, { id: 'x' }), textEnd('t')] },

  { name: 'metadata at each place', chunks: [{ ...start, messageMetadata: { a: 1, deep: { x: 1, list: [1, 2] } } }, metadata({ b: 2, deep: { y: { z: 1 } } }), metadata({ deep: { list: [3], y: { w: null } } }), { type: 'finish', finishReason: 'stop', messageMetadata: { a: { now: 'an object' } } }] },
  { name: 'metadata that goes deeper and back', chunks: [start, metadata({ a: 1 }), metadata({ a: { b: 1 } }), metadata({ a: [1] }), metadata({ a: { c: 1 } }), metadata({ a: null }), metadata({ a: { d: 1 } }), metadata({})] },
  { name: 'metadata that is nothing', chunks: [start, metadata(null), { type: 'finish', messageMetadata: null }] },
  { name: 'metadata that is no object', chunks: [start, metadata('text')] },
  { name: 'metadata with forbidden keys', chunks: [start, metadata({ a: { b: 1 } }), JSON.parse('{"type":"message-metadata","messageMetadata":{"constructor":1,"prototype":2,"__proto__":{"x":1},"a":{"constructor":3,"toString":{"y":1}},"c":4}}')] },
  { name: 'a second start without an id', chunks: [start, textStart('t'), text('t', 'a'), { type: 'start', messageMetadata: { a: 1 } }, text('t', 'b')] },
  { name: 'a second start with the same id', chunks: [start, textStart('t'), text('t', 'a'), start, text('t', 'b')] },
  { name: 'a second start with another id', via: 'chat', chunks: [start, textStart('t'), text('t', 'a'), { type: 'start', messageId: 'n', messageMetadata: { a: 1 } }, text('t', 'b'), textEnd('t')] },
  { name: 'a start after the parts', via: 'chat', chunks: [textStart('t'), text('t', 'a'), start, text('t', 'b')] },
  { name: 'an error', chunks: [start, textStart('t'), text('t', 'a'), { type: 'error', errorText: 'no' }, text('t', 'b')] },
  { name: 'an abort', chunks: [start, textStart('t'), text('t', 'a'), { type: 'abort', reason: 'no' }, text('t', 'b')] },
  { name: 'chunks that nobody knows', chunks: [start, { type: 'tool-input-thing', toolCallId: 'c' }, { type: 'text', text: 'x' }, { type: '' }, { type: 'data' }, { type: 'datax' }, finish] },
  { name: 'steps', chunks: [start, step, step, stepEnd, stepEnd, step, textStart('t'), stepEnd, finish, finish] },
  { name: 'a finish with a reason', chunks: [start, { type: 'finish', finishReason: 'length' }] },

  { name: 'on a message: text', message: partial({ type: 'text', text: 'a', state: 'done' }), chunks: [{ type: 'start' }, step, textStart('t'), text('t', 'b'), textEnd('t')] },
  { name: 'on a message: more of its open text', message: partial({ type: 'text', text: 'a', state: 'streaming' }), chunks: [{ type: 'start' }, text('t', 'b')] },
  { name: 'on a message: more of its open reasoning', message: partial({ type: 'reasoning', id: 'r', text: 'a', state: 'streaming' }), chunks: [{ type: 'start' }, reason('r', 'b')] },
  { name: 'on a message: what is not known stays', message: { ...partial({ type: 'odd', a: 1 }, { type: 'text', text: 'a', odd: 2 }), metadata: { a: 1 }, odd: 3 }, chunks: [{ type: 'start', messageMetadata: { b: 2 } }, textStart('t'), textEnd('t')] },
  { name: 'on a message: its id again', message: partial({ type: 'text', text: 'a', state: 'done' }), chunks: [start, textStart('t'), text('t', 'b')] },
  { name: 'on a message: data', message: partial(data('w', 1, { id: 'x', odd: 1 })), chunks: [data('w', 2, { id: 'x' }), data('w', 3)] },
  ...['input-available', 'approval-requested', 'approval-responded', 'output-available', 'output-error', 'output-denied'].flatMap(state =>
    [tool, dynamic].map(make => ({
      name: `on a message: a result for a ${make.name === 'dynamic' ? 'dynamic ' : ''}call that is ${state}`,
      message: partial({ type: 'step-start' }, make(state, { title: 'x', rawInput: 'y', approval: { id: 'p' } }), { type: 'step-start' }),
      chunks: [output('c', 1, { providerMetadata: meta(1) }), outputError('c', 'no'), denied('c'), approval('c', 'q')],
    }))),
  { name: 'on a message: more of its input', message: partial({ type: 'step-start' }, tool('input-streaming', { input: { a: 1 }, rawInput: '{"a":1', title: 'x', toolMetadata: { m: 1 } })), chunks: [inputDelta('c', ',"b":'), inputDelta('c', '2}'), input('c', 'look', { a: 1, b: 2 })] },
  { name: 'on a message: more of its dynamic input', message: partial(dynamic('input-streaming', { rawInput: '{"a":1' })), chunks: [inputDelta('c', ',"b":'), inputDelta('c', '2}')] },
  { name: 'on a message: more of its input that is text', message: partial(tool('input-streaming', { input: 'x', rawInput: 'x', inputEncoding: 'text' })), chunks: [inputDelta('c', 'y')] },
  { name: 'on a message: more of input that left no text', message: partial(tool('input-streaming')), chunks: [inputDelta('c', '{"b":2')] },
  { name: 'on a message: more of input of an earlier step', message: partial(tool('input-streaming', { rawInput: '{' }), { type: 'step-start' }), chunks: [inputDelta('c', '"b":2')] },
  { name: 'on a message: an earlier call is made again', message: partial({ type: 'step-start' }, tool('output-available', { output: 1 })), chunks: [step, input('c', 'look', { a: 2 }), output('c', 2)] },
];
