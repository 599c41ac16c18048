// `useChat` of the AI SDK that outlasts a server that is away, and a reload of the page meanwhile.
import { Chat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { resilientFetch, StreamLost } from "./fetch.js";

/** The chat at `api`, for `useChat({ chat, resume: true })`. `options` are those of `Chat`, `headers` and `credentials`. */
export async function openChat(api, { headers, credentials, ...options } = {}) {
  const request = { headers, credentials };
  const stored = async () => {
    const response = await resilientFetch(`${api}/get-messages`, request);
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  };
  // A request that an earlier page could not send.
  const key = `unsent ${api}`;
  const body = sessionStorage.getItem(key);
  if (body) {
    const post = { ...request, method: "POST", body, headers: { ...headers, "content-type": "application/json" } };
    await (await resilientFetch(api, post)).body?.cancel();
    sessionStorage.removeItem(key);
  }
  // Requested before the messages: the answer of a turn that ends in between is in both.
  let inProgress = await resilientFetch(`${api}/rest/stream`, request);
  const transport = new DefaultChatTransport({
    ...request,
    api,
    fetch: async (url, init) => {
      const first = inProgress;
      inProgress = undefined;
      if (init.method !== "POST") return first ?? resilientFetch(url, init);
      await first?.body?.cancel();
      store(key, init.body);
      return resilientFetch(url, init).finally(() => sessionStorage.removeItem(key));
    },
  });
  const chat = new Chat({
    messages: await stored(),
    transport,
    sendAutomaticallyWhen: (all) => lastAssistantMessageIsCompleteWithToolCalls(all) || lastAssistantMessageIsCompleteWithApprovalResponses(all),
    ...options,
    onError: async (error) => {
      options.onError?.(error);
      if (!(error instanceof StreamLost)) return;
      chat.messages = await stored();
      chat.clearError();
    },
  });
  return chat;
}

/** Keeps a request for the page that is loaded next. */
function store(key, body) {
  try {
    sessionStorage.setItem(key, body);
  } catch {
    // Too long for the browser: a reload before it is sent loses it.
  }
}
