/** Protections that can be switched off in the child processes, each by a module of this folder. */
export const MUTATIONS = {
  fencing: 'outcomes are taken from anybody, and nobody doubts a lease',
  ledger: 'what others took from the pending list is not looked for',
  'atomic-retry': 'a failed message is acknowledged first and put into the bucket by a second call',
  'take-over-order': "a new owner gets the former one's messages in the wrong order",
  'run-twice': 'what may have been sent is sent again without a look',
  'reader-deadline': 'a blocking read may take for ever',
} as const;

export type Mutation = keyof typeof MUTATIONS;

export const isMutation = (name: string): name is Mutation => Object.hasOwn(MUTATIONS, name);

export const mutationFile = (name: Mutation): string => `test/torture/mutations/${name}.ts`;
