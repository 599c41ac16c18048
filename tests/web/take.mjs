// The packages of this folder. `older` and `seven` have the same file for theirs.
export const take = (name) => import(name);

/** A copy of a module of a package, which shares no variable with the other copies. */
export const copy = (name, number) => import(`${import.meta.resolve(name)}?copy=${number}`);
