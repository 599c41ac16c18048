// Addresses of views.
export const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();

export const fiberHref = (id) => `#/fiber/${encodeURIComponent(id)}`;
export const fibersHref = ({ at, ...filter }) => `#/fibers?${query(filter)}`;
export const functionHref = (name) => `#/function/${encodeURIComponent(name)}`;
export const chatHref = ({ class: kind, agent }) => `#/chat/${encodeURIComponent(kind)}/${encodeURIComponent(agent)}`;
