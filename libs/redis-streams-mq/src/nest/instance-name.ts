/** Name of the module instance that was given none. */
export const DEFAULT_INSTANCE = 'default';
