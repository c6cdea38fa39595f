import type { Redis } from 'ioredis';

/** What `INFO replication` of one server says. */
export interface ReplicationInfo {
  readonly isMaster: boolean;
  /** Names one history of writes; a promoted replica begins a new one. */
  readonly replid: string;
  /** The history before that, which this server has up to `secondOffset` (exclusive); absent where there was none. */
  readonly replid2: string | undefined;
  readonly offset: number;
  readonly secondOffset: number;
  readonly masterPort: number | undefined;
  readonly isLinkUp: boolean;
  /** Of a master: replicas that are online. */
  readonly onlineReplicas: number;
}

export async function replicationInfo(client: Redis): Promise<ReplicationInfo> {
  return parseReplication(await client.info('replication'));
}

function parseReplication(text: string): ReplicationInfo {
  const fields = new Map(
    text
      .split('\r\n')
      .filter((line) => line.includes(':'))
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]),
  );
  const field = (name: string): string => fields.get(name) ?? '';
  return {
    isMaster: field('role') === 'master',
    replid: field('master_replid'),
    replid2: /^0*$/.test(field('master_replid2')) ? undefined : field('master_replid2'),
    offset: Number(field('master_repl_offset')),
    secondOffset: Number(field('second_repl_offset')),
    masterPort: fields.has('master_port') ? Number(field('master_port')) : undefined,
    isLinkUp: field('master_link_status') === 'up',
    onlineReplicas: [...fields].filter(([name, value]) => /^slave\d+$/.test(name) && value.includes('state=online'))
      .length,
  };
}
