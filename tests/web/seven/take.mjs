// The packages of this folder, for the tests beside it.
export const take = (name) => import(name);
