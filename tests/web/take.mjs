// The packages of this folder. `older` and `seven` have the same file for theirs.
export const take = (name) => import(name);
