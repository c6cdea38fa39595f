/** The run cannot go on; the message is for the person who started it. */
export class RunError extends Error {}
