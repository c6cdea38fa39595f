import { join } from 'node:path';
import ts from 'typescript';

const root = join(__dirname, '../..');
const library = join(root, 'libs/redis-streams-mq/src');
const entries = ['index.ts', 'testing/index.ts'].map((file) => join(library, file));

/** What the library exports, with what is said about it and about what its users can call. */
function publicApi(): Map<string, string> {
  const config = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => ts.sys.readFile(path));
  const { options } = ts.parseJsonConfigFileContent({ ...config.config, include: [], files: ['x.ts'] }, ts.sys, root);
  const program = ts.createProgram(entries, options);
  const checker = program.getTypeChecker();
  const said = new Map<string, string>();
  const say = (name: string, symbol: ts.Symbol): void => {
    said.set(name, ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim());
  };
  for (const entry of entries) {
    const module = checker.getSymbolAtLocation(program.getSourceFile(entry)!)!;
    for (const exported of checker.getExportsOfModule(module)) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
      say(exported.name, symbol);
      if (!(symbol.flags & ts.SymbolFlags.Class)) continue;
      for (const member of [...(symbol.members?.values() ?? []), ...(symbol.exports?.values() ?? [])]) {
        const [declaration] = member.declarations ?? [];
        const isCallable = member.flags & (ts.SymbolFlags.Method | ts.SymbolFlags.Accessor);
        if (!isCallable || declaration === undefined) continue;
        const hidden =
          ts.getCombinedModifierFlags(declaration) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected);
        if (!hidden && !isNestHook(member.name)) say(`${exported.name}.${member.name}`, member);
      }
    }
  }
  return said;
}

/** Nest calls them; their names say when. */
function isNestHook(name: string): boolean {
  return /^on(Module|Application)/.test(name);
}

describe('the reference of the API', () => {
  const said = publicApi();

  it('has all exports, and the methods of the classes among them', () => {
    expect([...said.keys()]).toEqual(
      expect.arrayContaining(['MqProducer', 'MqProducer.send', 'MqTesting.advance', 'SendOptions']),
    );
  });

  it('says something about each', () => {
    expect([...said].filter(([, text]) => text === '').map(([name]) => name)).toEqual([]);
  });
});
