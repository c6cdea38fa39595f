/** One use of a series in a query: its name, and the labels that its matchers name. */
export interface SeriesUse {
  readonly name: string;
  readonly labels: readonly string[];
  /** The function around the range that was asked for, such as `rate`; undefined for an instant. */
  readonly rangedBy?: string;
}

export interface QueryUse {
  readonly series: readonly SeriesUse[];
  /** Labels that are grouped or matched by. */
  readonly labels: readonly string[];
}

const FUNCTIONS = new Set(
  'rate increase delta deriv sum max min avg count histogram_quantile absent max_over_time min_over_time label_values'.split(
    ' ',
  ),
);
const OPERATORS = new Set('and or unless offset bool'.split(' '));
const GROUPINGS = new Set('by without on ignoring group_left group_right'.split(' '));

/**
 * What a query of Prometheus, or a variable of Grafana, asks for. Knows the part of the language that the rules and the
 * dashboard use, and throws for any other word: a name that is spelled wrong is none that it knows.
 */
export function parseQuery(query: string): QueryUse {
  const tokens: readonly string[] =
    query.match(/"(?:[^"\\]|\\.)*"|[A-Za-z_:][A-Za-z0-9_:]*|\$\w+|[\d.]+[a-z]*|=~|!~|!=|[^\s]/g) ?? [];
  const series: SeriesUse[] = [];
  const labels: string[] = [];
  /** The function whose parenthesis is open, from the outside in. */
  const open: string[] = [];
  let word = '';
  const until = (at: number, close: string): string[] => tokens.slice(at, tokens.indexOf(close, at));
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (token === '(') open.push(word);
    if (token === ')') open.pop();
    if (token === '(' || token === ')' || !/^[A-Za-z_]/.test(token)) {
      word = '';
      continue;
    }
    if (GROUPINGS.has(token)) {
      labels.push(...until(i + 2, ')').filter((each) => each !== ','));
      i = tokens.indexOf(')', i);
    } else if (token.startsWith('redis_streaming_')) {
      let next = i + 1;
      let matched: string[] = [];
      if (tokens[next] === '{') {
        matched = until(next + 1, '}').filter(
          (each, at, all) => /^(=|=~|!=|!~)$/.test(all[at + 1] ?? '') && /^\w+$/.test(each),
        );
        next = tokens.indexOf('}', next) + 1;
      }
      const rangedBy = tokens[next] === '[' ? open.at(-1) : undefined;
      series.push({ name: token, labels: matched, ...(rangedBy !== undefined && { rangedBy }) });
      i = next - 1;
      if (open.at(-1) === 'label_values' && tokens[next] === ',') labels.push(tokens[next + 1]!);
      if (open.at(-1) === 'label_values') i = tokens.indexOf(')', next) - 1;
    } else if (FUNCTIONS.has(token)) {
      word = token;
      // The function of `sum by (topic) (...)` stands before its grouping.
    } else if (!OPERATORS.has(token)) {
      throw new Error(`unknown word ${token} in ${query}`);
    }
  }
  return { series, labels };
}
