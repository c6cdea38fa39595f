/**
 * What one of each thing costs, as `npm run sizing -- --measure` saw it on a small machine that others used too (Redis 7.0, Node 20):
 * the most of some runs, rounded up. Microseconds are processor time.
 */
export const costs = {
  /** A stored message takes its payload times this, plus the next: key of eight characters, no headers. */
  bytesPerPayloadByte: 1.25,
  bytesPerMessage: 40,
  /** An entry in a group's pending entries list, until it is settled. */
  bytesPerPending: 90,
  bytesPerPartition: 450,
  /** Lease, epoch, group and position of a partition that is owned. */
  bytesPerOwnedPartition: 1_200,

  /** On Redis, with full batches. */
  redisUsPerSend: 3,
  redisUsPerHandled: 6,
  redisUsPerLookedMember: 1.2,
  nodeUsPerLookedMember: 5,
} as const;

/** What the upkeep of one partition costs. */
export interface PartitionCosts {
  readonly redisUsPerRenewal: number;
  /** To see who owns it. */
  readonly redisUsPerLook: number;
  /** In the instance, the assignment included. */
  readonly nodeUsPerLook: number;
  /** For retries and delayed messages that are due. */
  readonly redisUsPerLookForDue: number;
  /** A read that finds nothing. */
  readonly redisUsPerRead: number;
}

/** Many partitions in one command. */
export const onOneServer: PartitionCosts = {
  redisUsPerRenewal: 12,
  redisUsPerLook: 5,
  nodeUsPerLook: 7,
  redisUsPerLookForDue: 4,
  redisUsPerRead: 3,
};

/** A command names one slot. */
export const inCluster: PartitionCosts = {
  redisUsPerRenewal: 23,
  redisUsPerLook: 17,
  nodeUsPerLook: 31,
  redisUsPerLookForDue: 15,
  // It waits: twice what was measured for one that does not.
  redisUsPerRead: 20,
};
