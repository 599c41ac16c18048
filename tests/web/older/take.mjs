// The packages of this folder, for the tests beside it.
export const take = (name) => import(name);

/** A copy of a module of a package, which shares no variable with the other copies. */
export const copy = (name, number) => import(`${import.meta.resolve(name)}?copy=${number}`);
